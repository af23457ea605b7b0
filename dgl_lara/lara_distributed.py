"""`DistributedLara`: the method in processes that each hold one part of the graph. `lara_on` chooses the class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from dgl_lara._util.progress import status
from dgl_lara.blackbox.eval_mode import eval_mode
from dgl_lara.datasets.partitioned import PartitionedDataset
from dgl_lara.errors import InputError
from dgl_lara.game.distributed_game import DistributedGame
from dgl_lara.game.index import BANZHAF, Index, as_index
from dgl_lara.game.player_specs import PlayerSpec
from dgl_lara.graphs.remote import RemoteGraph
from dgl_lara.graphs.row_store import RowStore
from dgl_lara.inference.out_of_core import key_of
from dgl_lara.lara import LARA
from dgl_lara.lara_partitioned import PartitionedLara
from dgl_lara.training.config import TrainingConfig
from dgl_lara.training.distributed import DistributedBackend, part_graph
from dgl_lara.training.loop import train

if TYPE_CHECKING:
    from dgl_lara.blackbox.call import Model
    from dgl_lara.datasets.dataset import Dataset
    from dgl_lara.explainer.network import Embeddings
    from dgl_lara.training.state import TrainingState


class DistributedLara(PartitionedLara):
    """A `LARA` whose processes each hold one part of the graph, and train together.

    Afterwards outputs, p and t of all nodes are in a folder, and one process, or shards, explain with them.
    """

    @property
    def game(self) -> DistributedGame:  # type: ignore[override]
        return cast(DistributedGame, super().game)

    def _create_game(self) -> Any:
        source = cast(RemoteGraph, self.graph_source)
        return DistributedGame(self.model, source, self._known_hops(), self.value, self.memory)

    def _train(
        self,
        config: TrainingConfig,
        targets: Tensor,
        validation: Tensor,
        resume: dict | None,
        report: Callable[[TrainingState], None],
    ) -> None:
        state = train(DistributedBackend(self.game, config), targets, validation, resume, report)
        self._adopt(state, config)
        self.fitted_ = replace(self.fitted, cost=state.nodes_asked / self.game.num_targets)
        if self.rows:
            self._keep(self.rows)

    def _keep(self, store: RowStore) -> None:
        """Write outputs, p and t of the nodes of this part next to those of the others."""
        game, ranks = self.game, self.game.ranks
        with status("embedding every node"), eval_mode(self.explainer_), torch.no_grad():
            p, t = self.explainer_(part_graph(game, self.config_.inputs))
        of = key_of(self.explainer_, game)
        for name, key, rows in (("answer", game.model_key, game.full_outputs), ("p", of, p), ("t", of, t)):
            store.keep_part(name, key, game.num_targets, game.source.nodes, rows, ranks)

    def embed(self, workers: int = 0) -> Embeddings:
        raise InputError("partition.explain_processes")


def lara_on(
    dataset: Dataset | PartitionedDataset,
    model: Model,
    hops: int | str,
    value: str | None = None,
    config: TrainingConfig | None = None,
    memory: int | None = None,
    compute_device: torch.device | None = None,
    players: str | PlayerSpec = "nodes",
    index: str | Index = BANZHAF,
) -> LARA:
    """Return the `LARA` of a data set, whose graph is in memory or partitioned."""
    if isinstance(dataset, PartitionedDataset):
        if as_index(index) != BANZHAF:
            raise InputError("partition.index", got=index)
        kind = DistributedLara if isinstance(dataset.graph_source, RemoteGraph) else PartitionedLara
        return kind(model, dataset.graph_source, None, "", hops, value, config, memory, players)
    where = (model, dataset.graph, dataset.features, dataset.task, hops, value, config, memory, compute_device)
    return LARA(*where, players=players, index=index, **dataset.lara_arguments)
