"""Texts about the GNNs that ship with dgl-lara."""

MESSAGES = {
    "gine.no_bonds": "The model gine reads the edge data '{name}', one column per bond type ({columns}). The graph has "
    "{got}. Use gine-blind, which needs none.",
    "gnn.array": "{path}: {name} must have {dims} dimension(s) of floats (got {got}).",
    "gnn.changed": "{path} was changed since it was stored.",
    "gnn.format": "{path} is not a model of dgl-lara. Its format must be '{expected}' (got '{got}').",
    "gnn.hidden": "hidden must be a multiple of {heads} (got {got}).",
    "gnn.in_dims": "in_dims must name the node types {expected} (got {got}).",
    "gnn.missing": "The model file '{path}' does not exist. Train a model with: dgl-lara target --dataset {dataset}",
    "gnn.missing_arrays": "{path} must hold three GCN layers and a linear head (missing: {missing}).",
    "gnn.no_labels": "{dataset} has no labels (y) to train a model on. Explain a model of your own: "
    "--model MODULE:FUNCTION.",
    "gnn.no_ratings": "{architectures} read equal ratings ('rating', 1 to {stars} stars) on the edges of {rates} and "
    "{reverse}, which {dataset} lacks. Explain a model of your own: --model MODULE:FUNCTION.",
    "gnn.not_cached": "{cause} Training goes on without the cache.",
    "gnn.not_hetero": "{architectures} classify nodes of a heterogeneous graph, and {dataset} has none.",
    "gnn.not_homogeneous": "{architectures} classify nodes or graphs of one node type, and {dataset} has none.",
    "gnn.not_pairs": "{architectures} score pairs of two node types with relations in both directions, "
    "and {dataset} has none.",
    "gnn.not_stored": "The model cannot be stored in {path} ({cause}).",
    "gnn.other_data": "{path} does not fit {dataset}: its {field} must be {expected} (got {got}).",
    "gnn.trained_again": "{cause} The model is trained again.",
    "gnn.weights": "{path}: the weights do not fit the settings of the model ({cause}).",
    "recommender.no_rating": "The recommender reads the edge data 'rating' of {relation}, which the graph lacks.",
}
