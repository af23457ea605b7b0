"""Texts of the estimator `LARA`."""

MESSAGES = {
    "explanations.type": "explanations must be what `explain` returned (got {got}).",
    "lara.callbacks": "callback and checkpoint must be functions of one argument (got {got}).",
    "lara.file": "{path} holds an explainer without its settings. Save a LARA with `save`.",
    "lara.not_trained": "This LARA is not trained yet. Call fit(targets) first.",
    "lara.resume": "resume must be what `to_dict()` of a training state returned (got {got}).",
    "model.other_weights": (
        "The model's weights differ from those of the model that this explainer was trained for, so its scores may be "
        "wrong. Train another explainer with fit, or pass that model."
    ),
    "samples.other_graph": (
        "This graph has {now:,} {task}s and that of the training had {then:,}, so scores are not corrected."
    ),
    "samples.other_model": (
        "The model's outputs for these {task}s all differ from those during training, so the scores may be wrong. The "
        "model or the graph has changed."
    ),
    "samples.pairs": "The stored samples must belong to the {expected:,} stored pairs (got {got:,}).",
}
