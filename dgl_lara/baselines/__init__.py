"""Methods to compare with. One protocol: `explain(game, targets, ...) -> Explanations`."""
