"""Alg. 1, lines 10 and 11: p and t of a batch (Eq. 12), and the losses that move g (Eq. 8)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from dgl import ops
from torch import Tensor

from dgl_lara.attribution.monte_carlo import signed
from dgl_lara.attribution.mutual_information import mi_value
from dgl_lara.explainer.network import Explainer, Surroundings, pair_scores
from dgl_lara.game.game import Game
from dgl_lara.game.players import find
from dgl_lara.game.removal import take_graphs
from dgl_lara.training.coalitions import Lesson, RunningMean
from dgl_lara.training.subgraphs import explainer_nodes


@dataclass(frozen=True, eq=False)
class View:
    """The whole graph as g sees it, made once."""

    around: Surroundings
    inputs: Tensor  # (num_nodes, in_dim)


def embed(
    explainer: Explainer, game: Game, view: View, targets: Tensor, everything: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Line 10: p of the surroundings, t of the targets, and which nodes the rows of p are."""
    if everything:
        p, t = explainer(view.around, view.inputs)
        return p, t[targets], torch.arange(game.graph.num_nodes(), device=targets.device)
    if game.task == "graph":
        _, nodes = take_graphs(game.graph, targets)
        p, t = explainer(view.around.induced(nodes, view.around.sizes[targets]), view.inputs[nodes])
        return p, t, nodes
    nodes = explainer_nodes(game.graph, targets, game.hops + explainer.config.layers)
    p, t = explainer(view.around.induced(nodes, view.around.sizes), view.inputs[nodes])
    return p, t[find(targets, nodes)[0]], nodes


def predicted_differences(
    explainer: Explainer, game: Game, view: View, lesson: Lesson, p: Tensor, t: Tensor, nodes: Tensor
) -> Tensor:
    """(num_masks, num_targets, num_classes): sum_j sigma_j phi_hat(j -> i, c)."""
    everything = len(nodes) == len(lesson.nodes) == game.graph.num_nodes()
    if everything and explainer.config.walks and game.task == "node":
        return walked_differences(explainer, view, lesson, p, t)
    return paired_differences(explainer, game, lesson, p, t, nodes)


def paired_differences(explainer: Explainer, game: Game, lesson: Lesson, p: Tensor, t: Tensor, nodes: Tensor) -> Tensor:
    """From explicit (target, player) pairs."""
    players = game.players(lesson.targets)
    place, _ = find(players.player, nodes)
    products = explainer.pair_products(p[place], t[players.row], explainer.gate(game.graph, players))
    scores = products @ explainer.all_class_weights().T  # (num_pairs, num_classes)
    sigma = lesson.sigma(players.player)  # (num_masks, num_pairs)
    total = torch.zeros(len(sigma), len(players.targets), scores.shape[1], device=p.device)
    return total.index_add(1, players.row, sigma.unsqueeze(2) * scores)


def walked_differences(explainer: Explainer, view: View, lesson: Lesson, p: Tensor, t: Tensor) -> Tensor:
    """The same for the walk gate on the whole graph, without pairs: <sum_d Â^d (sigma p^(d)), t^(d)>.

    Each distance d sends its signed sources d steps along the edges; memory grows with nodes, not with pairs.
    """
    dim, terms = explainer.config.dim, explainer.config.terms
    masks, count = len(lesson.keep), len(p)
    signs = signed(lesson.keep).T.unsqueeze(2)  # (num_nodes, num_masks, 1)
    moving = (signs * p.unsqueeze(1)).view(count, masks, terms, dim)
    arrived = [moving[:, :, 0][lesson.targets]]
    for step in range(1, terms):
        flat = moving[:, :, 1:].reshape(count, -1) * view.around.scale
        moving = (ops.copy_u_sum(view.around.looped, flat) * view.around.scale).view(count, masks, terms - step, dim)
        arrived.append(moving[:, :, 0][lesson.targets])
    gathered = torch.cat(arrived, dim=2) * t.unsqueeze(1)  # (num_targets, num_masks, terms * dim)
    return (gathered @ explainer.all_class_weights().T).transpose(0, 1)


def least_squares_loss(explainer: Explainer, game: Game, lesson: Lesson, predicted: Tensor) -> Tensor:
    """E[(d - sum_j sigma_j phi_hat_j)^2] = Eq. 8 + a constant, because E[sigma sigma^T] = I.

    Half the weight is on the explained class, half on the mean over all classes where g knows them.
    """
    wanted = lesson.differences(game)
    classes = game.explained_class[lesson.targets].expand(len(wanted), -1).unsqueeze(2)
    if explainer.class_weight is None:
        return ((wanted.gather(2, classes) - predicted) / explainer.unit).square().mean()
    error = ((wanted - predicted) / explainer.unit).square()
    return 0.5 * error.gather(2, classes).mean() + 0.5 * error.mean()


def running_mean_loss(
    explainer: Explainer, game: Game, lesson: Lesson, table: RunningMean, objective: str, embedded: tuple
) -> Tensor:
    """Eq. 8 with the estimate of Eq. 10 (or the mutual-information value) in the place of phi."""
    p, t, nodes = embedded
    players = game.players(lesson.targets)
    classes = game.explained_class[lesson.targets]
    sigma = lesson.sigma(players.player)
    if objective == "running-mean":
        d = lesson.differences(game).gather(2, classes.expand(len(sigma), -1).unsqueeze(2)).squeeze(2)
        sample = (sigma * d[:, players.row]).mean(0)
    else:
        full = game.logits[lesson.targets]
        inside, outside = mi_value(full, lesson.inside), mi_value(full, lesson.outside)
        sample = torch.where(sigma > 0, inside[:, players.row], outside[:, players.row]).mean(0)
    wanted = table.update(players, sample)
    local = replace(players, player=find(players.player, nodes)[0], num_nodes=len(nodes))
    gate = explainer.gate(game.graph, players)
    scores = pair_scores(explainer, p, explainer.for_class(t, classes), local, gate)
    return ((scores - wanted) / explainer.unit).square().mean()
