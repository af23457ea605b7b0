"""Texts of the methods to compare with."""

MESSAGES = {
    "baseline.needs_edge_weights": (
        "{method} needs a model with an argument for edge weights, f(graph, features, edge_weight=...). This model has "
        "none."
    ),
    "baseline.needs_embeddings": "{method} needs a model that returns its embeddings, f.embed(graph, features).",
    "baseline.needs_gradients": (
        "{method} needs a model that torch can differentiate. This model's output has no gradient."
    ),
    "baseline.not_fitted": "{method} must be fitted before it explains. Call fit(targets) first.",
    "fastdnx.credit": "credit must be one of {known} (got {got!r}).",
    "graphsvx.samples": "samples must be at least 4 (got {got}).",
    "graphsvx.sampling": "sampling must be one of {known} (got {got!r}).",
}
