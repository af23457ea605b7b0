"""`LARA`: the method as an estimator. The constructor only stores, `fit` learns, `explain` answers.

explanations = LARA(model, graph, features).fit(nodes).explain(nodes)

A model that is called otherwise than f(graph, features) -> logits: see `model/adapters.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from numbers import Integral
from pathlib import Path
from typing import Any

import dgl
import numpy as np
import pandas as pd
import torch
from torch import Tensor

from dgl_lara.attribution.shared_samples import SampleKeeper, SharedSamples, draw_more
from dgl_lara.errors import InputError, LaraError, ModelError
from dgl_lara.explainer.encoder import EncoderGraph
from dgl_lara.explainer.inputs import encoder_graph
from dgl_lara.explainer.network import Explainer, load_explainer, save_explainer
from dgl_lara.explanation import Explanations
from dgl_lara.explanation.scored import Scored
from dgl_lara.game.budget import Budget
from dgl_lara.game.game import Game, check_targets
from dgl_lara.game.hops import MOST_HOPS, SAMPLE, max_hop, spread_out
from dgl_lara.game.kinds import Choice, Nodes, as_players, from_dict, to_dict
from dgl_lara.game.removal import bare
from dgl_lara.game.task import Task
from dgl_lara.game.tasks import as_task
from dgl_lara.inference.correction import corrected as correct_explanations
from dgl_lara.inference.doubtful import AT_LEAST, Settled, settle_doubtful
from dgl_lara.inference.error_bars import ErrorModel, learn_errors
from dgl_lara.inference.layerwise import embed_layerwise, full_pass_bytes, predict_in_batches
from dgl_lara.inference.nearby import explain_nearby, game_nearby
from dgl_lara.inference.refinement import Refined, refine
from dgl_lara.inference.scores import Embeddings, embed_graph, explain
from dgl_lara.inference.store import EmbeddingStore
from dgl_lara.inference.top_players import BulkExplainer, TopPlayers
from dgl_lara.inference.verification import DRAWS, verify
from dgl_lara.model import blackbox
from dgl_lara.model.adapters import unwrapped
from dgl_lara.model.blackbox import Model
from dgl_lara.model.evaluating import evaluating
from dgl_lara.model.on_device import OnDevice
from dgl_lara.training.config import TrainingConfig, default, within_memory
from dgl_lara.training.loop import train
from dgl_lara.training.state import TrainingState
from dgl_lara.utils.progress import say, working
from dgl_lara.utils.randomness import generator, some_targets

DEPTH = 3  # of g, where every node of a graph is a player anyway and K is not known
DRAWN_PAIRS = 300  # of shared coalitions, where training keeps none
ERROR_TARGETS = 400  # validation targets from which g's errors are learned
FEWEST_SAMPLES = 16  # of each of them
OTHER_MODEL = (
    "note: the model says of none of these {}s what it said in training. It is another one, or the graph has changed: "
    "the scores may not be of this model."
)
FEW = 16  # targets that are explained from their surroundings, where nothing is embedded yet

Targets = Tensor | Sequence[int]


def choose_hops(
    model: Model, graph: dgl.DGLGraph, features: Tensor, task: Task, hops: int | str, memory: int | None = None
) -> int:
    """K: what was asked for; "auto": what the model says (`num_hops`), else Eq. 13; "measure": Eq. 13 in any case.

    A model that normalises by degree really does look one hop beyond its layers, so Eq. 13 finds 4 for three layers.
    """
    if isinstance(hops, Integral) and not isinstance(hops, bool):
        return int(hops)
    if hops not in ("auto", "measure"):
        raise InputError(f"hops must be a whole number, 'auto' or 'measure' (got '{hops}').")
    declared = getattr(model, "num_hops", None)
    if declared is not None and hops == "auto":
        if not isinstance(declared, Integral) or not 0 <= int(declared) <= MOST_HOPS:
            raise ModelError(
                f"the model's num_hops must be a whole number from 0 to {MOST_HOPS} (got {declared!r}); give the "
                "number of hops yourself (--hops)."
            )
        return int(declared)
    if not task.local:
        return DEPTH
    graph, nodes = bare(graph), spread_out(graph.num_nodes(), SAMPLE, features.device)
    # a model that cannot be explained at all is told so first
    blackbox.untouched(model, graph, features, task.num_targets(graph), task.name)

    def f(part: dgl.DGLGraph, x: Tensor) -> Tensor:
        return blackbox.call(model, part, x, task.num_targets(part), task.name)

    with working("measuring how far the model looks (Eq. 13)"), evaluating(model):
        nodes_a_call = Budget.of(memory, features.device).nodes_a_call(features.shape[1])
        return max_hop(f, graph, features, nodes, tolerance=1e-3, nodes_a_call=nodes_a_call)


def features_of(graph: dgl.DGLGraph) -> Tensor:
    """Where DGL's data sets keep them."""
    if "feat" not in graph.ndata:
        held = ", ".join(graph.ndata) or "nothing"
        raise InputError(
            f"no features were given, and graph.ndata has no 'feat' to take in their place (it has {held})."
        )
    return graph.ndata["feat"]


def as_features(graph: dgl.DGLGraph, given: Any) -> Tensor:
    """(num_nodes, columns) on the device of the graph's own kind: a tensor as it is, an array as a tensor."""
    if not isinstance(graph, dgl.DGLGraph):
        raise InputError(f"the graph must be a DGL graph (got {type(graph).__name__}).")
    if not graph.is_homogeneous:
        raise InputError("the graph must have one kind of node and one of edge (dgl.to_homogeneous makes it so).")
    features = features_of(graph) if given is None else given
    if not isinstance(features, Tensor):
        try:
            features = torch.as_tensor(features, device=graph.device)
        except (TypeError, ValueError, RuntimeError) as error:
            raise InputError(
                f"features must be a tensor with one row a node (got {type(features).__name__})."
            ) from error
        features = features.float() if features.dtype == torch.float64 else features
    if features.dim() != 2 or not features.shape[1] or features.is_complex():
        raise InputError(
            f"features must be numbers, one row a node and one column or more (got {_described(features)})."
        )
    return features


def _described(features: Tensor) -> str:
    return f"{features.dtype} {tuple(features.shape)}"


class LARA:
    """Learns to explain a model; afterwards an explanation is a dot product.

    Args:
        model: Any callable f(graph, features) -> logits, one row a node (or a graph of a batch). Nothing else of it is
            used: no gradients, no edge weights, no hidden layers.
        graph: A DGL graph; for `task="graph"` a batch of graphs.
        features: (num_nodes, columns); without them graph.ndata["feat"].
        task: "node" or "graph": what is explained.
        hops: K, how far the model looks: a number, "auto" (what it declares as `num_hops`, else Eq. 13), "measure".
        value: The number explained: "logit", "probability", "log-odds" or "output" (regression).
        config: Settings of the training; without them, what measured best for a graph of this size.
        memory: Bytes that training and explaining keep to; without them, most of what is free.
        batches_on: A device that gets batches while the data stays in main memory (graphs larger than a GPU).
        store: Where embeddings are kept on disk, so that the next process need not make them again.
        players: Who is scored: "nodes", "edges" or "features"; or with more to say, `Edges(directed=True)`,
            `Features(of="target", baseline="mean", groups={"job": [1, 2, 3]})`.

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

    def __init__(
        self,
        model: Model,
        graph: dgl.DGLGraph,
        features: Tensor | np.ndarray | None = None,
        task: str | Task = "node",
        hops: int | str = "auto",
        value: str = "logit",
        config: TrainingConfig | None = None,
        memory: int | None = None,
        batches_on: torch.device | None = None,
        store: EmbeddingStore | None = None,
        players: str | Choice = "nodes",
    ) -> None:
        self.model, self.graph = model, graph
        self.players = as_players(players)
        self.task = as_task(task)
        self.features = as_features(graph, features)
        self.hops, self.value, self.config, self.memory = hops, value, config, memory
        self.batches_on = batches_on if self.task.local else None  # graphs come in batches anyway
        self.store = store
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
        lara = LARA(*where, config, game.budget.memory, players=game.choice)
        lara.game = game
        return lara

    def __repr__(self) -> str:
        """What is explained, and how well it has learned; nothing is computed for it."""
        size = f"{self.graph.num_nodes():,} nodes and {self.graph.num_edges():,} edges"
        where = f"a graph with {size}" if self.task.local else f"{self.graph.batch_size:,} graphs with {size}"
        state = "not trained yet: fit(targets)"
        if self.is_trained:
            config = self.explainer_.config
            state = f"K = {config.hops}, {config.num_classes} classes, gate {config.gate}"
        best = max((row["agreement"] for row in vars(self).get("history_", [])), default=None)
        learned = "" if best is None else f", agreement {best:.3f} after {self.history_[-1]['step']} steps"
        inner = unwrapped(self.model)
        model = getattr(inner, "__name__", type(inner).__name__)
        who = "" if self.players == Nodes() else f" by their {self.players.name}"
        return f"LARA(explains {self.task}s of {where}{who}; model {model}, value {self.value}; {state}{learned})"

    @property
    def is_trained(self) -> bool:
        return "explainer_" in vars(self)

    @cached_property
    def _f(self) -> Model:
        """The model, where it gets its batches."""
        return OnDevice(self.model, self.batches_on) if self.batches_on else self.model

    @cached_property
    def game(self) -> Game:
        """What is explained. Made when first asked for; f's pass over the graph is spared where its answer is kept."""
        f = self._f
        hops = choose_hops(f, self.graph, self.features, self.task, self.hops, self.memory)
        answer = self.store.answer() if self.store else None
        if answer is not None:
            answer = answer.to(self.features.device)
        elif self.batches_on:
            answer = predict_in_batches(f, self.graph, self.features, hops)
        where = (f, self.graph, self.features, self.task, hops, self.value, answer)
        return Game(*where, memory=self.memory, players=self.players)

    # --- learning

    def fit(
        self,
        targets: Targets,
        validation: Targets | None = None,
        resume: dict | None = None,
        checkpoint: Callable[[TrainingState], None] = lambda state: None,
        callback: Callable[[dict[str, float]], object] = lambda row: None,
    ) -> LARA:
        """Train the explainer.

        Args:
            targets: Nodes (or graphs) to learn from: numbers, or a mask of booleans. No label is used.
            validation: Those on which it is judged; without them, a tenth of the targets is held out.
            resume: An earlier state's `to_dict()`, to go on from.
            checkpoint: Called with the state now and then, and when training is interrupted.
            callback: Called with step, epoch, loss and agreement whenever g has been judged, some twenty times:
                `callback=wandb.log`, or `lambda row: writer.add_scalar("loss", row["loss"], row["step"])`.

        Returns:
            Itself.
        """
        chosen = self._as_targets(targets).unique()
        self.config_ = self.config or within_memory(default(self.task, len(chosen)), self.game)
        if validation is None:
            shuffled = chosen[torch.randperm(len(chosen), generator=generator(self.config_.seed)).to(chosen.device)]
            held_out = max(1, len(chosen) // 10)
            chosen, judging = (shuffled[held_out:], shuffled[:held_out]) if len(chosen) > 1 else (chosen, chosen)
        else:
            judging = self._as_targets(validation).unique()
        with working("preparing what the explainer sees of each node"):
            seen = encoder_graph(self.game, self.config_.inputs)
        told = len(resume["history"]) if resume else 0

        def judged(state: TrainingState) -> None:
            nonlocal told
            checkpoint(state)
            for row in state.history[told:]:
                callback(dict(row))
            told = len(state.history)

        self.state_ = train(self.game, self.config_, chosen, judging, resume, judged, seen)
        self.explainer_ = self.state_.best_explainer()
        self.history_ = self.state_.history
        self._embeddings, self._seen = None, seen
        before = self.game.nodes_asked
        self.samples_ = self._shared_samples()
        self.cost_ = (self.state_.nodes_asked + self.game.nodes_asked - before) / self.game.num_targets
        with working("learning how far the scores can be trusted"):
            self.errors_ = self._learned_errors(judging)
        return self

    def _shared_samples(self) -> SharedSamples | None:
        """What training has kept, and as many more as were asked for: some where training asked f about parts of the
        graph only; none of graphs, which are games of their own (what helps one of them costs as much as `refine`)."""
        asked, keeper = self.config_.shared_pairs, self.state_.keeper
        if asked is None:
            affordable = self.task.local and self.graph.num_nodes() <= self.game.nodes_a_call and not self.batches_on
            affordable &= self.game.kind.shares
            asked = DRAWN_PAIRS if affordable and keeper is None else 0
        keeper = keeper or SampleKeeper(self.game, asked, self.config_.seed)
        if asked > keeper.seen:
            draw_more(keeper, min(asked, keeper.most) - keeper.seen)
        return keeper.samples()

    def _learned_errors(self, judging: Tensor) -> ErrorModel | None:
        """How wrong g is on targets that it has not learned from, by samples that are at hand."""
        samples = self.state_.judging
        if self.samples_ is not None:
            players = self.game.players(some_targets(judging, ERROR_TARGETS, self.config_.seed).sort().values)
            samples = self.samples_.of(players, self.task.is_target(players))
        if samples is None or len(samples.d) < FEWEST_SAMPLES:
            return None
        return learn_errors(self._amortised(samples.players.targets, None), samples)

    @property
    def _is_too_large(self) -> bool:
        """For one pass of g over everything."""
        needed = full_pass_bytes(self.explainer_, self.graph.num_nodes())
        return self.task.local and (bool(self.batches_on) or needed > self.game.budget.memory)

    # --- explaining

    def embed(self, workers: int = 0) -> Embeddings:
        """p and t of everything: made once, from the store where they are; layer by layer where one pass is too large.

        Args:
            workers: Sampler processes of a layer-wise pass.
        """
        self.check_trained()
        with self._embedding:
            if self._embeddings is None and self.store:
                stored = self.store.embeddings(self.explainer_)
                device = self.features.device
                self._embeddings = stored and Embeddings(stored.source.to(device), stored.target.to(device))
            if self._embeddings is None:
                self._embeddings = self._embed(workers)
                if self.store:
                    self.store.keep(self.game.answer, self.explainer_, self._embeddings)
            return self._embeddings

    def _embed(self, workers: int) -> Embeddings:
        kind, device = self.config_.inputs, self.features.device
        if not self._is_too_large:
            with working("one pass of the explainer over everything"):
                seen, self._seen = self._seen or encoder_graph(self.game, kind), None
                return embed_graph(self.explainer_, seen)
        try:
            found = embed_layerwise(self.explainer_.to(self.batches_on or device), self.game, kind, workers=workers)
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
        self, targets: Targets, classes: Targets | tuple[int, int] | None = None, corrected: bool = True
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
        chosen = self._as_targets(targets)
        wanted = None if classes is None else self._as_classes(classes, len(chosen))
        return self.trusted(self._amortised(chosen, wanted), corrected)

    def _amortised(self, targets: Tensor, classes: Tensor | None) -> Explanations:
        if self.is_embedded or len(targets) > FEW or not self.task.local:
            return explain(self.explainer_, self.game, self.embed(), targets, classes)
        game = vars(self).get("game") or self._game_near(targets)
        return explain_nearby(self.explainer_, game, self.config_.inputs, targets, classes)

    def trusted(self, explanations: Explanations, correct: bool = True) -> Explanations:
        """With what is known of their errors, and corrected where f has been asked about the target before."""
        nobody = torch.zeros(len(explanations), dtype=torch.bool)
        if self.errors_ is None:
            return replace(explanations, corrected=nobody)
        if correct and self.samples_ is not None:
            if self.samples_.are_of_another(explanations.game or self.game, explanations.players.targets):
                say(OTHER_MODEL.format(self.task))
            return correct_explanations(explanations, self.samples_, self.errors_)
        return replace(explanations, variance=self.errors_.variance(explanations), corrected=nobody)

    def _game_near(self, targets: Tensor) -> Game:
        """Asks f about the surroundings of the targets alone; an explanation of them needs no more, words included."""
        graph = bare(self.graph)
        where = (self._f, graph, self.features, targets, self.explainer_, self.value, self.memory)
        return game_nearby(*where, self.players)

    def bulk(self, workers: int = 0) -> BulkExplainer:
        """For very many targets: keeps the best players of each."""
        self.check_trained()
        return BulkExplainer(self.explainer_, self.game, self.embed(workers))

    def top(self, targets: Targets, k: int = 20) -> TopPlayers:
        """The k best players of each target, without a list of all of them."""
        return self.bulk().top(self._as_targets(targets), k)

    def refine(self, explanations: Explanations, pairs: int, seed: int = 0) -> Refined:
        """Better scores, and how far each explanation moved: bought with 2 * pairs model evaluations a target."""
        return refine(explanations.game or self.game, explanations, pairs, seed)

    def settle(self, explanations: Explanations, at_least: float = AT_LEAST, seed: int = 0) -> Settled:
        """Model calls for explanations that are not trusted yet: pairs of coalitions of their own, more and more, until
        they are expected to explain this share of the true attribution."""
        stretch = self.errors_.stretch if self.errors_ else 1.0
        return settle_doubtful(explanations.game or self.game, explanations, stretch, at_least, seed)

    def verify(self, explanations: Scored, draws: int = DRAWS, seed: int = 0) -> pd.DataFrame:
        """Fidelity of each explanation beside that of random players, by model calls."""
        return verify(explanations.game or self.game, explanations, draws, seed)

    # --- on disk

    def save(self, path: Path | str, **more: float) -> None:
        """The trained explainer in one file, with the samples that correct its scores; `LARA.load` opens it beside the
        model and the graph. `more`: numbers to be stored beside it."""
        self.check_trained()
        about = described(self.config_, self.value, self.errors_, self.cost_) | {"players": to_dict(self.players)}
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
            more: memory, batches_on, store, as for `LARA`.
        """
        where = as_features(graph, features)
        explainer, stored = load_explainer(Path(path), where.device)
        config, players = explainer.config, stored.get("players")
        more |= {"players": "nodes" if players is None else from_dict(players)}
        lara = LARA(model, graph, where, config.task, config.hops, stored.get("value", "logit"), **more)
        return lara.with_explainer(explainer, stored)

    def with_explainer(self, explainer: Explainer, stored: dict[str, Any]) -> LARA:
        """Itself, with a trained g; `stored` is what its file holds beside it."""
        self.explainer_ = explainer
        self.config_ = TrainingConfig(**stored["training"]) if "training" in stored else _guessed_config(explainer)
        errors, samples = stored.get("errors"), stored.get("samples")
        hops = explainer.config.hops if self.task.local else 0
        self.errors_, self.samples_, self.cost_ = None, None, stored.get("cost")
        self.history_ = stored.get("history", vars(self).get("history_", []))
        if errors is not None:
            self.errors_ = ErrorModel.from_dict(errors, hops, "what is stored of g's errors").to(self.features.device)
        if samples is not None:
            self.samples_ = SharedSamples.from_dict(samples, "what is stored of shared coalitions")
        self._embeddings = self._seen = None
        return self

    # --- what users give

    def check_trained(self) -> None:
        if not self.is_trained:
            raise LaraError("this LARA has not learned yet; call fit(targets) first.")

    def _as_targets(self, targets: Targets) -> Tensor:
        count = self.task.num_targets(self.graph)
        try:
            chosen = torch.as_tensor(targets, device=self.features.device)
        except (ValueError, TypeError, RuntimeError, OverflowError) as error:
            raise InputError(f"targets must be whole numbers or a mask of booleans ({error}).") from error
        if chosen.dtype == torch.bool and len(chosen) != count:
            raise InputError(f"a mask of targets must have {count} entries (got {len(chosen)}).")
        if chosen.dim() > 1:
            raise InputError(f"targets must be one list of {self.task} numbers (got shape {tuple(chosen.shape)}).")
        if chosen.is_floating_point() and len(chosen.flatten()):
            raise InputError("targets must be whole numbers or a mask of booleans.")
        chosen = chosen.nonzero().flatten() if chosen.dtype == torch.bool else chosen.long().flatten()
        check_targets(chosen, count, self.task)
        return chosen

    def _as_classes(self, classes: Targets | tuple[int, int], count: int) -> Tensor:
        """(count,), or (count, 2) where a class is set against another."""
        if isinstance(classes, tuple) and len(classes) == 2:
            if count == 2:
                raise InputError(
                    f"classes={classes} can mean one class for each of the two targets, or one rather than the other; "
                    f"write {list(classes)} for the first, {[list(classes)] * 2} for the second."
                )
            return torch.stack([self._as_classes([one] * count, count) for one in classes], dim=1)
        if isinstance(classes, list) and classes and all(isinstance(one, list | tuple) for one in classes):
            if any(len(one) != 2 for one in classes):
                raise InputError("classes must name one, or two to set against each other, for each target.")
            return torch.stack([self._as_classes([one[side] for one in classes], count) for side in (0, 1)], dim=1)
        try:
            given = torch.as_tensor(classes, device=self.features.device).flatten()
        except (ValueError, TypeError, RuntimeError, OverflowError) as error:
            raise InputError(f"classes must be whole numbers ({error}).") from error
        if len(given) and (given.is_floating_point() or given.is_complex() or given.dtype == torch.bool):
            raise InputError(f"classes must be whole numbers (got {given.tolist()[:5]}).")
        wanted = given.long()
        if len(wanted) != count:
            raise InputError(f"classes must name one a target, {count} (got {len(wanted)}).")
        known = self.explainer_.config.num_classes
        if int(wanted.min()) < 0 or int(wanted.max()) >= known:
            raise InputError(f"classes must lie in 0..{known - 1} (got {wanted.tolist()[:5]}).")
        return wanted


def described(
    config: TrainingConfig, value: str, errors: ErrorModel | None = None, cost: float | None = None
) -> dict[str, Any]:
    """What a file with a trained explainer says beside shape and weights."""
    return {"training": asdict(config), "value": value, "errors": errors.to_dict() if errors else None, "cost": cost}


def explain_once(
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
    return lara.fit(torch.arange(lara.task.num_targets(graph))).explain(targets, classes)


def _guessed_config(explainer: Explainer) -> TrainingConfig:
    """Of files of 0.1.0, which hold g alone. Only what g sees matters for explaining, and its clip tells that."""
    return TrainingConfig(inputs="rich" if bool(torch.isfinite(explainer.clip)) else "features")
