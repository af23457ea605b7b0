"""`ExplainedModel`: a model, its data and its game, with what training left behind."""

from __future__ import annotations

import copy
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from dgl_lara._util.validation import checked, checked_device, whole_number
from dgl_lara.errors import LaraError
from dgl_lara.game.game import Game, ModelOutputs
from dgl_lara.game.index import BANZHAF, Index, as_index
from dgl_lara.game.inputs import normalize_inputs, types_of
from dgl_lara.game.player_specs import players_for
from dgl_lara.game.receptive_field import checked_hops
from dgl_lara.game.target_reader import target_reader
from dgl_lara.game.values import checked_value
from dgl_lara.inference.embedder import Embedder
from dgl_lara.inference.embedding_store import EmbeddingStore
from dgl_lara.inference.fitted import Fitted
from dgl_lara.inference.game_setup import create_game, place_model, user_model
from dgl_lara.inference.local import game_nearby
from dgl_lara.training.config import TrainingConfig, within_memory

if TYPE_CHECKING:
    from typing import Self  # Python 3.10 has it not

    from dgl_lara.attribution.shared_samples import SharedSamples
    from dgl_lara.blackbox.call import Model
    from dgl_lara.blackbox.hetero_index import HeteroIndex, Relation
    from dgl_lara.explainer.network import Embeddings, Explainer
    from dgl_lara.game.player_specs import PlayerSpec
    from dgl_lara.game.target_reader import TargetReader
    from dgl_lara.game.task import Task
    from dgl_lara.graphs.graph import Graph
    from dgl_lara.inference.error_model import ErrorModel
    from dgl_lara.training.state import TrainingState

Targets = Tensor | Sequence[int] | Sequence[tuple[int, int]]
Pairs = Tensor | Sequence[tuple[int, int]] | None


class ExplainedModel:
    """A model that is explained on a graph. The arguments are those of `LARA`."""

    state_: TrainingState

    def __init__(
        self,
        model: Model,
        graph: Graph | None = None,
        features: Tensor | np.ndarray | Mapping[str, Tensor] | None = None,
        task: str | Task = "node",
        hops: int | str = "auto",
        value: str | None = None,
        config: TrainingConfig | None = None,
        memory: int | None = None,
        compute_device: torch.device | None = None,
        store: EmbeddingStore | None = None,
        players: str | PlayerSpec = "nodes",
        target_type: str | None = None,
        pairs: Pairs = None,
        relation: str | Relation | None = None,
        leave_out: bool = False,
        index: str | Index = BANZHAF,
    ) -> None:
        self.target_type, self.relation, self.leave_out = target_type, relation, leave_out
        inputs = normalize_inputs(model, graph, features, task, target_type, pairs, relation, leave_out)
        # what the game is played with: an input adapter returns edge data and node types to the model
        self.model, self.graph, self.features, self.task = inputs.f, inputs.graph, inputs.features, inputs.task
        self.players = players_for(players, inputs.types)
        self.hops, self.value = checked_hops(hops), checked_value(value or self.task.value)
        self.config = checked("config", config, TrainingConfig)
        self.index = as_index(index)
        self.memory = None if memory is None else whole_number("memory, in bytes,", memory, 1, 2**60)
        self.compute_device = self.task.compute_device(checked_device(compute_device))
        self.embedder = Embedder(checked("store", store, EmbeddingStore), self.compute_device)
        self.fitted_: Fitted | None = None
        self._game: Game | None = None

    # --- what training left behind

    @property
    def is_trained(self) -> bool:
        return self.fitted_ is not None

    @property
    def fitted(self) -> Fitted:
        """Return what training left behind.

        Raises:
            LaraError: If this `LARA` is not trained yet.
        """
        if self.fitted_ is None:
            raise LaraError("lara.not_trained")
        return self.fitted_

    @property
    def explainer_(self) -> Explainer:
        return self.fitted.explainer

    @property
    def config_(self) -> TrainingConfig:
        return self.fitted.config

    @property
    def history_(self) -> Sequence[dict]:
        return self.fitted.history

    @property
    def samples_(self) -> SharedSamples | None:
        return self.fitted.samples

    @property
    def errors_(self) -> ErrorModel | None:
        return self.fitted.errors

    @property
    def cost_(self) -> float | None:
        return self.fitted.cost

    @property
    def agreement(self) -> float | None:
        """Return the best agreement on validation targets, None if it is unknown."""
        return self.fitted_.agreement if self.fitted_ else None

    def with_fitted(self, fitted: Fitted) -> Self:
        """Use a trained explainer, and return this `LARA`.

        Args:
            fitted: What another training left behind.
        """
        self.fitted_ = fitted
        self.embedder.reset()
        return self

    def with_samples(self, samples: SharedSamples | None) -> Self:
        """Use other samples to correct scores, and return this `LARA`.

        Args:
            samples: Outputs of f that are valid for this graph.
        """
        self.fitted_ = replace(self.fitted, samples=samples)
        return self

    # --- the game

    @property
    def user_model(self) -> Model:
        """Return the model as it was passed to the constructor."""
        return user_model(self.model)

    @property
    def types(self) -> HeteroIndex | None:
        """Return the node types of a heterogeneous graph."""
        return types_of(self.model)

    @property
    def game(self) -> Game:
        """Return the game that is explained. It is created on first use."""
        if self._game is None:
            self._game = self._create_game()
        return self._game

    def _create_game(self) -> Game:
        self._reader.check_not_empty()
        return create_game(
            self.model, self.graph, self.features, self.task, self.hops, self.value, self.memory, self.players,
            self.compute_device, self.embedder.store, self._reads_edge_data, self.index,
        )  # fmt: skip

    @property
    def _reads_edge_data(self) -> bool | None:
        return self.fitted_.reads_edge_data if self.fitted_ else None

    @property
    def _reader(self) -> TargetReader:
        return target_reader(self.model, self.graph, self.task, self.relation, self.features.device)

    def for_pairs(self, pairs: Targets) -> Self:
        """Return the trained explainer for pairs that were not named before. The model is called for them once.

        Args:
            pairs: [(u, v), ...]. Targets that are no pairs need nothing, and neither do pairs that were named.
        """
        unlisted = self._reader.unlisted(pairs)
        if unlisted is None:
            return self
        task, positions, is_listed = unlisted
        self.embed()  # embeddings of nodes do not depend on the pairs
        other = copy.copy(self)
        other.task = task
        data = (self.game.f, self.graph, self.features, task, self.game.hops, self.value)
        known = ModelOutputs(context_hops=self.game.context_hops)
        edge_data = self._reads_edge_data
        other._game = Game.create(
            *data, players=self.players, memory=self.memory, uses_edge_data=edge_data, known=known, index=self.index
        )
        if self.samples_ is not None:
            other.with_samples(self.samples_.at(positions, is_listed))
        return other

    def _game_nearby(self, targets: Tensor) -> Game:
        """Return a game that calls f around the targets only."""
        f = place_model(self.model, self.compute_device)
        return game_nearby(
            f, self.graph, self.features, targets, self.explainer_, self.value, self.memory, self.players, self.task,
            self.index,
        )  # fmt: skip

    def _ids_of(self, targets: Targets) -> Tensor:
        return self._reader.ids(targets)

    def fit_config(self, config: TrainingConfig, requested: Container[str] = ()) -> TrainingConfig:
        """Return settings that fit the memory, without changing those that were requested by name.

        Args:
            config: The settings.
            requested: Names of settings that must stay.
        """
        return within_memory(config, self.game, requested)

    def keep_embeddings(self, folder: Path, data: str) -> None:
        """Keep embeddings and outputs of the model in a folder from now on.

        Args:
            folder: The folder.
            data: Text that differs for every data set.
        """
        sizes = self.graph.num_nodes(), self.task.num_rows(self.graph)
        self.embedder.store = EmbeddingStore(folder / "embeddings.pt", self.model, data, sizes)

    def store_outputs(self) -> None:
        """Write the outputs of the model to the store, if there is one."""
        if self.embedder.store is not None:
            self.embedder.store.keep_outputs(self.game.full_outputs)

    def embed(self, workers: int = 0) -> Embeddings:
        """Return the embeddings of all nodes. They are computed once, or read from the store.

        Args:
            workers: Sampler processes of a layer-wise pass, which replaces one pass that does not fit into memory.
        """
        fitted = self.fitted
        return self.embedder.embed(self.game, fitted.explainer, fitted.config.inputs, workers)

    @property
    def is_embedded(self) -> bool:
        """Return whether embeddings are in memory or in the store."""
        return self.embedder.has(self.explainer_, self.features.device)

    def _adopt(self, state: TrainingState, config: TrainingConfig) -> None:
        self.state_ = state
        self.with_fitted(Fitted(state.best_explainer(), config, history=state.history))
