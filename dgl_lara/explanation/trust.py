"""How far scores can be trusted, in sentences. The texts stand in `messages/explanation.py`."""

from __future__ import annotations

import math

from dgl_lara._util.notices import notice
from dgl_lara.errors import message

MIN_SHARE = 0.5  # of the true attribution, below which scores should be refined
MAX_FAMILIAR_NOVELTY = 1.5  # spreads of the training data up to which a graph is similar to it


def how_sure(corrected: bool, confidence: float | None, noun: str) -> str:
    """Return how the scores were made and how much of the true attribution they should explain.

    Args:
        corrected: Whether model calls corrected the scores.
        confidence: Expected share of the true attribution, or None.
        noun: Name of one player.
    """
    source = "corrected" if corrected else "amortised"
    if confidence is None or math.isnan(confidence):
        return message(f"trust.{source}", share=message("trust.share_unknown"))
    share = f"{confidence:.0%}" if confidence < 0.995 else "over 99%"  # an estimate is never certain
    code = "trust.share_low" if confidence < MIN_SHARE else "trust.share"
    return message(f"trust.{source}", share=message(code, share=share, noun=noun))


def how_far(novelty: float) -> str:
    """Return how similar the graph around a target is to the training data."""
    return message("trust.familiar" if novelty < MAX_FAMILIAR_NOVELTY else "trust.novel", novelty=novelty)


def notice_low_agreement(agreement: float | None, of_neighbours: float | None = None) -> None:
    """Print a notice if an explainer has learned little.

    Args:
        agreement: Best agreement on validation targets, or None if it is unknown.
        of_neighbours: The agreement over neighbours alone.
    """
    if agreement is not None and agreement < MIN_SHARE:
        notice("explainer.low_agreement", agreement=agreement)
    elif of_neighbours is not None and of_neighbours < MIN_SHARE:
        notice("explainer.low_agreement_of_neighbours", agreement=of_neighbours)
