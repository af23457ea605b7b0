"""Texts of the room `game`."""

MESSAGES = {
    "context.unbounded": (
        "The model does not return its own predictions on {hops} hops around a node. It may use outgoing edges or the "
        "full graph, so values of coalitions are approximate."
    ),
    "hops.range": "hops must be a whole number from 0 to {most}, 'auto' or 'measure' (got {got!r}).",
    "model.columns": (
        "The model must return as many numbers per {task} on every graph (got {full} on the full graph, {got} on "
        "{nodes} nodes)."
    ),
    "task.unknown": "task must be {known} (got {got!r}).",
    "value.unknown": "value must be one of {known} (got {got!r}).",
    "targets.none": "targets must name at least one target (got none).",
    "targets.range": "targets must be {task}s from 0 to {most} (got {got}).",
    "embedding.single_link": "embedding must be 'dual' for links (got 'single').",
    "graphs.layerwise": "Graph tasks have no layer-wise pass, because their graphs come in batches.",
}
