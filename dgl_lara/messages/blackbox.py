"""Texts about models, their adapters and their inputs."""

MESSAGES = {
    "edge_data.complex": "The edge data '{name}' must hold real numbers (got {got}).",
    "edge_data.not_finite": "The edge data '{name}' must be finite (some are NaN or infinity). Fill or remove them.",
    "features.missing_type": "The features of the node type '{type}' are missing. A type without features of its own "
    "can have a column of ones, torch.ones({count}, 1).",
    "features.not_a_tensor": "The features of '{type}' must be a tensor with one row per node (got {got}).",
    "features.not_by_type": "The features of a heterogeneous graph must be given by type, {{'{example}': x, ...}} "
    "(got {got}).",
    "features.rows_by_type": "The features of '{type}' must have one row per node, ({count}, columns) (got {got}).",
    "features.unknown_type": "The features must be of the node types {types} (got '{got}').",
    "model.output_types": "The model must return logits of the type '{expected}' (got those of {got}).",
    "model.rows": "The model must return one row of logits per {target}, ({rows}, classes) (got {got}).",
    "target_type.missing": "A heterogeneous graph needs target_type, the type of the nodes to explain: {types}.",
    "target_type.unknown": "target_type must be one of {types} (got '{got}').",
}
