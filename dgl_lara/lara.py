"""`LARA`: the method as an estimator. The constructor only stores, `fit` learns, `explain` answers.

explanations = LARA(model, graph, features).fit(nodes).explain(nodes)

A model that is called otherwise than f(graph, features) -> logits: see `blackbox/adapters.py`.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dgl
import numpy as np
import pandas as pd
import torch
from torch import Tensor

from dgl_lara._util.distributed import get_process_group
from dgl_lara._util.progress import log_info, status
from dgl_lara._util.randomness import generator, sample_targets
from dgl_lara._util.validation import checked, checked_device, whole_number
from dgl_lara.attribution.shared_samples import SampleReservoir, SharedSamples, draw_more
from dgl_lara.blackbox.adapter import unwrap
from dgl_lara.blackbox.call import Model
from dgl_lara.blackbox.device import OnDevice
from dgl_lara.blackbox.hetero_index import HeteroIndex, Relation
from dgl_lara.blackbox.identity import identity, is_other
from dgl_lara.blackbox.input_adapter import InputAdapter
from dgl_lara.errors import InputError, LaraError
from dgl_lara.explainer.encoder import EncoderGraph
from dgl_lara.explainer.inputs import encoder_graph
from dgl_lara.explainer.network import Explainer, load_explainer, save_explainer
from dgl_lara.explanation import Explanations
from dgl_lara.explanation.trust import notice_low_agreement
from dgl_lara.game.class_query import ClassQuery
from dgl_lara.game.game import Game, ModelOutputs
from dgl_lara.game.inputs import normalize_inputs, to_internal_pairs, to_user_pairs, types_of
from dgl_lara.game.link_task import LinkTask
from dgl_lara.game.player_specs import Nodes, PlayerSpec, StoredPlayers, as_players, from_dict, to_dict
from dgl_lara.game.receptive_field import checked_hops, choose_hops
from dgl_lara.game.removal import strip_data, without_pairs
from dgl_lara.game.task import Task
from dgl_lara.game.values import checked_value
from dgl_lara.graphs.indexing import lookup_sorted
from dgl_lara.inference.adaptive import AT_LEAST, AdaptiveResult, refine_until_confident
from dgl_lara.inference.correction import corrected as correct_explanations
from dgl_lara.inference.embedding_store import EmbeddingStore
from dgl_lara.inference.error_model import ErrorModel, learn_errors
from dgl_lara.inference.layerwise import embed_layerwise, full_pass_bytes, predict_in_batches
from dgl_lara.inference.local import explain_nearby, game_nearby
from dgl_lara.inference.novelty import with_novelty
from dgl_lara.inference.refine import RefineResult, refine
from dgl_lara.inference.scorer import Embeddings, Scorer, TopPlayers, embed_graph
from dgl_lara.inference.targets import parse_classes, parse_targets
from dgl_lara.inference.verification import DRAWS, verify
from dgl_lara.training.backend import InMemory
from dgl_lara.training.config import TrainingConfig, default, within_memory
from dgl_lara.training.loop import train
from dgl_lara.training.state import TrainingState

if TYPE_CHECKING:
    from typing import Self  # Python 3.10 has it not

DRAWN_PAIRS = 300  # of shared coalitions, where training keeps none
ERROR_TARGETS = 400  # validation targets from which g's errors are learned
FEWEST_SAMPLES = 16  # of each of them
OTHER_MODEL = (
    "note: the model says of none of these {}s what it said in training. It is another one, or the graph has changed: "
    "the scores may not be of this model."
)
OTHER_WEIGHTS = (
    "note: the model's weights are not those of the model that this explainer was trained for, so its scores speak of "
    "another one. Train another explainer with fit, or give the model that it was trained for."
)
OTHER_GRAPH = "note: this graph has {2:,} {0}s, that of the training had {1:,}: the scores are not corrected."
FEW = 16  # targets that are explained from their surroundings, where nothing is embedded yet

Targets = Tensor | Sequence[int] | Sequence[tuple[int, int]]
Pairs = Tensor | Sequence[tuple[int, int]] | None


class LARA:
    """Learns to explain a model; afterwards an explanation is a dot product.

    Args:
        model: Any callable f(graph, features) -> logits, one row a node (or a graph of a batch); for links
            f(graph, features, u, v) -> a score for each pair of nodes. Nothing else of it is used: no gradients, no
            hidden layers. What edges carry (graph.edata) it finds there, whatever is removed.
        graph: A DGL graph; for `task="graph"` a batch of graphs. It may have several types of nodes and edges.
        features: (num_nodes, columns); without them graph.ndata["feat"]. Of several types: {type: (nodes, columns)}.
        task: "node", "graph" or "link": what is explained.
        hops: K, how far the model looks: a number, "auto" (what it declares as `num_hops`, else Eq. 13), "measure".
        value: The number explained: "logit", "probability", "log-odds" or "output" (regression; the default of links).
        config: Settings of the training; without them, what measured best for a graph of this size.
        memory: Bytes that training and explaining keep to; without them, most of what is free.
        compute_device: A device that gets batches while the data stays in main memory (graphs larger than a GPU).
        store: Where embeddings are kept on disk, so that the next process need not make them again.
        players: Who is scored: "nodes", "edges" or "features"; or with more to say, `Edges(directed=True)`,
            `Features(of="target", baseline="mean", groups={"job": [1, 2, 3]})`.
        target_type: On a graph of several types, the type whose nodes are explained.
        pairs: For links, [(u, v), ...]: those that will be asked about most; f is asked about all of them while g
            learns, which corrects their scores. Others can be asked about too.
        relation: On a graph of several types, the relation that pairs stand for: its name, or (type, name, type).
        leave_out: For links, whether edges between the ends of `pairs` are taken out of the graph beforehand;
            otherwise they are part of it, and where edges play, players.

    Attributes:
        explainer_: The trained g, after `fit` or `load`.
        config_: The settings it was trained with.
        history_: Loss and validation agreement by step, after `fit`.
        samples_: What f said of coalitions that all targets share; corrects scores. None: nothing is kept.
        cost_: Nodes of all graphs that f was given to learn from, for each target there is; None: not known.
        errors_: What g's errors are like on targets it has not learned from; None: not known.

    Examples:
        >>> lara = LARA(model, graph, features).fit(train_nodes)
        >>> lara.explain([512, 640]).to_frame()
        >>> lara.save("lara.pt")
    """

    warn_if_poor = True  # after `fit`, where little was learned

    def __init__(
        self,
        model: Model,
        graph: dgl.DGLGraph | None = None,
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
    ) -> None:
        self.asked: dict[str, Any] = {"target_type": target_type, "relation": relation, "leave_out": leave_out}
        given = normalize_inputs(model, graph, features, task, pairs=pairs, **self.asked)
        # what the game is played with; what edges carry and several types come back where f is asked
        self.model, self.graph, self.features, self.task = given.f, given.graph, given.features, given.task
        self.players = as_players(players)
        if self.types and self.players.name == "features":
            raise InputError("players.features_of_types")
        self.hops, self.value = checked_hops(hops), checked_value(value or self.task.value)
        self.config = checked("config", config, TrainingConfig)
        self.memory = None if memory is None else whole_number("memory, in bytes,", memory, 1, 2**60)
        # graphs come in batches anyway, and pairs are asked about on the whole graph
        self.compute_device = (
            checked_device(compute_device) if self.task.has_distances and self.task.num_endpoints == 1 else None
        )
        self.store = checked("store", store, EmbeddingStore)
        self._embeddings: Embeddings | None = None
        self._embedding = threading.RLock()  # several threads that ask first wait for one pass
        self.samples_: SharedSamples | None = None
        self.errors_: ErrorModel | None = None
        self.cost_: float | None = None
        self._seen: EncoderGraph | None = None  # the whole graph as g saw it in training, for the first pass after it

    def __getstate__(self) -> dict[str, Any]:
        """For pickling: a lock stays where it is."""
        return {name: value for name, value in vars(self).items() if name != "_embedding"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _embedding=threading.RLock())

    @staticmethod
    def of_game(game: Game, config: TrainingConfig | None = None) -> LARA:
        """For a game that was made before."""
        where = (game.f, game.graph, game.features, game.task, game.hops, game.value)
        lara = LARA(*where, config, game.budget.memory, players=game.player_spec)  # an explained game asks no more
        lara.game = game
        return lara

    def __repr__(self) -> str:
        """What is explained, and how well it has learned; nothing is computed for it."""
        size = f"{self.graph.num_nodes():,} nodes and {self.graph.num_edges():,} edges"
        where = f"a graph with {size}" if self.task.has_distances else f"{self.graph.batch_size:,} graphs with {size}"
        where += f" of {len(self.types.node_types)} types" if self.types else ""
        state = "not trained yet: fit(targets)"
        if self.is_trained:
            config = self.explainer_.config
            state = f"K = {config.hops}, {config.num_classes} classes, gate {config.gate}"
        best = self.agreement
        learned = "" if best is None else f", agreement {best:.3f} after {self.history_[-1]['step']} steps"
        inner = unwrap(self.model)
        model = getattr(inner, "__name__", type(inner).__name__)
        who = "" if self.players == Nodes() else f" by their {self.players.name}"
        return f"LARA(explains {self.task}s of {where}{who}; model {model}, value {self.value}; {state}{learned})"

    @property
    def agreement(self) -> float | None:
        """The best on validation targets; None where nobody has trained it here."""
        return max((row["agreement"] for row in vars(self).get("history_", [])), default=None)

    @property
    def is_trained(self) -> bool:
        return "explainer_" in vars(self)

    @property
    def user_model(self) -> Model:
        """The model as it was given."""
        return self.model.model if isinstance(self.model, InputAdapter) else self.model

    @property
    def types(self) -> HeteroIndex | None:
        """Who is who, on a graph of several types."""
        return types_of(self.model)

    @property
    def _reads_edge_data(self) -> bool | None:
        """Whether f makes anything of what edges carry; None: nobody has asked it yet."""
        return self.explainer_.config.edge_columns > 0 if self.is_trained else None

    @cached_property
    def _f(self) -> Model:
        """The model, where it gets its batches."""
        f = self.model
        if not self.compute_device:
            return f
        there = OnDevice(self.user_model, self.compute_device)
        return f.rewrap(there) if isinstance(f, InputAdapter) else there

    @cached_property
    def game(self) -> Game:
        """What is explained. Made when first asked for; f's pass over the graph is spared where its answer is kept."""
        f = self._f
        if isinstance(self.task, LinkTask) and not len(self.task.pairs):
            raise InputError("pairs.missing")
        hops = choose_hops(f, self.graph, self.features, self.task, self.hops, self.memory)
        answer = self.store.answer() if self.store else None
        if answer is not None:
            answer = answer.to(self.features.device)
        elif self.compute_device:
            answer = predict_in_batches(f, self.graph, self.features, hops)
        return self._make_game(f, self.task, hops, ModelOutputs(answer))

    def _make_game(self, f: Model, task: Task, hops: int, known: ModelOutputs) -> Game:
        where = (f, self.graph, self.features, task, hops, self.value)
        more: dict[str, Any] = {"memory": self.memory, "uses_edge_data": self._reads_edge_data}
        return Game.create(*where, players=self.players, known=known, **more)

    # --- learning

    @status("training", as_prefix=False)
    def fit(
        self,
        targets: Targets,
        validation: Targets | None = None,
        resume: dict | None = None,
        checkpoint: Callable[[TrainingState], None] = lambda state: None,
        callback: Callable[[dict[str, float]], object] = lambda row: None,
    ) -> Self:
        """Train the explainer.

        Args:
            targets: Nodes (or graphs) to learn from: numbers, or a mask of booleans. No label is used.
            validation: Those on which it is judged; without them, a tenth of the targets is held out. Of a graph in
                parts they must be named.
            resume: An earlier state's `to_dict()`, to go on from.
            checkpoint: Called with the state now and then, and when training is interrupted.
            callback: Called with step, epoch, loss and agreement whenever g has been judged, some twenty times:
                `callback=wandb.log`, or `lambda row: writer.add_scalar("loss", row["loss"], row["step"])`.

        Returns:
            Itself.
        """
        if isinstance(self.task, LinkTask) and not len(self.task.pairs):
            self._take_pairs(targets, validation)
        chosen = self._ids_of(targets).unique()
        self.config_ = self._settings_for(len(chosen))
        if validation is None:
            chosen, judging = self._held_out(chosen)
        else:
            judging = self._ids_of(validation).unique()
        if not callable(callback) or not callable(checkpoint):
            raise InputError("callback and checkpoint must be functions of one argument.")
        if resume is not None and not (isinstance(resume, dict) and {"step", "history", "explainer"} <= resume.keys()):
            raise InputError("resume must be what `to_dict()` of an earlier state gave.")
        told = len(resume["history"]) if resume else 0

        def judged(state: TrainingState) -> None:
            nonlocal told
            checkpoint(state)
            for row in state.history[told:]:
                callback(dict(row))
            told = len(state.history)

        get_process_group().agree(asdict(self.config_))  # memory may have decided otherwise elsewhere
        self._learn(chosen, judging, resume, judged)
        return self

    def _settings_for(self, num_targets: int) -> TrainingConfig:
        return self.config or within_memory(default(self.task, num_targets), self.game)

    def _held_out(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Those to learn from, and those to be judged on."""
        if len(targets) < 2:
            return targets, targets
        shuffled = targets[torch.randperm(len(targets), generator=generator(self.config_.seed)).to(targets.device)]
        held_out = max(1, len(targets) // 10)
        return shuffled[held_out:], shuffled[:held_out]

    def _learn(
        self, targets: Tensor, judging: Tensor, resume: dict | None, judged: Callable[[TrainingState], None]
    ) -> None:
        with status("preparing what the explainer sees of each node"):
            seen = encoder_graph(self.game, self.config_.inputs)
        ranks = get_process_group()
        self._take(train(InMemory(self.game, self.config_, ranks, seen), targets, judging, resume, judged))
        self._seen = seen
        if not ranks.is_first:  # what follows is for those who explain with it, and the first one keeps it
            return
        before = self.game.caller.nodes_evaluated
        self.samples_ = self._shared_samples()
        self.cost_ = (self.state_.nodes_asked + self.game.caller.nodes_evaluated - before) / self.game.num_targets
        with status("learning how far the scores can be trusted"):
            self.errors_ = self._learned_errors(judging)
        if self.warn_if_poor:
            notice_low_agreement(self.agreement, self.state_.best_of_neighbours)

    def _take(self, state: TrainingState) -> None:
        self.state_, self.explainer_, self.history_ = state, state.best_explainer(), state.history
        self._embeddings = None

    def _take_pairs(self, *given: Any) -> None:
        """The pairs to learn from are those that will be asked about, where no others were named."""
        every = torch.cat([self._as_pairs(some) for some in given if some is not None])
        self.task = LinkTask(torch.unique(every, dim=0))
        if self.asked["leave_out"]:
            self.graph = without_pairs(self.graph, self.task.pairs)

    def _knows(self, pairs: Targets) -> bool:
        return bool(self._places(self._as_pairs(pairs))[1].all())

    def _shared_samples(self) -> SharedSamples | None:
        """What training has kept, and as many more as were asked for: some where training asked f about parts of the
        graph only; none of graphs, which are games of their own (what helps one of them costs as much as `refine`)."""
        asked, keeper = self.config_.shared_pairs, self.state_.reservoir
        if asked is None:
            affordable = (
                self.task.has_distances
                and self.graph.num_nodes() <= self.game.nodes_per_call
                and not self.compute_device
            )
            affordable &= self.game.player_set.supports_shared_masks
            asked = DRAWN_PAIRS if affordable and keeper is None else 0
        keeper = keeper or SampleReservoir(self.game, asked, self.config_.seed)
        if asked > keeper.seen:
            draw_more(keeper, min(asked, keeper.most) - keeper.seen)
        return keeper.samples()

    def _learned_errors(self, judging: Tensor) -> ErrorModel | None:
        """How wrong g is on targets that it has not learned from, by samples that are at hand."""
        samples = self.state_.validation_samples
        if self.samples_ is not None:
            players = self.game.players(sample_targets(judging, ERROR_TARGETS, self.config_.seed).sort().values)
            samples = self.samples_.of(players, self.task.is_target(players))
        if samples is None or int((~samples.d.isnan()).sum(0).min()) < FEWEST_SAMPLES:
            return None
        return learn_errors(self._amortised(samples.players.targets, None), samples)

    @property
    def _is_too_large(self) -> bool:
        """For one pass of g over everything."""
        needed = full_pass_bytes(self.explainer_, self.graph.num_nodes())
        return self.task.has_distances and (bool(self.compute_device) or needed > self.game.budget.memory)

    # --- explaining

    def embed(self, workers: int = 0) -> Embeddings:
        """p and t of everything: made once, from the store where they are; layer by layer where one pass is too large.

        Args:
            workers: Sampler processes of a layer-wise pass.
        """
        self.check_trained()
        with self._embedding:
            if self._embeddings is None:
                self._embeddings = self._stored() or self._compute_exclusively(workers)
            return self._embeddings

    def _stored(self) -> Embeddings | None:
        found, device = self.store.embeddings(self.explainer_) if self.store else None, self.features.device
        return found and Embeddings(found.source.to(device), found.target.to(device))

    def _compute_exclusively(self, workers: int) -> Embeddings:
        """Made and kept, unless another process does so at this moment: then its work is waited for."""
        if self.store is None:
            return self._embed(workers)
        with self.store.in_turn():
            found = self._stored()
            if found is None:
                found = self._embed(workers)
                self.store.keep(self.game.full_outputs, self.explainer_, found)
            return found

    def _embed(self, workers: int) -> Embeddings:
        kind, device = self.config_.inputs, self.features.device
        if not self._is_too_large:
            with status("one pass of the explainer over everything"):
                seen, self._seen = self._seen or encoder_graph(self.game, kind), None
                return embed_graph(self.explainer_, seen)
        try:
            found = embed_layerwise(self.explainer_.to(self.compute_device or device), self.game, kind, workers=workers)
            return Embeddings(found.source.to(device), found.target.to(device))
        finally:
            self.explainer_.to(device)

    @property
    def is_embedded(self) -> bool:
        """p and t of everything are at hand, here or in the store."""
        with self._embedding:
            if self._embeddings is not None:
                return True
            return self.store is not None and self.store.embeddings(self.explainer_) is not None

    def explain(
        self, targets: Targets, classes: ClassQuery | Targets | tuple[int, int] | None = None, corrected: bool = True
    ) -> Explanations:
        """Scores of every player of these targets.

        Args:
            targets: Nodes (or graphs): numbers, or a mask of booleans.
            classes: One a target; without them, the class that the model predicts. A pair (a, b) asks of all targets
                why a rather than b: what the players contribute to the difference of the two values.
            corrected: With what f said in training of coalitions of these very targets, where that is kept (no further
                model call); False: the scores of g alone.

        Returns:
            `Explanations`. A few targets of a graph that is not embedded yet are explained from their surroundings.
        """
        self.check_trained()
        if isinstance(self.task, LinkTask) and not self._knows(targets):
            return self.about(targets).explain(targets, classes, corrected)
        chosen = self._ids_of(targets)
        if classes is not None and not isinstance(classes, ClassQuery):
            classes = parse_classes(classes, len(chosen), self.explainer_.config.num_classes, chosen.device)
        return self.explain_indices(chosen, classes, corrected)

    def explain_indices(self, targets: Tensor, query: ClassQuery | None = None, corrected: bool = True) -> Explanations:
        """The same for targets by their numbers: of links, their places among `pairs`."""
        return self.trusted(self._amortised(targets, query), corrected)

    def about(self, pairs: Targets) -> LARA:
        """The same for other pairs of nodes: g is the one that has learned, and f is asked about them once."""
        asked = self._as_pairs(pairs)
        self.embed()  # of nodes, whichever pairs they stand in
        other = copy.copy(self)
        other.task, other.store = LinkTask(asked), None
        known = ModelOutputs(context_hops=self.game.context_hops)
        other.game = self._make_game(self._f, other.task, self.game.hops, known)
        if self.samples_ is not None:
            other.samples_ = self.samples_.at(*self._places(asked))
        return other

    def explain_on(
        self,
        graph: dgl.DGLGraph,
        features: Tensor | np.ndarray | Mapping[str, Tensor] | None,
        targets: Targets,
        classes: Targets | tuple[int, int] | None = None,
    ) -> Explanations:
        """Scores on another graph of the same kind, such as this one with new nodes and edges; nothing is learned.

        Args:
            graph: A graph that the model can be asked about.
            features: Of its nodes.
            targets: Nodes, graphs or pairs of it.
            classes: As for `explain`.

        Returns:
            `Explanations`, amortised; `novelty` says how far from what g has learned from each of them is.
        """
        other = self.on(graph, features, targets if isinstance(self.task, LinkTask) else None)
        return with_novelty(other.explain(targets, classes), self.explainer_, self.config_.inputs)

    def on(self, graph: dgl.DGLGraph, features: Any, pairs: Any = None) -> LARA:
        """The trained explainer on another graph: embeddings are made anew, and no sample of the old one is kept."""
        self.check_trained()
        where = (self.user_model, graph, features, self.task.name, self.game.hops, self.value, self.config, self.memory)
        other = LARA(*where, self.compute_device, players=self.players, pairs=pairs, **self.asked)
        other.explainer_, other.config_, other.errors_ = self.explainer_, self.config_, self.errors_
        return other

    def _amortised(self, targets: Tensor, query: ClassQuery | None) -> Explanations:
        if self.is_embedded or len(targets) > FEW or not self.task.has_distances or self.task.num_endpoints > 1:
            return Scorer(self.explainer_, self.game, self.embed()).explain(targets, query)
        game = vars(self).get("game") or self._game_near(targets)
        return explain_nearby(self.explainer_, game, self.config_.inputs, targets, query)

    def trusted(self, explanations: Explanations, correct: bool = True) -> Explanations:
        """With what is known of their errors, and corrected where f has been asked about the target before."""
        nobody = torch.zeros(len(explanations), dtype=torch.bool)
        if self.errors_ is None:
            return replace(explanations, corrected=nobody)
        if correct and self.samples_ is not None:
            if self.samples_.are_of_another(explanations.game or self.game, explanations.players.targets):
                log_info(OTHER_MODEL.format(self.task))
            return correct_explanations(explanations, self.samples_, self.errors_)
        return replace(explanations, variance=self.errors_.variance(explanations), corrected=nobody)

    def _game_near(self, targets: Tensor) -> Game:
        """Asks f about the surroundings of the targets alone; an explanation of them needs no more, words included."""
        graph = strip_data(self.graph)
        where = (self._f, graph, self.features, targets, self.explainer_, self.value, self.memory)
        return game_nearby(*where, self.players, self.task)

    def bulk(self, workers: int = 0) -> Scorer:
        """For very many targets: keeps the best players of each."""
        self.check_trained()
        return Scorer(self.explainer_, self.game, self.embed(workers))

    def top(self, targets: Targets, k: int = 20) -> TopPlayers:
        """The k best players of each target, without a list of all of them."""
        return self.bulk().top(self._ids_of(targets), whole_number("k", k))

    def refine(self, explanations: Explanations, pairs: int, seed: int = 0) -> RefineResult:
        """Better scores, and how far each explanation moved: bought with 2 * pairs model evaluations a target."""
        return refine(self._game_of(explanations), explanations, pairs, self._stretch, seed)

    def settle(self, explanations: Explanations, at_least: float = AT_LEAST, seed: int = 0) -> AdaptiveResult:
        """Model calls for explanations that are not trusted yet: pairs of coalitions of their own, more and more, until
        they are expected to explain this share of the true attribution."""
        return refine_until_confident(self._game_of(explanations), explanations, self._stretch, at_least, seed)

    @property
    def _stretch(self) -> float:
        """Of the errors of corrected scores, see `ErrorModel`."""
        return self.errors_.stretch if self.errors_ else 1.0

    def verify(self, explanations: Explanations, draws: int = DRAWS, seed: int = 0) -> pd.DataFrame:
        """Fidelity of each explanation beside that of random players, by model calls."""
        return verify(self._game_of(explanations), explanations, draws, seed)

    def _game_of(self, explanations: Explanations) -> Game:
        if not isinstance(explanations, Explanations):
            raise InputError(f"explanations must be what `explain` gave (got {type(explanations).__name__}).")
        return explanations.game or self.game

    # --- on disk

    def save(self, path: Path | str, **more: float) -> None:
        """The trained explainer in one file, with the samples that correct its scores; `LARA.load` opens it beside the
        model and the graph. `more`: numbers to be stored beside it."""
        self.check_trained()
        about = described(identity(self.user_model), self.config_, self.value, self.errors_, self.cost_)
        about["players"] = to_dict(self.players)
        if isinstance(self.task, LinkTask):
            about["pairs"] = to_user_pairs(self.model, self.task.pairs)  # whom the samples are of
        samples, history = self.samples_.to_dict() if self.samples_ else None, vars(self).get("history_", [])
        save_explainer(self.explainer_, Path(path), **about, samples=samples, history=history, **more)

    @staticmethod
    def load(path: Path | str, model: Model, graph: dgl.DGLGraph, features: Tensor | None = None, **more: Any) -> LARA:
        """What `save` stored, ready to explain.

        Args:
            path: The file.
            model: The model that it was trained to explain.
            graph: The graph, or another one for the same model.
            features: As for `LARA`.
            more: memory, compute_device, store, target_type, pairs, relation, leave_out, as for `LARA`; without pairs,
                those that it was saved with.
        """
        device = getattr(graph, "device", torch.device("cpu"))  # what is no graph is told below
        explainer, stored = load_explainer(Path(path), device)
        config, players = explainer.config, stored.get("players")
        more |= {"players": "nodes" if players is None else from_dict(StoredPlayers, players, path)}
        if more.get("pairs") is None:
            more["pairs"] = stored.get("pairs")
        lara = LARA(model, graph, features, config.task, config.hops, stored.get("value", "logit"), **more)
        lara.with_explainer(explainer, stored)
        if is_other("model", stored, identity(model)):
            log_info(OTHER_WEIGHTS)
        if lara.samples_ is not None and lara.task.num_endpoints == 1:
            then, now = len(lara.samples_.full), lara.task.num_targets(lara.graph)
            if then != now:
                log_info(OTHER_GRAPH.format(lara.task, then, now))
        return lara

    def with_explainer(self, explainer: Explainer, stored: dict[str, Any]) -> LARA:
        """Itself, with a trained g; `stored` is what its file holds beside it."""
        self.explainer_ = explainer
        self.config_ = TrainingConfig(**stored["training"]) if "training" in stored else _guessed_config(explainer)
        errors, samples = stored.get("errors"), stored.get("samples")
        hops = explainer.config.hops if self.task.has_distances else 0
        self.errors_, self.samples_, self.cost_ = None, None, stored.get("cost")
        self.history_ = stored.get("history", vars(self).get("history_", []))
        if errors is not None:
            self.errors_ = ErrorModel.from_dict(errors, hops, "what is stored of g's errors").to(self.features.device)
        if samples is not None:
            where, gaps = "what is stored of shared coalitions", self.task.num_endpoints > 1
            self.samples_ = SharedSamples.from_dict(samples, where, gaps=gaps)
            self._rearrange_samples(stored.get("pairs"))
        self._embeddings = self._seen = None
        return self

    def _rearrange_samples(self, pairs: Tensor | None) -> None:
        """Those that are stored are of the pairs that g was saved with, in that order."""
        if self.samples_ is None or pairs is None or not isinstance(self.task, LinkTask):
            return
        if len(pairs) != len(self.samples_.full):
            raise LaraError("what is stored of shared coalitions is not of the pairs that are stored.")
        try:
            before = self._as_pairs(pairs)
        except InputError:  # of another graph
            self.samples_ = None
            return
        self.samples_ = self.samples_.at(*self._places(self.task.pairs, before))

    def fit_config(self, config: TrainingConfig, requested: Container[str] = ()) -> TrainingConfig:
        """Return settings that fit the memory, without changing those that were requested by name."""
        return within_memory(config, self.game, requested)

    def keep_embeddings(self, folder: Path, data: str) -> None:
        """Keep embeddings in a folder from now on.

        Args:
            folder: The folder.
            data: What the embeddings depend on, besides the model.
        """
        sizes = self.graph.num_nodes(), self.task.num_rows(self.graph)
        self.store = EmbeddingStore(folder / "embeddings.pt", self.model, data, sizes)

    # --- what users give

    def check_trained(self) -> None:
        if not self.is_trained:
            raise LaraError("this LARA has not learned yet; call fit(targets) first.")

    def check_supports_refinement(self, wanted: object) -> None:
        """Whether explanations of many targets can be bought model calls for."""

    def _ids_of(self, targets: Targets) -> Tensor:
        if not isinstance(self.task, LinkTask):
            return parse_targets(targets, self.task.num_targets(self.graph), self.task, self.features.device)
        place, known = self._places(self._as_pairs(targets))
        if not known.all():
            raise InputError("pairs.not_of_lara")
        return place

    def _as_pairs(self, targets: Any) -> Tensor:
        """(num_pairs, 2) nodes of the graph that is played on."""
        assert isinstance(self.task, LinkTask)
        if isinstance(targets, Tensor) and targets.dim() == 1 and len(self.task.pairs):  # by numbers, or a mask
            return self.task.pairs[parse_targets(targets, len(self.task.pairs), self.task, self.features.device)]
        return to_internal_pairs(self.model, self.graph, targets, self.asked["relation"])

    def _places(self, pairs: Tensor, among: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Where pairs stand among others, those that this LARA was made for unless told, and whether they do."""
        assert isinstance(self.task, LinkTask)
        count = self.graph.num_nodes()
        among = self.task.pairs if among is None else among
        if not len(among):
            return torch.zeros_like(pairs[:, 0]), torch.zeros_like(pairs[:, 0], dtype=torch.bool)
        own, asked = (some[:, 0] * count + some[:, 1] for some in (among, pairs))
        rising, order = own.sort()
        place, known = lookup_sorted(asked, rising)
        return order[place], known


def described(
    model: dict[str, str],
    config: TrainingConfig,
    value: str,
    errors: ErrorModel | None = None,
    cost: float | None = None,
) -> dict[str, Any]:
    """What a file with a trained explainer says beside shape and weights. `model`: its `identity`."""
    about = {**model, "training": asdict(config), "value": value}
    return {**about, "errors": errors.to_dict() if errors else None, "cost": cost}


def explain(
    model: Model,
    graph: dgl.DGLGraph,
    features: Tensor,
    targets: Targets,
    classes: Targets | None = None,
    **settings: Any,
) -> Explanations:
    """The whole method in one call, for a first look; `dgl_lara.explain`.

    Learns from every node (or graph; no label is needed), then explains these. Most of the time goes into learning:
    keep a `LARA` where you will ask again.

    Args:
        model: As for `LARA`; so are graph and features.
        graph: A DGL graph.
        features: (num_nodes, columns).
        targets: Nodes (or graphs) to explain.
        classes: One a target; without them, the class that the model predicts.
        settings: Those of `LARA`.

    Examples:
        >>> print(explain(model, graph, features, [512])[0].in_words())
    """
    lara = LARA(model, graph, features, **settings)
    everyone = torch.ones(lara.task.num_targets(graph), dtype=torch.bool)
    return lara.fit(everyone if len(everyone) else targets).explain(targets, classes)


def _guessed_config(explainer: Explainer) -> TrainingConfig:
    """Of files of 0.1.0, which hold g alone. Only what g sees matters for explaining, and its clip tells that."""
    return TrainingConfig(inputs="rich" if bool(torch.isfinite(explainer.clip)) else "features")
