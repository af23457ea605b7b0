"""Ranking quality of a recommender: recall and NDCG of held-back pairs."""

from __future__ import annotations

import torch
from torch import Tensor

from dgl_lara.blackbox.eval_mode import eval_mode
from dgl_lara.datasets.dataset import Dataset
from dgl_lara.gnns.recommender import Recommender

TOP_K = 20


def pair_scores(model: Recommender, dataset: Dataset) -> Tensor:
    """Return (num_users, num_films) scores, minus infinity for films that the user has rated."""
    with eval_mode(model):
        users, films = model.embed(dataset.graph, dataset.features)
        return _mask_rated(users @ films.T, dataset)


def popularity(dataset: Dataset) -> Tensor:
    """Return (num_users, num_films) the number of ratings of each film, minus infinity for rated films."""
    assert dataset.relation is not None
    counts = dataset.graph.in_degrees(etype=dataset.relation).float()
    return _mask_rated(counts.expand(dataset.graph.num_nodes(dataset.relation[0]), -1), dataset)


def _mask_rated(scores: Tensor, dataset: Dataset) -> Tensor:
    scores = scores.clone()
    scores[dataset.graph.edges(etype=dataset.relation)] = -torch.inf
    return scores


def ranking_quality(scores: Tensor, pairs: Tensor, top: int = TOP_K) -> dict[str, float]:
    """Return recall and NDCG at `top`, averaged over the users with at least one held-back pair.

    Args:
        scores: (num_users, num_films).
        pairs: (num_pairs, 2) held-back pairs.
        top: Number of recommended films per user.
    """
    held_back = torch.zeros_like(scores, dtype=torch.bool)
    held_back[pairs[:, 0], pairs[:, 1]] = True
    hits, counts = held_back.gather(1, _best(scores, top)), held_back.sum(dim=1)
    hits, counts = hits[counts > 0], counts[counts > 0]
    gain = 1 / torch.arange(2, hits.shape[1] + 2, device=scores.device).log2()  # there may be fewer films than `top`
    ideal = gain.cumsum(0)[counts.clamp(max=len(gain)) - 1]
    return {
        f"recall@{top}": (hits.sum(dim=1) / counts).mean().item(),
        f"ndcg@{top}": ((hits * gain).sum(dim=1) / ideal).mean().item(),
    }


def in_top(scores: Tensor, pairs: Tensor, top: int = TOP_K) -> Tensor:
    """Return (num_pairs,) bool, whether the film is among the first `top` of the user."""
    return (_best(scores, top)[pairs[:, 0]] == pairs[:, 1:]).any(dim=1)


def _best(scores: Tensor, top: int) -> Tensor:
    return scores.sort(dim=1, descending=True, stable=True).indices[:, :top]
