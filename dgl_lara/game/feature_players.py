"""Columns of the features as players: which of the inputs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from dgl_lara._util.randomness import generator
from dgl_lara.game.player_index import Players
from dgl_lara.game.player_set import GameContext, Grouping, PlayerSet
from dgl_lara.game.removal import MaskedGraphs, copies
from dgl_lara.game.task import NodeNames
from dgl_lara.graphs.indexing import lookup_sorted, ragged
from dgl_lara.graphs.subgraph import EgoBatch, SharedSubgraph

MAX_SHARED_COLUMNS = 256  # for wider features only columns that are present near a target are players
_BASELINES = {"zero": "zero", "mean": "their mean", "rows": "the values of other rows"}
NUM_BASELINE_ROWS = 4


class FeaturePlayers(PlayerSet):
    """Columns, or groups of columns, of the features.

    A removed column is replaced by its baseline: zero, its mean, or the values of a few rows, over which logits are
    averaged. It is replaced in everything that reaches the target, or in the target alone. For wide features only
    columns that differ from the baseline in the target's receptive field are players, because all others have phi = 0.

    Args:
        context: Graph, features and task of the game.
        of: "field" or "target", the nodes that lose a column.
        baseline: "zero", "mean" or "rows".
        groups: Columns of each player. None means one column per player.
        group_names: Names of the groups.
    """

    name = "features"
    noun = "feature"
    in_graph = False
    removal = "To remove a player is to replace its column by the baseline. The graph is unchanged."

    def __init__(
        self,
        context: GameContext,
        of: str = "field",
        baseline: str = "zero",
        groups: tuple[tuple[int, ...], ...] | None = None,
        group_names: Sequence[str] | None = None,
    ) -> None:
        super().__init__(context)
        self.group_names = group_names
        self.target_only, self.baseline, self.groups = of == "target" and self.task.has_distances, baseline, groups
        self.supports_shared_masks = not self.target_only
        self.num_baselines = len(self.baseline_rows)
        if self._all_columns_play and self.task.num_endpoints == 1:
            self.num_table_columns = self.count

    @property
    def description(self) -> str:
        what = "columns" if self.groups is None else "groups of columns"
        where = "of the target alone" if self.target_only else "of all that reaches the target"
        return f"{what} of the features {where}, removed by {_BASELINES[self.baseline]}"

    @property
    def num_columns(self) -> int:
        return self.features.shape[1]

    @cached_property
    def player_of_column(self) -> Tensor:
        """Return (num_columns,) the player of each column, -1 for none."""
        if self.groups is None:
            return torch.arange(self.num_columns, device=self.features.device)
        group = torch.full((self.num_columns,), -1, device=self.features.device)
        for number, columns in enumerate(self.groups):
            group[list(columns)] = number
        return group

    @cached_property
    def baseline_rows(self) -> Tensor:
        """Return (num_baselines, num_columns) the values that replace removed columns."""
        if self.baseline == "zero":
            return torch.zeros_like(self.features[:1])
        if self.baseline == "mean":
            return self.features.float().mean(0, keepdim=True).to(self.features)
        drawn = torch.randperm(len(self.features), generator=generator(0))[:NUM_BASELINE_ROWS]
        return self.features[drawn.to(self.features.device)]

    @property
    def _all_columns_play(self) -> bool:
        """Return whether all columns are players of every target."""
        return self.num_columns <= MAX_SHARED_COLUMNS

    def deviation(self, nodes: Tensor | slice, columns: slice = slice(None)) -> Tensor:
        """Return (num_nodes, num_columns) how much features differ from their mean baseline."""
        return (self.features[nodes, columns] - self.baseline_rows[:, columns].mean(0)).float()

    def columns_of(self, players: Tensor) -> tuple[Tensor, Tensor]:
        """Return (index in `players`, column) of every column of these players."""
        if self.groups is None:
            return torch.arange(len(players), device=players.device), players
        order = torch.argsort(self.player_of_column, stable=True)
        sizes = torch.bincount(self.player_of_column[self.player_of_column >= 0], minlength=self.count)
        first = int((self.player_of_column < 0).sum()) + sizes.cumsum(0) - sizes
        pair, within = ragged(sizes[players])
        return pair, order[first[players][pair] + within]

    @property
    def count(self) -> int:
        return self.num_columns if self.groups is None else len(self.groups)

    def cost_bound(self) -> Tensor:
        return super().cost_bound().clamp(min=self.count)

    def players(self, targets: Tensor) -> Players:
        if self._all_columns_play:
            counts = torch.full_like(targets, self.count)
            player = torch.arange(self.count, device=targets.device).repeat(len(targets))
        else:
            reach = self.task.reach(self.graph, targets, 0 if self.target_only else self.hops)
            nodes, index = torch.unique(reach.player, return_inverse=True)
            present = self._present(nodes)
            pair, within = ragged(present.counts[index])
            start = present.indptr[index][pair]
            key = torch.unique(reach.row[pair] * self.count + present.player[start + within])
            player = key % self.count
            counts = torch.bincount(torch.div(key, self.count, rounding_mode="floor"), minlength=len(targets))
        return Players(targets, counts, player, torch.zeros_like(player), self.count, self.name)

    def _present(self, nodes: Tensor) -> Players:
        """Return the players that differ from the baseline at each node."""
        differs = (self.features[nodes].unsqueeze(1) != self.baseline_rows).any(1)
        node, column = differs.nonzero().unbind(1)
        player = self.player_of_column[column]
        key = torch.unique((node * self.count + player)[player >= 0])
        counts = torch.bincount(torch.div(key, self.count, rounding_mode="floor"), minlength=len(nodes))
        return Players(nodes, counts, key % self.count, torch.zeros_like(key), self.count, self.name)

    def batch(self, targets: Tensor, context: int) -> SharedSubgraph | EgoBatch:
        if self.target_only:  # each needs a graph of its own, because its neighbours need its features
            return self.task.ego_batch(self.graph, targets, context)
        return super().batch(targets, context)

    def ids(self, batch: SharedSubgraph | EgoBatch) -> Tensor:
        return torch.arange(self.count, device=self.features.device)

    def expand_mask(self, batch: SharedSubgraph | EgoBatch, keep: Tensor) -> Tensor:
        stays = torch.where(self.player_of_column < 0, True, keep[:, self.player_of_column.clamp(min=0)])
        return stays.repeat(1, batch.num_targets) if isinstance(batch, EgoBatch) else stays

    def match_units(self, batch: EgoBatch, players: Players) -> tuple[Tensor, Tensor]:
        row = torch.arange(batch.num_targets, device=self.player_of_column.device).unsqueeze(1)
        index, found = lookup_sorted((row * self.count + self.player_of_column).flatten(), players.key)
        return index, found & (self.player_of_column >= 0).repeat(batch.num_targets)

    def remove(self, batch: SharedSubgraph | EgoBatch, features: Tensor, keep: Tensor) -> MaskedGraphs:
        """Return copies of the graph with removed columns replaced, per ego graph if it is an ego batch."""
        masks, nodes = len(keep), batch.graph.num_nodes()
        if isinstance(batch, EgoBatch):
            stays = keep.view(masks, batch.num_targets, self.num_columns)[:, batch.row]  # (masks, nodes, width)
        else:
            stays = keep.unsqueeze(1).expand(masks, nodes, self.num_columns)
        if self.target_only:
            others = torch.ones(nodes, 1, dtype=torch.bool, device=keep.device)
            others[torch.cat(self.task.target_node_indices(batch))] = False
            stays = stays | others
        baseline = self.baseline_rows.to(features).repeat(masks, 1).unsqueeze(1)  # (masks * repeats, 1, width)
        if self.num_baselines > 1:
            stays = stays.repeat_interleave(self.num_baselines, dim=0)
        changed = torch.where(stays, features, baseline).view(-1, self.num_columns)
        kept = keep.new_ones(masks * self.num_baselines, nodes)
        return MaskedGraphs(copies(batch.graph, len(kept)), changed, kept)

    def player_inputs(self, nodes: Tensor) -> Tensor:
        """Return (count, 2) log mean size and log deviation of columns, averaged over a group."""
        x = self.features.float()
        of_column = torch.stack([x.abs().mean(0), x.std(0, unbiased=False)], dim=1).add(1e-6).log()
        is_player = self.player_of_column >= 0
        total = of_column.new_zeros(self.count, 2).index_add(0, self.player_of_column[is_player], of_column[is_player])
        sizes = torch.bincount(self.player_of_column[is_player], minlength=self.count).clamp(min=1)
        return total / sizes.unsqueeze(1)

    def names(self, players: Players, node_names: NodeNames, own: Sequence[str] | None) -> list[str]:
        return [f"x{player}" if own is None else str(own[player]) for player in players.player.tolist()]

    def display_names(self, columns: Sequence[str] | None) -> Sequence[str] | None:
        return columns if self.group_names is None else self.group_names

    def value_of(self, players: Tensor, nodes: Tensor) -> str:
        _, columns = self.columns_of(players)
        if len(columns) > 1:
            return f"{len(columns)} columns"
        return f"{float(self.features[nodes][:, columns].float().mean()):.3g}"

    def own_groups(self, players: Players, names: Sequence[str] | None) -> Grouping | None:
        own = names or [f"x{number}" for number in range(self.count)]
        return Grouping("feature", players.player, list(map(str, own)))

    def column_of(self, player: int) -> int | None:
        _, columns = self.columns_of(torch.tensor([player], device=self.features.device))
        return int(columns) if len(columns) == 1 else None
