"""The explainer g: inputs, encoder, gates, heads (Eq. 6, 7)."""
