"""Edges as players: which connection made the difference."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from dgl_lara.blackbox.hetero_index import HeteroIndex
from dgl_lara.blackbox.input_adapter import EDGE_ID
from dgl_lara.errors import InputError
from dgl_lara.game.player_index import Players, in_neighborhood
from dgl_lara.game.player_set import GameContext, Grouping, PlayerSet
from dgl_lara.game.removal import MaskedGraphs, remove_edges
from dgl_lara.game.task import NodeNames
from dgl_lara.graphs.graph import Graph
from dgl_lara.graphs.indexing import in_edge_ids, in_edges, lookup_sorted
from dgl_lara.graphs.subgraph import EgoBatch, SharedSubgraph


class EdgePlayers(PlayerSet):
    """Edges of the receptive field: those into nodes at most K - 1 hops away, or all edges of a graph.

    Both directions of a pair of nodes are one player unless `directed`. Parallel edges are one player. Self-loops are
    no players. A removed edge leaves all nodes. The distance of an edge is that of its farther node.
    """

    name = "edges"
    noun = "edge"
    removal = "To remove a player is to take the edge away. All nodes stay, with their features."

    def samples_after_update(self, samples: object) -> None:
        return None  # edges get new numbers

    def __init__(self, context: GameContext, directed: bool = False) -> None:
        super().__init__(context)
        self.directed = directed
        self.walk_kernel = "edges" if self.task.has_distances else None
        if self.task.has_distances and self.hops < 1:
            raise InputError("edges.no_hops")

    @property
    def description(self) -> str:
        which = "each direction by itself" if self.directed else "both directions together"
        if not self.task.has_distances:
            return f"all edges of the graph, {which}"
        return f"the edges that can reach it in {self.hops} step{'s' * (self.hops > 1)}, {which}"

    @cached_property
    def _keys(self) -> Tensor:
        """Return (count,) the key of each player, ascending."""
        src, dst = self.graph.edges()
        return torch.unique(self._key(src, dst)[src != dst])

    def _key(self, src: Tensor, dst: Tensor) -> Tensor:
        if not self.directed:
            src, dst = torch.minimum(src, dst), torch.maximum(src, dst)
        return src * self.graph.num_nodes() + dst

    @property
    def count(self) -> int:
        return len(self._keys)

    def endpoints(self, players: Tensor) -> tuple[Tensor, Tensor]:
        """Return source and destination of each player, the lower node first if undirected."""
        keys, nodes = self._keys[players], self.graph.num_nodes()
        return torch.div(keys, nodes, rounding_mode="floor"), keys % nodes

    def player_of_edges(self, src: Tensor, dst: Tensor) -> Tensor:
        """Return the player of each edge of the full graph by its nodes, -1 for a self-loop."""
        if not self.count:
            return torch.full_like(src, -1)
        return torch.where(src == dst, -1, lookup_sorted(self._key(src, dst), self._keys)[0])

    @cached_property
    def player_of_in_edges(self) -> Tensor:
        """Return the player of every in-edge, node by node, in the order of `in_edges`."""
        pair, sources = in_edges(self.graph, torch.arange(self.graph.num_nodes(), device=self.graph.device))
        return self.player_of_edges(sources, pair)

    def in_edges(self, nodes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return (index in `nodes`, source node, player) of every player that enters one of the nodes."""
        pair, sources = in_edges(self.graph, nodes)
        player = self.player_of_edges(sources, nodes[pair])
        is_player = player >= 0
        return pair[is_player], sources[is_player], player[is_player]

    def in_edge_ids(self, nodes: Tensor) -> Tensor:
        """Return the index in the graph's edge list of each edge of `in_edges`."""
        pair, sources = in_edges(self.graph, nodes)
        return in_edge_ids(self.graph, nodes)[self.player_of_edges(sources, nodes[pair]) >= 0]

    def players(self, targets: Tensor) -> Players:
        heads = self.task.reach(self.graph, targets, self.hops - 1)
        pair, _, player = self.in_edges(heads.player)
        key, index = torch.unique(heads.row[pair] * self.count + player, return_inverse=True)
        hop = heads.hop[pair] + int(self.task.has_distances)
        nearest = torch.full_like(key, self.hops).scatter_reduce(0, index, hop, "amin")
        count = max(self.count, 1)
        counts = torch.bincount(torch.div(key, count, rounding_mode="floor"), minlength=len(targets))
        return Players(targets, counts, key % count, nearest, self.count, self.name)

    def _of_graph(self, graph: Graph, nodes: Tensor) -> Tensor:
        """Return the player of each edge of a subgraph."""
        src, dst = graph.edges()
        return self.player_of_edges(nodes[src], nodes[dst])

    def ids(self, batch: SharedSubgraph | EgoBatch) -> Tensor:
        if batch.graph is self.graph:
            return torch.arange(self.count, device=self.graph.device)
        found = torch.unique(self._of_graph(batch.graph, batch.nodes))
        return found[found >= 0]

    def expand_mask(self, batch: SharedSubgraph | EgoBatch, keep: Tensor) -> Tensor:
        player = self._of_graph(batch.graph, batch.nodes)
        if batch.graph is self.graph:
            stays = player < 0
            index = player.clamp(min=0)
        else:
            index, _ = lookup_sorted(player, self.ids(batch))
            stays = (player < 0) | ~self._plays(batch)[index]
        if not keep.shape[1]:
            return keep.new_ones(len(keep), len(player))
        return keep[:, index] | stays

    def _plays(self, batch: SharedSubgraph | EgoBatch) -> Tensor:
        """Return which of `ids` are players. Edges at the boundary are there for degrees only."""
        ids = self.ids(batch)
        if not self.task.has_distances:
            return torch.ones_like(ids, dtype=torch.bool)
        src, dst = batch.graph.edges()
        inner = in_neighborhood(batch.graph, torch.cat(self.task.target_node_indices(batch)), self.hops - 1).player
        near = torch.zeros(batch.graph.num_nodes(), dtype=torch.bool, device=ids.device)
        near[inner] = True
        is_player = torch.zeros_like(ids, dtype=torch.bool)
        enters = near[dst] & (src != dst)
        is_player[lookup_sorted(self.player_of_edges(batch.nodes[src[enters]], batch.nodes[dst[enters]]), ids)[0]] = (
            True
        )
        return is_player

    def match_units(self, batch: EgoBatch, players: Players) -> tuple[Tensor, Tensor]:
        src, dst = batch.graph.edges()
        player = self.player_of_edges(batch.nodes[src], batch.nodes[dst])
        index, found = lookup_sorted(batch.row[dst] * max(self.count, 1) + player, players.key)
        return index, found & (player >= 0)

    def remove(self, batch: SharedSubgraph | EgoBatch, features: Tensor, keep: Tensor) -> MaskedGraphs:
        return remove_edges(batch.graph, features, keep)

    def player_inputs(self, nodes: Tensor) -> Tensor:
        one, other = (nodes[end] for end in self.endpoints(torch.arange(self.count, device=nodes.device)))
        return torch.cat([one + other, (one - other).abs()], dim=1)

    def noun_in(self, molecule: bool) -> str:
        return "bond" if molecule else self.noun

    @property
    def arrow(self) -> str:
        return "→" if self.directed else "–"

    def names(self, players: Players, node_names: NodeNames, own: Sequence[str] | None) -> list[str]:
        return [self.arrow.join(pair) for pair in zip(*map(node_names, self.endpoints(players.player)), strict=True)]

    def groups_by_node(self, players: Players, by: str, codes: Tensor, names: list[str]) -> Grouping | None:
        source, destination = (codes[end] for end in self.endpoints(players.player))
        if not self.directed:
            source, destination = torch.minimum(source, destination), torch.maximum(source, destination)
        pairs = [f"{first}{self.arrow}{second}" for first in names for second in names]
        return Grouping(f"{by} of both ends", source * len(names) + destination, pairs)

    def groups_by_type(self, players: Players, types: HeteroIndex) -> Grouping | None:
        """Return players by relation. An undirected pair can have several relations."""
        player = self.player_of_edges(*self.graph.edges())
        is_player = player >= 0
        belongs = torch.zeros(self.count, len(types.relations), dtype=torch.bool, device=player.device)
        belongs[player[is_player], types.relation_of(self.graph.edata[EDGE_ID])[is_player]] = True
        ids, index = torch.unique(players.player, return_inverse=True)
        sets, code = torch.unique(belongs[ids], dim=0, return_inverse=True)
        short = types.relation_names
        names = [" + ".join(short[relation] for relation in row.nonzero().flatten().tolist()) for row in sets]
        return Grouping("relation", code[index], names)
