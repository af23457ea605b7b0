"""`PartitionedLara`: the method on a partitioned graph that is never loaded as a whole.

Training uses mini-batches on subgraphs. Outputs of f, p and t are on disk, and targets of a file are explained in
batches. What needs the full graph raises an error: edges and features as players, shared samples and the corrections
from them, refinement and verification of many targets.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from dgl_lara._util.progress import status
from dgl_lara.errors import InputError
from dgl_lara.game.partitioned_game import PartitionedGame
from dgl_lara.game.player_specs import Nodes, PlayerSpec, as_players
from dgl_lara.game.receptive_field import choose_hops
from dgl_lara.game.target_reader import parse_targets
from dgl_lara.game.tasks import NODE
from dgl_lara.graphs.row_store import RowStore
from dgl_lara.inference.fitting import errors_on_samples
from dgl_lara.inference.local import explain_nearby
from dgl_lara.inference.out_of_core import OutOfCoreScorer, embed_out_of_core
from dgl_lara.lara import LARA, Targets
from dgl_lara.training.backend import OutOfCore
from dgl_lara.training.config import TrainingConfig, default, with_mini_batches, without_full_graph
from dgl_lara.training.loop import train

if TYPE_CHECKING:
    from typing import Self  # Python 3.10 has it not

    from dgl_lara.blackbox.call import Model
    from dgl_lara.explainer.network import Embeddings
    from dgl_lara.explanation import Explanations
    from dgl_lara.game.game import Game
    from dgl_lara.game.values import ClassQuery
    from dgl_lara.graphs.source import GraphSource
    from dgl_lara.inference.fitted import Fitted
    from dgl_lara.inference.scorer import Scorer
    from dgl_lara.training.state import TrainingState


class PartitionedLara(LARA):
    """A `LARA` on a graph that is never in memory as a whole.

    Args:
        model: As for `LARA`.
        source: Gives nodes and edges of the graph.
        folder: Folder for arrays with one row for each node.
        data: Text that differs for every data set.
        hops: K, or "auto" if the model declares it.
        value: The explained number.
        config: Settings of the training. Batches must be small.
        memory: Bytes of working memory. None means most of what is free.
        players: Nodes.
    """

    def __init__(
        self,
        model: Model,
        source: GraphSource,
        folder: Path | None = None,
        data: str = "",
        hops: int | str = "auto",
        value: str | None = None,
        config: TrainingConfig | None = None,
        memory: int | None = None,
        players: str | PlayerSpec = "nodes",
    ) -> None:
        self.model, self.graph_source, self.task, self.players = model, source, NODE, as_players(players)
        if self.players != Nodes():
            raise InputError("partition.players", got=self.players.name)
        self.hops, self.value, self.config, self.memory = hops, value or NODE.value, config, memory
        self.index = PartitionedGame.index
        self.features = torch.empty(0, source.columns)  # of no node: their number of columns and device are needed
        self.rows = RowStore(folder, data) if folder else None
        self.compute_device = self.fitted_ = self._game = None
        self._embeddings: Embeddings | None = None

    def fit_config(self, config: TrainingConfig, requested: Container[str] = ()) -> TrainingConfig:
        """Return settings with mini-batches. Raise InputError if they need the whole graph."""
        return without_full_graph(with_mini_batches(config, requested))

    def keep_embeddings(self, folder: Path, data: str) -> None:
        self.rows = RowStore(folder / "rows", data)
        if self._game is not None:
            self.game.store = self.rows

    def store_outputs(self) -> None:
        """Do nothing, since outputs are on disk already."""

    @property
    def graph(self) -> Any:
        raise InputError("partition.full_graph")

    def __repr__(self) -> str:
        size = f"{self.graph_source.num_nodes:,} nodes and {self.graph_source.num_edges:,} edges"
        return (
            f"PartitionedLara(nodes of a partitioned graph with {size}{'' if self.is_trained else ', not trained yet'})"
        )

    @property
    def game(self) -> PartitionedGame:  # type: ignore[override]
        return cast(PartitionedGame, super().game)

    def _create_game(self) -> Any:
        return PartitionedGame(self.model, self.graph_source, self._known_hops(), self.value, self.rows, self.memory)

    def _known_hops(self) -> int:
        hops = self.hops
        if hops == "measure" or (hops == "auto" and getattr(self.model, "num_hops", None) is None):
            raise InputError("partition.hops", got=hops)
        return choose_hops(self.model, None, None, self.task, hops)  # type: ignore[arg-type]

    def _ids_of(self, targets: Targets) -> Tensor:
        return parse_targets(targets, self.graph_source.num_nodes, self.task, self.features.device)

    def for_pairs(self, pairs: Targets) -> Self:
        return self

    def with_fitted(self, fitted: Fitted) -> Self:
        self.fitted_, self._embeddings = fitted, None
        return self

    # --- training

    def _resolve_targets(self, *targets: Targets | None) -> None:
        """Do nothing, since targets are nodes."""

    def _training_config(self, num_targets: int) -> TrainingConfig:
        return without_full_graph(self.config or with_mini_batches(default(self.task, num_targets)))

    def _hold_out(self, targets: Tensor, seed: int) -> tuple[Tensor, Tensor]:
        raise InputError("partition.validation")

    def _train(
        self,
        config: TrainingConfig,
        targets: Tensor,
        validation: Tensor,
        resume: dict | None,
        report: Callable[[TrainingState], None],
    ) -> None:
        backend = OutOfCore(self.game, config)
        state = train(backend, targets, validation, resume, report)
        self._adopt(state, config)
        with status("learning how far the scores can be trusted"):
            explain = partial(
                explain_nearby, self.explainer_, cast("Game", backend.validation_game), self.config_.inputs
            )
            errors = errors_on_samples(state.validation_samples, explain)
        self.fitted_ = replace(self.fitted, errors=errors, cost=state.nodes_asked / self.game.num_targets)

    # --- explaining

    def embed(self, workers: int = 0) -> Embeddings:
        explainer = self.explainer_
        if self._embeddings is None:
            self._embeddings = embed_out_of_core(explainer, self.game, self.config_.inputs)
        return self._embeddings

    @property
    def is_embedded(self) -> bool:
        return True  # nothing is explained without embeddings

    def scorer(self, workers: int = 0) -> Scorer:
        explainer = self.explainer_
        return cast("Scorer", OutOfCoreScorer(explainer, self.game, self.embed()))

    def _amortised(self, targets: Tensor, query: ClassQuery | None = None) -> Explanations:
        if len(targets) > self.task.max_nearby_targets:
            return self.scorer().explain(targets, query)
        near = self.game.near(
            targets, max(self.explainer_.decoder.receptive_hops(self.explainer_.config), self.game.hops + 1)
        )
        return explain_nearby(self.explainer_, near.game, self.config_.inputs, near.targets, query)

    def check_supports_refinement(self, is_requested: bool) -> None:
        if is_requested:
            raise InputError("partition.refinement")

    def on_graph(self, graph: Any, features: Any, pairs: Any = None) -> Any:
        raise InputError("partition.another_graph")
