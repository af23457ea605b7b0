"""Texts of the room `explainer`."""

MESSAGES = {
    "explainer.inputs": (
        "The explainer must have {expected} inputs for each node, as in training (got {got}). It belongs to other "
        "features or to another model."
    ),
}
