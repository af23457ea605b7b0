"""Texts of attribution."""

MESSAGES = {
    "exact.players": (
        "Exact attribution enumerates 2^players coalitions, for at most {most} players (got {got}). Sample it instead."
    ),
    "samples.damaged": "The shared coalitions in this checkpoint do not fit its responses. Train again.",
}
