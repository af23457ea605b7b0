"""`LaraInParts`: the method on a graph that is never whole (`parts/`), out of core in one process.

Training takes mini-batches on what is cut out around them, f's answer, p and t lie on disk, and the targets of a file
are explained piece by piece. What needs the whole graph at once is refused with one sentence: edges and features as
players, samples that all targets share (and the corrections made from them), refinement and verification.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Container
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from dgl_lara._util.progress import status
from dgl_lara.blackbox.call import Model
from dgl_lara.blackbox.eval_mode import eval_mode
from dgl_lara.datasets.dataset import Dataset
from dgl_lara.datasets.partitioned import PartitionedDataset
from dgl_lara.errors import InputError
from dgl_lara.explanation import Explanations
from dgl_lara.game.class_query import ClassQuery
from dgl_lara.game.distributed_game import DistributedGame
from dgl_lara.game.partitioned_game import NOT_WHOLE, PartitionedGame
from dgl_lara.game.player_specs import Nodes, PlayerSpec, as_players
from dgl_lara.game.receptive_field import choose_hops
from dgl_lara.game.tasks import NODE
from dgl_lara.graphs.mmap import GraphView
from dgl_lara.graphs.remote import DistributedGraphView
from dgl_lara.graphs.row_store import RowStore
from dgl_lara.inference.error_model import ErrorModel, learn_errors
from dgl_lara.inference.local import explain_nearby
from dgl_lara.inference.out_of_core import OutOfCoreScorer, embed_out_of_core, key_of
from dgl_lara.inference.scorer import Embeddings, Scorer, TopPlayers
from dgl_lara.inference.targets import parse_targets
from dgl_lara.lara import FEW, FEWEST_SAMPLES, LARA, Targets
from dgl_lara.training.backend import OutOfCore
from dgl_lara.training.config import ALL, TrainingConfig, default, with_mini_batches
from dgl_lara.training.distributed import DistributedBackend, part_graph
from dgl_lara.training.loop import train
from dgl_lara.training.objectives import OBJECTIVES
from dgl_lara.training.state import TrainingState


class PartitionedLara(LARA):
    """As `LARA`, with a `View` (`parts.mapped.Mapped`, or one whose rows are elsewhere) in the place of graph and
    features. `folder`: where arrays with a row a node may lie; `data`: what tells the graph from any other."""

    def __init__(
        self,
        model: Model,
        view: GraphView,
        folder: Path | None = None,
        data: str = "",
        hops: int | str = "auto",
        value: str | None = None,
        config: TrainingConfig | None = None,
        memory: int | None = None,
        players: str | PlayerSpec = "nodes",
    ) -> None:
        self.model, self.view, self.task, self.players = model, view, NODE, as_players(players)
        if self.players != Nodes():
            raise InputError(f"{NOT_WHOLE.format('scoring ' + self.players.name)}; leave out --players.")
        self.hops, self.value, self.config, self.memory = hops, value or NODE.value, config, memory
        self.features = torch.empty(0, view.columns)  # nobody's: their number and place are asked for
        self.rows = RowStore(folder, data) if folder else None
        self.asked: dict[str, Any] = {}
        self.compute_device = self.store = self._embeddings = self.samples_ = self.errors_ = self.cost_ = self._seen = (
            None
        )
        self._embedding = threading.RLock()

    def fit_config(self, config: TrainingConfig, requested: Container[str] = ()) -> TrainingConfig:
        """Return settings with mini-batches. Raise InputError if they need the whole graph."""
        return checked_config(with_mini_batches(config, requested))

    def keep_embeddings(self, folder: Path, data: str) -> None:
        """Keep arrays with one row for each node in a folder from now on."""
        self.rows = RowStore(folder / "rows", data)
        if "game" in vars(self):
            self.game.store = self.rows

    @property
    def graph(self) -> Any:
        raise InputError(f"{NOT_WHOLE.format('this')}; training, and explaining to a file, do not.")

    def __repr__(self) -> str:
        size = f"{self.view.num_nodes:,} nodes and {self.view.num_edges:,} edges"
        return (
            f"LaraInParts(explains nodes of a graph in parts with {size}{'' if self.is_trained else '; not trained'})"
        )

    @cached_property
    def game(self) -> PartitionedGame:  # type: ignore[override]
        return PartitionedGame(self.model, self.view, self._known_hops(), self.value, self.rows, self.memory)

    def _known_hops(self) -> int:
        hops = self.hops
        if hops == "measure" or (hops == "auto" and getattr(self.model, "num_hops", None) is None):
            raise InputError(f"{NOT_WHOLE.format('measuring how far the model looks')}; say it: --hops.")
        return choose_hops(self.model, None, None, self.task, hops)  # type: ignore[arg-type]

    def _ids_of(self, targets: Targets) -> Tensor:
        return parse_targets(targets, self.view.num_nodes, self.task, self.features.device)

    # --- learning

    def _settings_for(self, num_targets: int) -> TrainingConfig:
        return checked_config(self.config or with_mini_batches(default(self.task, num_targets)))

    def _held_out(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        raise InputError("name the validation targets of a graph in parts: fit(targets, validation).")

    def _learn(
        self, targets: Tensor, judging: Tensor, resume: dict | None, judged: Callable[[TrainingState], None]
    ) -> None:
        backend = OutOfCore(self.game, self.config_)
        self._take(train(backend, targets, judging, resume, judged))
        self.cost_ = self.state_.nodes_asked / self.game.num_targets
        with status("learning how far the scores can be trusted"):
            self.errors_ = self._errors_of_judge(backend)

    def _errors_of_judge(self, backend: OutOfCore) -> ErrorModel | None:
        samples, game = self.state_.validation_samples, backend.validation_game
        if samples is None or game is None or len(samples.d) < FEWEST_SAMPLES:
            return None
        found = explain_nearby(self.explainer_, game, self.config_.inputs, samples.players.targets)
        return learn_errors(found, samples)

    # --- explaining

    def embed(self, workers: int = 0) -> Embeddings:
        self.check_trained()
        with self._embedding:
            if self._embeddings is None:
                self._embeddings = embed_out_of_core(self.explainer_, self.game, self.config_.inputs)
            return self._embeddings

    @property
    def is_embedded(self) -> bool:
        return True  # or will be: nothing is explained without

    def bulk(self, workers: int = 0) -> Scorer:
        """What explains very many targets, as `Scorer` does."""
        return cast(Scorer, OutOfCoreScorer(self.explainer_, self.game, self.embed()))

    def top(self, targets: Targets, k: int = 20) -> TopPlayers:
        return self.bulk().top(self._ids_of(targets), k)

    def _amortised(self, targets: Tensor, query: ClassQuery | None) -> Explanations:
        if len(targets) <= FEW:
            near = self.game.near(targets, max(self.explainer_.form.sight(self.explainer_.config), self.game.hops + 1))
            return explain_nearby(self.explainer_, near.game, self.config_.inputs, near.targets, query)
        return OutOfCoreScorer(self.explainer_, self.game, self.embed()).explain(targets, query)

    def check_supports_refinement(self, wanted: object) -> None:
        if wanted:
            raise InputError(
                f"{NOT_WHOLE.format('buying model calls for many targets')}: --refine and --verify go with --node."
            )

    def on(self, *arguments: Any, **more: Any) -> Any:
        raise InputError(f"{NOT_WHOLE.format('another graph beside it')}; leave out --graph.")


class DistributedLara(PartitionedLara):
    """The same where each process holds one part of the graph (`Exchanged`) and all of them train together. Afterwards
    f's answer, p and t lie in the folder, and one process, or shards, explain with them."""

    @cached_property
    def game(self) -> DistributedGame:  # type: ignore[override]
        view = cast(DistributedGraphView, self.view)
        return DistributedGame(self.model, view, self._known_hops(), self.value, self.memory)

    def _learn(
        self, targets: Tensor, judging: Tensor, resume: dict | None, judged: Callable[[TrainingState], None]
    ) -> None:
        self._take(train(DistributedBackend(self.game, self.config_), targets, judging, resume, judged))
        self.cost_ = self.state_.nodes_asked / self.game.num_targets
        if self.rows:
            self._keep(self.rows)

    def _keep(self, store: RowStore) -> None:
        """f's answer, p and t of the nodes of this part, among those of the others."""
        game, ranks = self.game, self.game.ranks
        with status("embedding every node"), eval_mode(self.explainer_), torch.no_grad():
            p, t = self.explainer_(part_graph(game, self.config_.inputs))
        of = key_of(self.explainer_, game)
        for name, key, rows in (("answer", game.model_key, game.full_outputs), ("p", of, p), ("t", of, t)):
            store.keep_part(name, key, game.num_targets, game.view.nodes, rows, ranks)

    def embed(self, workers: int = 0) -> Embeddings:
        raise InputError("processes that hold a part each train; explain in one process, or in shards.")


def lara_on(
    dataset: Dataset | PartitionedDataset,
    model: Model,
    hops: int | str,
    value: str | None = None,
    config: TrainingConfig | None = None,
    memory: int | None = None,
    compute_device: torch.device | None = None,
    players: str | PlayerSpec = "nodes",
) -> LARA:
    """The method on a data set, whether its graph is in memory or in parts."""
    if isinstance(dataset, PartitionedDataset):
        kind = DistributedLara if isinstance(dataset.view, DistributedGraphView) else PartitionedLara
        return kind(model, dataset.view, None, "", hops, value, config, memory, players)
    where = (model, dataset.graph, dataset.features, dataset.task, hops, value, config, memory, compute_device)
    return LARA(*where, players=players, **dataset.lara_arguments)


def checked_config(config: TrainingConfig) -> TrainingConfig:
    if config.batch_size == ALL:
        raise InputError(f"{NOT_WHOLE.format('a batch of all targets')}; name a --batch-size.")
    if config.shared_pairs:
        raise InputError(f"{NOT_WHOLE.format('drawing coalitions that all targets share')}; leave out --shared-pairs.")
    if OBJECTIVES[config.objective].keeps_table:
        raise InputError(f"{NOT_WHOLE.format('the running mean of Eq. 10')}; use --objective balanced.")
    return config
