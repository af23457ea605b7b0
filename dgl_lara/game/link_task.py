"""Targets are pairs of nodes: f gives a score for each. What can reach a pair is what can reach either end.

Both ends together are the target, and one player: they go together, and without them f says what it says of two
isolated nodes without features. So a score means what it means for a node. One mask over the whole graph is a coalition
for every pair whose ends it treats alike, half of them; of the others it says nothing (`NodePlayers.valid_masks`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import dgl
import torch
from dgl.dataloading import MultiLayerFullNeighborSampler
from torch import Tensor

from dgl_lara.blackbox.call import Model
from dgl_lara.errors import InputError
from dgl_lara.game.node_task import NodeTask, khop_batch
from dgl_lara.game.player_index import Players, in_neighborhood
from dgl_lara.game.removal import MaskedGraphs, ego_graphs
from dgl_lara.game.task import EndpointScorer, Task
from dgl_lara.game.walks import walk_counts
from dgl_lara.graphs.indexing import lookup_sorted
from dgl_lara.graphs.subgraph import EgoBatch, SharedSubgraph


class LinkTask(Task):
    name = "link"
    has_distances = True
    joint_name = "both ends"
    num_endpoints = 2
    min_valid_masks = 2  # from which a variance can be read
    value = "output"
    sampled_pairs = 300
    # half of the masks say nothing of a pair; a score is linear in either end, whose embeddings are as wide as f's own
    settings = {"masks": 4, "dim": 32, "hidden": 128}

    def __init__(self, pairs: Tensor | None = None) -> None:
        """`pairs`: (num_targets, 2) nodes; without them, the task as such, of which only what is said of all pairs can
        be asked."""
        self.pairs = torch.empty(0, 2, dtype=torch.long) if pairs is None else pairs

    def num_targets(self, graph: dgl.DGLGraph) -> int:
        return len(self.pairs)

    def num_rows(self, graph: dgl.DGLGraph) -> int:
        return len(self.pairs)

    def endpoints(self, targets: Tensor) -> list[Tensor]:
        return list(self.pairs[targets].unbind(1))

    def reach(self, graph: dgl.DGLGraph, targets: Tensor, hops: int) -> Players:
        sides = [in_neighborhood(graph, nodes, hops) for nodes in self.endpoints(targets)]
        key, place = torch.unique(torch.cat([side.key for side in sides]), return_inverse=True)
        hop = torch.full_like(key, hops).scatter_reduce(0, place, torch.cat([side.hop for side in sides]), "amin")
        nodes = graph.num_nodes()
        counts = torch.bincount(torch.div(key, nodes, rounding_mode="floor"), minlength=len(targets))
        return Players(targets, counts, key % nodes, hop, nodes)

    def cost_bound(self, graph: dgl.DGLGraph, hops: int) -> Tensor:
        return walk_counts(graph, hops)[self.pairs].sum(1)

    def target_nodes(self, graph: dgl.DGLGraph, targets: Tensor) -> Tensor:
        return torch.unique(self.pairs[targets])

    def expand_to_nodes(self, graph: dgl.DGLGraph, rows: Tensor) -> Tensor:
        """Nothing is said of single nodes."""
        return torch.empty(graph.num_nodes(), 0, device=rows.device)

    def batch(self, graph: dgl.DGLGraph, targets: Tensor, hops: int, context: int) -> SharedSubgraph:
        ends = self.target_nodes(graph, targets)
        part = khop_batch(graph, ends, context)
        bystander = None
        if context != hops:
            bystander = ~torch.isin(part.nodes, khop_batch(graph, ends, hops).nodes)
        return SharedSubgraph(part.graph, part.nodes, targets, _rows(targets), bystander)

    def full_batch(self, graph: dgl.DGLGraph, targets: Tensor) -> SharedSubgraph:
        return SharedSubgraph(graph, torch.arange(graph.num_nodes(), device=targets.device), targets, _rows(targets))

    def encoder_nodes(self, graph: dgl.DGLGraph, targets: Tensor, hops: int) -> Tensor:
        input_nodes, _, _ = MultiLayerFullNeighborSampler(hops).sample_blocks(graph, self.target_nodes(graph, targets))
        return input_nodes.sort().values

    def encoder_sizes(self, sizes: Tensor, targets: Tensor) -> Tensor:
        return sizes

    def ego_batch(self, graph: dgl.DGLGraph, targets: Tensor, hops: int, inner: int | None = None) -> EgoBatch:
        near, whole = self.reach(graph, targets, hops), graph.num_nodes()
        return EgoBatch(ego_graphs(graph, near, inner), near.player, near.row, near.hop, _rows(targets), whole, targets)

    def endpoint_indices(self, here: SharedSubgraph | EgoBatch) -> tuple[Tensor, ...]:
        sides = self.endpoints(here.targets)
        if isinstance(here, EgoBatch):
            return tuple(lookup_sorted(_rows(nodes) * here.num_nodes + nodes, here.key)[0] for nodes in sides)
        return tuple(lookup_sorted(nodes, here.nodes)[0] for nodes in sides)

    def predict(self, f: Model, here: SharedSubgraph | EgoBatch, left: MaskedGraphs, null: Tensor) -> Tensor:
        u, v = self.endpoint_indices(here)
        there = left.kept[:, u] & left.kept[:, v]  # (num_masks, num_targets)
        place = left.kept.flatten().cumsum(0).view_as(left.kept) - 1
        answers = null.expand(*there.shape, -1).clone()
        if there.any():
            answers[there] = f(left.graph, left.features, place[:, u][there], place[:, v][there])
        return answers

    def mark_singles(self, graph: dgl.DGLGraph) -> dgl.DGLGraph:
        return graph

    def pool(self, sizes: Tensor, t: Tensor) -> Tensor:
        return t

    def target_embeddings(self, pooled: Tensor, targets: Tensor, nodes: Tensor | None) -> Tensor:
        """Each end's t, turned by what g says of the other end."""
        u, v = (side if nodes is None else lookup_sorted(side, nodes)[0] for side in self.endpoints(targets))
        t, other = pooled.chunk(2, dim=1)
        return torch.cat([t[u] * other[v], t[v] * other[u]], dim=1)

    @property
    def endpoint_task(self) -> Task:
        return NodeTask()

    def sum_over_endpoints(
        self, game: Any, targets: Tensor, t: Tensor, score: EndpointScorer, players: Players | None = None
    ) -> tuple[Players, Tensor]:
        players = game.players(targets) if players is None else players
        total = None
        for nodes, own in zip(self.endpoints(targets), t.chunk(2, dim=1), strict=True):
            near, scores = score(game.endpoint_game, nodes, own.contiguous(), None)
            total = scores.new_zeros(len(players.player), *scores.shape[1:]) if total is None else total
            total = total.index_add(0, game.player_set.pair_index(players, near), scores)
        assert total is not None
        return players, total

    def check_embedding(self, name: str) -> None:
        if name == "single":
            raise InputError("embedding.single_link")

    def players_among(self, near: Players) -> Players:
        """The second end plays under the number of the first."""
        stays = near.player != self.pairs[near.targets, 1][near.row]
        counts = torch.bincount(near.row[stays], minlength=len(near.targets))
        return replace(near, counts=counts, player=near.player[stays], hop=near.hop[stays])

    def player_id(self, targets: Tensor, nodes: Tensor) -> Tensor:
        first, second = self.pairs[targets].unbind(1)
        return torch.where(nodes == second, first, nodes)

    def is_target(self, players: Players) -> Tensor:
        if players.player_type != "nodes":
            return torch.zeros_like(players.player, dtype=torch.bool)
        first, second = (ends[players.row] for ends in self.pairs[players.targets].unbind(1))
        return (players.player == first) | (players.player == second)

    def in_motif(self, players: Players, motif: Tensor) -> Tensor:
        own = motif[self.pairs[players.targets, 0]][players.row]
        return (motif[players.player] == own) & (own >= 0)

    def player_noun(self, molecule: bool) -> str:
        return "neighbour"

    def node_ids(self, graph: dgl.DGLGraph, target: Tensor, nodes: Tensor) -> Sequence[int]:
        return nodes.tolist()

    def players_text(self, hops: int) -> str:
        return f"the {hops}-hop in-neighbourhoods of both ends; the two ends themselves are one player"

    def subject(self, target_names: Sequence[str]) -> str:
        return f"The link from {target_names[0]} to {target_names[1]}"

    def value_name(self, value: str) -> str:
        return "score" if value == "output" else value

    def owners(self, graph: dgl.DGLGraph, players: Players, hops: int, target_names: Sequence[str]) -> list[str]:
        """Return the end that each player is nearer to."""
        ends = self.endpoints_of(int(players.targets)).to(players.player.device)
        near = in_neighborhood(graph, ends, hops)
        hop = torch.full((2, graph.num_nodes()), hops + 1, device=ends.device)
        hop[near.row, near.player] = near.hop
        second = hop[0, players.player] > hop[1, players.player]
        return [f"{target_names[number]}'s" for number in second.long().tolist()]

    def end_columns(self, targets: Tensor) -> dict[str, Tensor]:
        pairs = self.pairs.to(targets.device)[targets]
        return {"target_u": pairs[:, 0], "target_v": pairs[:, 1]}


def _rows(targets: Tensor) -> Tensor:
    return torch.arange(len(targets), device=targets.device)


def checked_pairs(given: object, sources: int, destinations: int, device: torch.device) -> Tensor:
    """(num_pairs, 2) whole numbers; one sentence for whatever else."""
    try:
        pairs = torch.as_tensor(given, device=device)
    except (ValueError, TypeError, RuntimeError, OverflowError) as error:
        raise InputError(f"pairs must be whole numbers, [(u, v), ...] ({error}).") from error
    if not pairs.numel():
        raise InputError("no pairs were given to explain.")
    if pairs.dim() != 2 or pairs.shape[1] != 2 or pairs.is_floating_point() or pairs.dtype == torch.bool:
        raise InputError(f"pairs must be whole numbers, [(u, v), ...] (got {pairs.dtype} {tuple(pairs.shape)}).")
    for column, count, word in ((0, sources, "first"), (1, destinations, "second")):
        wrong = pairs[(pairs[:, column] < 0) | (pairs[:, column] >= count)]
        if len(wrong):
            u, v = wrong[0].tolist()
            raise InputError(f"the {word} end of a pair must be a node 0..{count - 1} (got the pair ({u}, {v})).")
    return pairs.long()
