"""Texts of the room `explainer`."""

MESSAGES = {
    "explainer.damaged": "{path} is not a trained explainer ({problem}).",
    "explainer.file": "{path} holds no trained explainer. `LARA.save` and `dgl-lara train` write one.",
    "explainer.inputs": (
        "The explainer must have {expected} inputs for each node, as in training (got {got}). It belongs to other "
        "features or to another model."
    ),
    "explainer.shape": "The shape of an explainer is invalid ({problem}).",
    "explainer.single_embedding": "embedding must be 'dual' for {players} as players (got 'single').",
    "explainer.weights": "The weights do not fit the shape.",
}
