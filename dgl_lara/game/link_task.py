"""Link tasks: a target is a pair of nodes, and what can reach either of them can reach it.

Both nodes together are the target and one player. Without them f is evaluated on two isolated null nodes. A shared mask
is valid for the pairs whose nodes are both kept or both removed, which is half of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from dgl_lara.blackbox.call import Model
from dgl_lara.blackbox.hetero import to_homogeneous
from dgl_lara.blackbox.hetero_index import Relation
from dgl_lara.errors import InputError
from dgl_lara.game.node_task import NodeTask, khop_batch
from dgl_lara.game.player_index import Players, in_neighborhood
from dgl_lara.game.removal import MaskedGraphs, ego_graphs
from dgl_lara.game.task import EndpointScorer, Task
from dgl_lara.game.walks import walk_counts
from dgl_lara.graphs.graph import Graph
from dgl_lara.graphs.indexing import lookup_sorted
from dgl_lara.graphs.subgraph import EgoBatch, SharedSubgraph


class LinkTask(Task):
    """Targets are pairs of nodes."""

    name = "link"
    option = "--pair"
    has_distances = True
    joint_name = "both ends"
    num_endpoints = 2
    min_valid_masks = 2  # from which a variance can be read
    value = "output"
    sampled_pairs = 300
    # half of the masks are valid for a pair, and a score is linear in either endpoint
    settings = {"masks": 4, "dim": 32, "hidden": 128}

    def __init__(self, pairs: Tensor | None = None) -> None:
        """Store the pairs.

        Args:
            pairs: (num_targets, 2) nodes. None means no pairs are known yet.
        """
        self.pairs = torch.empty(0, 2, dtype=torch.long) if pairs is None else pairs

    def check_pair_options(self, pairs: Any, relation: Any, leave_out: bool) -> None:
        pass

    def check_requested_links(self, links: Tensor | None) -> None:
        if links is None:
            raise InputError("request.links_missing")

    def homogeneous_inputs(
        self, model: Callable, graph: Graph, features: Any, target_type: str | None, relation: str | Relation | None
    ) -> tuple[Model, Graph, Tensor, Task]:
        start, _, end = _full_relation(graph, relation)
        return *to_homogeneous(model, graph, features, start, end), self

    def num_targets(self, graph: Graph) -> int:
        return len(self.pairs)

    def endpoints(self, targets: Tensor) -> list[Tensor]:
        return list(self.pairs[targets].unbind(1))

    def reach(self, graph: Graph, targets: Tensor, hops: int) -> Players:
        sides = [in_neighborhood(graph, nodes, hops) for nodes in self.endpoints(targets)]
        key, index = torch.unique(torch.cat([side.key for side in sides]), return_inverse=True)
        hop = torch.full_like(key, hops).scatter_reduce(0, index, torch.cat([side.hop for side in sides]), "amin")
        nodes = graph.num_nodes()
        counts = torch.bincount(torch.div(key, nodes, rounding_mode="floor"), minlength=len(targets))
        return Players(targets, counts, key % nodes, hop, nodes)

    def cost_bound(self, graph: Graph, hops: int) -> Tensor:
        return walk_counts(graph, hops)[self.pairs].sum(1)

    def target_nodes(self, graph: Graph, targets: Tensor) -> Tensor:
        return torch.unique(self.pairs[targets])

    def expand_to_nodes(self, graph: Graph, rows: Tensor) -> Tensor:
        """Return no columns, because f has no outputs for single nodes."""
        return torch.empty(graph.num_nodes(), 0, device=rows.device)

    def batch(self, graph: Graph, targets: Tensor, hops: int, context: int) -> SharedSubgraph:
        ends = self.target_nodes(graph, targets)
        part = khop_batch(graph, ends, context)
        bystander = None
        if context != hops:
            bystander = ~torch.isin(part.nodes, khop_batch(graph, ends, hops).nodes)
        return SharedSubgraph(part.graph, part.nodes, targets, _rows(targets), bystander)

    def full_batch(self, graph: Graph, targets: Tensor) -> SharedSubgraph:
        return SharedSubgraph(graph, torch.arange(graph.num_nodes(), device=targets.device), targets, _rows(targets))

    def ego_batch(self, graph: Graph, targets: Tensor, hops: int, inner: int | None = None) -> EgoBatch:
        near, num_nodes = self.reach(graph, targets, hops), graph.num_nodes()
        return EgoBatch(
            ego_graphs(graph, near, inner), near.player, near.row, near.hop, _rows(targets), num_nodes, targets
        )

    def endpoint_indices(self, batch: SharedSubgraph | EgoBatch) -> tuple[Tensor, ...]:
        sides = self.endpoints(batch.targets)
        if isinstance(batch, EgoBatch):
            return tuple(lookup_sorted(_rows(nodes) * batch.num_nodes + nodes, batch.key)[0] for nodes in sides)
        return tuple(lookup_sorted(nodes, batch.nodes)[0] for nodes in sides)

    def predict(self, f: Model, batch: SharedSubgraph | EgoBatch, masked: MaskedGraphs, null: Tensor) -> Tensor:
        u, v = self.endpoint_indices(batch)
        is_kept = masked.kept[:, u] & masked.kept[:, v]  # (num_masks, num_targets)
        index = masked.kept.flatten().cumsum(0).view_as(masked.kept) - 1
        logits = null.expand(*is_kept.shape, -1).clone()
        if is_kept.any():
            logits[is_kept] = f(masked.graph, masked.features, index[:, u][is_kept], index[:, v][is_kept])
        return logits

    def single_endpoints(self, nodes: Tensor) -> tuple[Tensor, ...]:
        return nodes, nodes

    def target_embeddings(self, pooled: Tensor, targets: Tensor, nodes: Tensor | None) -> Tensor:
        """Return t of each endpoint, multiplied by what g returns for the other one."""
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
        """Return the players. The second endpoint plays under the id of the first."""
        stays = near.player != self.pairs[near.targets, 1][near.row]
        counts = torch.bincount(near.row[stays], minlength=len(near.targets))
        return replace(near, counts=counts, player=near.player[stays], hop=near.hop[stays])

    def player_id(self, targets: Tensor, nodes: Tensor) -> Tensor:
        first, second = self.pairs[targets].unbind(1)
        return torch.where(nodes == second, first, nodes)

    def players_text(self, hops: int) -> str:
        return f"the {hops}-hop in-neighbourhoods of both ends; the two ends themselves are one player"

    def subject(self, target_names: Sequence[str]) -> str:
        return f"The link from {target_names[0]} to {target_names[1]}"

    def value_name(self, value: str) -> str:
        return "score" if value == "output" else value

    def owners(self, graph: Graph, players: Players, hops: int, target_names: Sequence[str]) -> list[str]:
        """Return the end that each player is nearer to."""
        ends = self.endpoints_of(int(players.targets)).to(players.player.device)
        near = in_neighborhood(graph, ends, hops)
        hop = torch.full((2, graph.num_nodes()), hops + 1, device=ends.device)
        hop[near.row, near.player] = near.hop
        second = hop[0, players.player] > hop[1, players.player]
        return [f"{target_names[number]}'s" for number in second.long().tolist()]

    def node_columns(self, targets: Tensor) -> dict[str, Tensor]:
        pairs = self.pairs.to(targets.device)[targets]
        return {"target_u": pairs[:, 0], "target_v": pairs[:, 1]}


class PairIndex:
    """Finds pairs in a list of pairs."""

    def __init__(self, pairs: Tensor, num_nodes: int) -> None:
        self.num_nodes = num_nodes
        self.keys, self.order = self._keys_of(pairs).sort()

    def lookup(self, pairs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the position of each pair in the list, and whether it is there, (num_pairs,) each."""
        if not len(self.keys):
            return torch.zeros_like(pairs[:, 0]), torch.zeros_like(pairs[:, 0], dtype=torch.bool)
        position, is_known = lookup_sorted(self._keys_of(pairs), self.keys)
        return self.order[position], is_known

    def _keys_of(self, pairs: Tensor) -> Tensor:
        return pairs[:, 0] * self.num_nodes + pairs[:, 1]


def _rows(targets: Tensor) -> Tensor:
    return torch.arange(len(targets), device=targets.device)


def _full_relation(graph: Graph, relation: str | Relation | None) -> Relation:
    """Return (type, name, type) of the relation that pairs stand for."""
    known = ", ".join(f"'{name}'" for _, name, _ in graph.canonical_etypes)
    if relation is None:
        raise InputError("relation.missing", known=known)
    if isinstance(relation, str):
        found = [each for each in graph.canonical_etypes if each[1] == relation]
        if len(found) > 1:
            raise InputError("relation.ambiguous", got=relation, first=found[0])
        if not found:
            raise InputError("relation.unknown", known=known, got=relation)
        return found[0]
    full = tuple(map(str, relation)) if isinstance(relation, Sequence) else ()
    if len(full) != 3 or full[0] not in graph.ntypes or full[2] not in graph.ntypes:
        raise InputError("relation.types", types=", ".join(graph.ntypes), got=relation)
    return full[0], full[1], full[2]


def checked_pairs(values: object, num_sources: int, num_destinations: int, device: torch.device) -> Tensor:
    """Return (num_pairs, 2) pairs as whole numbers.

    Args:
        values: What a user gave as pairs.
        num_sources: Number of nodes that can be first.
        num_destinations: Number of nodes that can be second.
        device: Device of the result.

    Raises:
        InputError: "pairs.type", "pairs.none" or "pairs.range".
    """
    try:
        pairs = torch.as_tensor(values, device=device)
    except (ValueError, TypeError, RuntimeError, OverflowError) as error:
        raise InputError("pairs.type", got=error) from error
    if not pairs.numel():
        raise InputError("pairs.none")
    if pairs.dim() != 2 or pairs.shape[1] != 2 or pairs.is_floating_point() or pairs.dtype == torch.bool:
        raise InputError("pairs.type", got=f"{pairs.dtype} {tuple(pairs.shape)}")
    for column, count, word in ((0, num_sources, "first"), (1, num_destinations, "second")):
        wrong = pairs[(pairs[:, column] < 0) | (pairs[:, column] >= count)]
        if len(wrong):
            raise InputError("pairs.range", end=word, most=count - 1, got=tuple(wrong[0].tolist()))
    return pairs.long()
