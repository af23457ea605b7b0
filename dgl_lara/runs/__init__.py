"""Run folders: configuration, training state and results of one trained explainer."""
