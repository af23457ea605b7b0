"""Texts of the room `game`."""

MESSAGES = {
    "embedding.single_link": "embedding must be 'dual' for links (got 'single').",
    "graphs.layerwise": "Graph tasks have no layer-wise pass, because their graphs come in batches.",
}
