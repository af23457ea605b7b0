"""Alg. 1, lines 7 and 8: coalitions of a batch's surroundings, what f says of them, and their running mean (Eq. 10)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dgl_lara.attribution.monte_carlo import random_coalitions, signed
from dgl_lara.errors import LaraError
from dgl_lara.game.game import Game, to_values
from dgl_lara.game.players import Neighborhood, find
from dgl_lara.game.removal import take_graphs
from dgl_lara.training.subgraphs import attribution_subgraph


@dataclass(frozen=True, eq=False)
class Lesson:
    """Coalitions S of a batch's surroundings and what f says of every target under S and under the rest."""

    targets: Tensor  # (num_targets,)
    nodes: Tensor  # (num_local,) the nodes the masks speak of
    keep: Tensor  # (num_masks, num_local) bool: S
    inside: Tensor  # (num_masks, num_targets, num_classes): logits of f under S
    outside: Tensor  # the same under the complement of S

    def sigma(self, nodes: Tensor) -> Tensor:
        """(num_masks, len(nodes)): +1 where the node is in S, -1 where not."""
        place, _ = find(nodes, self.nodes)
        return signed(self.keep[:, place])

    def differences(self, game: Game) -> Tensor:
        """(num_masks, num_targets, num_classes): d(S) = f(S) - f(N without S)."""
        return to_values(self.inside, game.value) - to_values(self.outside, game.value)


def teach(game: Game, targets: Tensor, masks: int, drawn: torch.Generator, everything: bool) -> Lesson:
    """Lines 7, 8: draw coalitions and evaluate f on them. Two passes of f teach every target of the batch."""
    device = targets.device
    if game.task == "graph":
        chosen = targets.sort().values
        graph, nodes = take_graphs(game.graph, chosen)
        targets, places = chosen, torch.arange(len(chosen), device=device)
    elif everything:
        graph, nodes, places = game.graph, torch.arange(game.graph.num_nodes(), device=device), targets
    else:
        graph, nodes, places = attribution_subgraph(game.graph, targets, game.context)
    features = game.features[nodes]
    keep = random_coalitions(masks, len(nodes), drawn, device)
    # nodes that are nobody's player, there only for the degrees of the others, stay in both coalitions
    bystander = torch.zeros(len(nodes), dtype=torch.bool, device=device)
    if game.task == "node" and not everything and game.context > game.hops:
        bystander = ~torch.isin(nodes, attribution_subgraph(game.graph, targets, game.hops)[1])
    inside, outside = (game.logits_under(graph, features, side | bystander)[:, places] for side in (keep, ~keep))
    return Lesson(targets, nodes, keep, inside, outside)


class RunningMean:
    """Eq. 10: the running mean of the attribution, one number a (target, player) pair of the training targets."""

    MOST_PAIRS = 400_000_000

    def __init__(self, game: Game, targets: Tensor) -> None:
        self.targets = targets.sort().values
        counts = [game.players(part).counts for part in self.targets.split(4096)]
        self.first = torch.cat([targets.new_zeros(1), torch.cat(counts).cumsum(0)])
        if int(self.first[-1]) > self.MOST_PAIRS:
            raise LaraError(
                f"the running mean of Eq. 10 needs a number for each of {int(self.first[-1]):,} (target, player) "
                "pairs, too many to keep; use --objective least-squares, which needs none."
            )
        self.phi = torch.zeros(int(self.first[-1]), device=targets.device)
        self.visits = torch.zeros(len(self.targets), device=targets.device)

    def update(self, players: Neighborhood, sample: Tensor) -> Tensor:
        """phi(t) = (1 - 1/t) phi(t-1) + sample / t for the pairs of these targets; returns phi(t)."""
        row, _ = find(players.targets, self.targets)
        self.visits[row] += 1
        start = torch.repeat_interleave(self.first[row], players.counts)
        within = torch.arange(len(players.player), device=start.device) - torch.repeat_interleave(
            players.first[:-1], players.counts
        )
        pairs = start + within
        t = torch.repeat_interleave(self.visits[row], players.counts)
        self.phi[pairs] += (sample - self.phi[pairs]) / t
        return self.phi[pairs]
