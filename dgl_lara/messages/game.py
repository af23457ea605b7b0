"""Texts of the room `game`."""

MESSAGES = {
    "context.unbounded": (
        "The model does not return its own predictions on {hops} hops around a node. It may use outgoing edges or the "
        "full graph, so values of coalitions are approximate."
    ),
    "edges.no_hops": "hops must be at least 1 if edges are players (got 0). Explain nodes or features instead.",
    "hops.declared": "The model's num_hops must be a whole number from 0 to {most} (got {got!r}). Set hops (--hops).",
    "hops.unbounded": (
        "hops cannot be measured, because the model still changes beyond {limit} hops. It uses the full graph, or "
        "edges that leave a node, as the normalisation of DGL's GraphConv does. Set hops (hops=..., --hops)."
    ),
    "hops.range": "hops must be a whole number from 0 to {most}, 'auto' or 'measure' (got {got!r}).",
    "model.columns": (
        "The model must return as many numbers per {task} on every graph (got {full} on the full graph, {got} on "
        "{nodes} nodes)."
    ),
    "task.unknown": "task must be {known} (got {got!r}).",
    "value.unknown": "value must be one of {known} (got {got!r}).",
    "features.dense": "features must be a dense tensor with one row per node (got {got}).",
    "features.none": "features must be given, or graph.ndata['feat'] must exist (graph.ndata has {fields}).",
    "features.shape": "features must be real numbers with one row per node and at least one column (got {got}).",
    "features.type": "features must be a tensor with one row per node (got {got}).",
    "graph.heterogeneous": "graph must be homogeneous (got several types). Convert it with dgl.to_homogeneous.",
    "graph.one_type": "target_type and relation need a graph of several types (this graph has one).",
    "graph.type": (
        "graph must be a DGL graph (got {got}). Convert PyTorch Geometric data: "
        "LARA(*dgl_lara.blackbox.adapters.from_pyg(model, data))."
    ),
    "graph.type_networkx": "graph must be a DGL graph (got {got}). Convert it: dgl.from_networkx(graph).",
    "graph.types_of_batch": (
        "task must be 'node' or 'link' for a graph of several types (got 'graph'). A batch of such graphs cannot be "
        "explained."
    ),
    "model.is_class": "model must be a model (got the class {name}). Build it first: {name}().",
    "model.is_graph": "model must be the first argument (got a graph): LARA(model, graph, features).",
    "model.is_tuple": "model must be one model (got several values). Write a star: LARA(*from_pyg(model, data)).",
    "pairs.equal": "Both nodes of a pair must be different (got {got}).",
    "pairs.missing": "pairs must be known first. Write LARA(pairs=[(u, v), ...]) or call fit(pairs).",
    "pairs.not_of_lara": "pairs must be among those of this LARA (some are not). Name all in LARA(pairs=...).",
    "pairs.none": "pairs must name at least one pair (got none).",
    "pairs.range": "The {end} node of a pair must be from 0 to {most} (got the pair {got}).",
    "pairs.type": "pairs must be whole numbers, [(u, v), ...] (got {got}).",
    "pairs.other_relation": "pairs must be of the relation '{relation}', which is explained (got {got}).",
    "pairs.relation_of_one_type": "pairs must be [(u, v), ...] on a graph of one type (got {got}).",
    "pairs.task": "pairs, relation and leave_out need task='link' (got task='{task}').",
    "players.features_of_types": "players must be nodes or edges on a graph of several types (got features).",
    "relation.ambiguous": "relation must name one relation (got '{got}', of which there are several). Write {first}.",
    "relation.missing": "relation must be one of {known}, because the graph has several types (got none).",
    "relation.types": "relation must be (type, name, type) with node types {types} (got {got!r}).",
    "relation.unknown": "relation must be one of {known} (got '{got}').",
    "targets.none": "targets must name at least one target (got none).",
    "targets.range": "targets must be {task}s from 0 to {most} (got {got}).",
    "embedding.single_link": "embedding must be 'dual' for links (got 'single').",
    "graphs.layerwise": "Graph tasks have no layer-wise pass, because their graphs come in batches.",
    "index.unknown": "index must be 'banzhaf', 'shapley' or 'keep-P' such as 'keep-0.9' (got {got!r}).",
    "index.keep": "The probability P of keep-P must be from {least} to {most} (got {got}).",
}
