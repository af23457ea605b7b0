"""How well a recommender ranks: recall and NDCG of the likes that were held back, beside mere popularity."""

from __future__ import annotations

import torch
from torch import Tensor

from dgl_lara.blackbox.eval_mode import eval_mode
from dgl_lara.datasets.dataset import Dataset
from dgl_lara.gnns.recommender import Recommender

TOP = 20


def scores_of(model: Recommender, dataset: Dataset) -> Tensor:
    """(num_users, num_films); minus infinity where the user has rated the film already."""
    with eval_mode(model):
        users, films = model.embed(dataset.graph, dataset.features)
        return unseen(users @ films.T, dataset)


def popularity(dataset: Dataset) -> Tensor:
    """The same for everybody: how many have rated a film."""
    assert dataset.relation is not None
    counts = dataset.graph.in_degrees(etype=dataset.relation).float()
    return unseen(counts.expand(dataset.graph.num_nodes(dataset.relation[0]), -1), dataset)


def unseen(scores: Tensor, dataset: Dataset) -> Tensor:
    scores = scores.clone()
    scores[dataset.graph.edges(etype=dataset.relation)] = -torch.inf
    return scores


def top_hits(scores: Tensor, pairs: Tensor, top: int = TOP) -> tuple[Tensor, Tensor]:
    """(num_users, top) bool: the film at that rank was held back; (num_users,) how many were, in all."""
    wanted = torch.zeros_like(scores, dtype=torch.bool)
    wanted[pairs[:, 0], pairs[:, 1]] = True
    best = scores.sort(dim=1, descending=True, stable=True).indices[:, :top]
    return wanted.gather(1, best), wanted.sum(dim=1)


def ranking_quality(scores: Tensor, pairs: Tensor, top: int = TOP) -> dict[str, float]:
    """Means over the users with at least one pair: the share of a user's pairs among the first `top`, and the gain of
    each by its rank, divided by the best that could be had."""
    hits, wanted = top_hits(scores, pairs, top)
    hits, wanted = hits[wanted > 0], wanted[wanted > 0]
    gain = 1 / torch.arange(2, hits.shape[1] + 2, device=scores.device).log2()  # there may be fewer than `top`
    best = gain.cumsum(0)[wanted.clamp(max=len(gain)) - 1]
    return {
        f"recall@{top}": (hits.sum(dim=1) / wanted).mean().item(),
        f"ndcg@{top}": ((hits * gain).sum(dim=1) / best).mean().item(),
    }


def found_pairs(scores: Tensor, pairs: Tensor, top: int = TOP) -> Tensor:
    """(num_pairs,) bool: the film is among the first `top` of the user."""
    best = scores.sort(dim=1, descending=True, stable=True).indices[:, :top]
    return (best[pairs[:, 0]] == pairs[:, 1:]).any(dim=1)
