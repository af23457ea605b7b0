"""`LARA`: the method as an estimator. The constructor stores, `fit` trains, `explain` scores.

explanations = LARA(model, graph, features).fit(nodes).explain(nodes)

`blackbox/adapters.py` adapts models that are not called as f(graph, features) -> logits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from dgl_lara import lara_io
from dgl_lara._util.progress import status
from dgl_lara._util.validation import whole_number
from dgl_lara.errors import InputError
from dgl_lara.explained_model import ExplainedModel, Targets
from dgl_lara.explanation import Explanations
from dgl_lara.inference.adaptive import AT_LEAST, refine_until_confident
from dgl_lara.inference.fitting import agree_on, finish, hold_out, reporter, train_in_memory, training_config
from dgl_lara.inference.local import explain_nearby
from dgl_lara.inference.novelty import with_novelty
from dgl_lara.inference.refine import refine
from dgl_lara.inference.scorer import Scorer
from dgl_lara.inference.targets import parse_classes
from dgl_lara.inference.verification import DRAWS, verify
from dgl_lara.training.config import TrainingConfig

if TYPE_CHECKING:
    from typing import Self  # Python 3.10 has it not

    import pandas as pd

    from dgl_lara.blackbox.call import Model
    from dgl_lara.explainer.network import Explainer
    from dgl_lara.game.game import Game
    from dgl_lara.game.player_specs import PlayerSpec
    from dgl_lara.game.values import ClassQuery
    from dgl_lara.graphs.graph import Graph
    from dgl_lara.inference.adaptive import AdaptiveResult
    from dgl_lara.inference.refine import RefineResult
    from dgl_lara.inference.scorer import TopPlayers
    from dgl_lara.training.state import TrainingState


class LARA(ExplainedModel):
    """An explainer of one model, trained once. Afterwards an explanation is a dot product.

    Args:
        model: A function f(graph, features) that returns logits, one row for each node (or graph of a batch). For
            links, f(graph, features, u, v) returns a score for each pair. Neither gradients nor hidden layers are
            used. The model finds its edge data (graph.edata) in every graph it is called with.
        graph: A DGL graph, heterogeneous or not. For `task="graph"` a batch of graphs.
        features: (num_nodes, columns), or {type: (num_nodes, columns)}. None means graph.ndata["feat"].
        task: What is explained: "node", "graph" or "link".
        hops: K, the receptive field of the model: a number, "auto" (its `num_hops`, otherwise Eq. 13) or "measure".
        value: The explained number: "logit", "probability", "log-odds" or "output" (regression, the default of links).
        config: Settings of the training. None means what measured best for a graph of this size.
        memory: Bytes of working memory. None means most of what is free.
        compute_device: Device that computes batches while the data stays in main memory.
        store: File that keeps embeddings for the next process.
        players: Player set: "nodes", "edges", "features", or with options `Edges(directed=True)`,
            `Features(of="target", baseline="mean", groups={"job": [1, 2, 3]})`.
        target_type: On a heterogeneous graph, the type of the explained nodes.
        pairs: For links, [(u, v), ...] to explain most. Their scores are corrected by the model calls of the training.
        relation: On a heterogeneous graph, the relation of `pairs`: its name, or (type, name, type).
        leave_out: For links, remove edges between the ends of `pairs` from the graph before training.
        index: What a score is: "banzhaf" (the paper: uniform coalitions), "shapley" (scores that add up) or "keep-P"
            such as "keep-0.9" (coalitions that keep 90 % of the players).

    Attributes:
        fitted_: What training left behind, None before. The other attributes are read from it.
        explainer_: The trained g.
        config_: Settings of the training.
        history_: Step, epoch, loss and agreement of each validation.
        samples_: Outputs of f that correct scores. None means nothing is kept.
        errors_: Expected errors of the scores. None means unknown.
        cost_: Nodes that f was given in training, for each target. None means unknown.
        state_: State after the last step of `fit`.

    Examples:
        >>> lara = LARA(model, graph, features).fit(train_nodes)
        >>> lara.explain([512, 640]).to_frame()
        >>> lara.save("lara.pt")
    """

    warn_if_poor = True  # after `fit`, if little was learned

    @staticmethod
    def of_game(game: Game, config: TrainingConfig | None = None) -> LARA:
        """Return a `LARA` of a game that exists already.

        Args:
            game: The game.
            config: Settings of the training. None means what measured best.
        """
        data = (game.f, game.graph, game.features, game.task, game.hops, game.value)
        lara = LARA(*data, config, game.budget.memory, players=game.player_spec, index=game.index)
        lara._game = game
        return lara

    def __repr__(self) -> str:
        size = f"{self.graph.num_nodes():,} nodes and {self.graph.num_edges():,} edges"
        model = self.user_model
        parts = [
            f"{self.task}s of {self.task.graph_text(self.graph, size)}",
            f"model {getattr(model, '__name__', type(model).__name__)}", f"value {self.value}",
            f"players {self.players.name}",
        ]  # fmt: skip
        if self.fitted_ is None:
            return f"LARA({', '.join(parts)}, not trained yet)"
        shape, best = self.explainer_.config, self.agreement
        parts += [f"K = {shape.hops}", f"{shape.num_classes} classes", f"gate {shape.gate}"]
        if best is not None:
            parts.append(f"agreement {best:.3f} after {self.history_[-1]['step']} steps")
        return f"LARA({', '.join(parts)})"

    # --- the explainer of other players, pairs and graphs

    def for_players(self, players: PlayerSpec, hops: int | str = "auto") -> LARA:
        """Return an untrained `LARA` of this model and graph for another player set.

        Args:
            players: The player set.
            hops: K.
        """
        return LARA(
            self.model, self.graph, self.features, self.task, hops, self.value, self.config, self.memory,
            self.compute_device, players=players, target_type=self.target_type, relation=self.relation,
            leave_out=self.leave_out, index=self.index,
        )  # fmt: skip

    def on_graph(self, graph: Graph, features: Any, pairs: Any = None) -> LARA:
        """Return the trained explainer on another graph. Samples of this graph are not kept.

        Args:
            graph: A graph for this model.
            features: Features of its nodes.
            pairs: For links, pairs of it.
        """
        fitted = self.fitted.on_another_graph()
        other = LARA(
            self.user_model, graph, features, self.task.name, self.game.hops, self.value, self.config, self.memory,
            self.compute_device, players=self.players, target_type=self.target_type, pairs=pairs,
            relation=self.relation, leave_out=self.leave_out, index=self.index,
        )  # fmt: skip
        return other.with_fitted(fitted)

    # --- training

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
            targets: Nodes, graphs or pairs to learn from: numbers, or a mask of booleans. No label is used.
            validation: Targets to validate on. None means a tenth of the targets. A partitioned graph needs them.
            resume: `to_dict()` of a training state, to continue from.
            checkpoint: Called with the state after each validation, and if training is interrupted.
            callback: Called with step, epoch, loss and agreement after each validation, such as `wandb.log`.

        Returns:
            This `LARA`.
        """
        self._resolve_targets(targets, validation)
        ids = self._ids_of(targets).unique()
        config = self._training_config(len(ids))
        if validation is None:
            ids, validation_ids = self._hold_out(ids, config.seed)
        else:
            validation_ids = self._ids_of(validation).unique()
        report = reporter(checkpoint, callback, resume)
        agree_on(config)
        self._train(config, ids, validation_ids, resume, report)
        return self

    def _resolve_targets(self, *targets: Targets | None) -> None:
        """Take the targets of training as those of the task if it has none yet."""
        self.graph, self.task = self._reader.graph_and_task(targets, self.leave_out)

    def _training_config(self, num_targets: int) -> TrainingConfig:
        return training_config(self.config, self.game, num_targets)

    def _hold_out(self, targets: Tensor, seed: int) -> tuple[Tensor, Tensor]:
        return hold_out(targets, seed)

    def _train(
        self,
        config: TrainingConfig,
        targets: Tensor,
        validation: Tensor,
        resume: dict | None,
        report: Callable[[TrainingState], None],
    ) -> None:
        state, graph = train_in_memory(self.game, config, targets, validation, resume, report)
        self._adopt(state, config)
        self.embedder.reset(graph)
        may_draw = not self.compute_device
        self.fitted_ = finish(self.game, state, self.fitted, validation, self._amortised, may_draw, self.warn_if_poor)

    # --- explaining

    def explain(
        self, targets: Targets, classes: ClassQuery | Targets | tuple[int, int] | None = None, corrected: bool = True
    ) -> Explanations:
        """Return the scores of all players of the targets.

        Args:
            targets: Nodes, graphs or pairs: numbers, or a mask of booleans.
            classes: One class for each target. None means the predicted classes. A pair (a, b) explains for all targets
                why a rather than b.
            corrected: Correct scores with the outputs that training kept, without model calls. Otherwise scores are
                those of g alone.

        Returns:
            `Explanations`. A few targets are explained from their neighbourhoods if nothing is embedded yet.
        """
        num_classes = self.fitted.explainer.config.num_classes
        lara = self.for_pairs(targets)
        ids = lara._ids_of(targets)
        query = None if classes is None else parse_classes(classes, len(ids), num_classes, ids.device)
        return lara.fitted.with_errors(lara._amortised(ids, query), corrected)

    def explain_on(
        self,
        graph: Graph,
        features: Tensor | np.ndarray | Mapping[str, Tensor] | None,
        targets: Targets,
        classes: Targets | tuple[int, int] | None = None,
    ) -> Explanations:
        """Return scores on another graph, such as this one with new nodes. Nothing is trained.

        Args:
            graph: A graph for this model.
            features: Features of its nodes.
            targets: Nodes, graphs or pairs of it.
            classes: As for `explain`.

        Returns:
            Amortised `Explanations`. Their `novelty` is the distance of each target from the training data.
        """
        other = self.on_graph(graph, features, self._reader.pairs_of(targets))
        return with_novelty(other.explain(targets, classes), self.explainer_, self.config_.inputs)

    def _amortised(self, targets: Tensor, query: ClassQuery | None = None) -> Explanations:
        explainer, inputs, embedder = self.fitted.explainer, self.fitted.config.inputs, self.embedder
        if len(targets) > self.task.max_nearby_targets or embedder.has(explainer, self.features.device):
            return self.scorer().explain(targets, query)
        game = self._game or self._game_nearby(targets)
        return explain_nearby(explainer, game, inputs, targets, query, embedder.graph)

    def scorer(self, workers: int = 0) -> Scorer:
        """Return a scorer to keep for many targets. It holds embeddings in the layout of a compiled kernel.

        Args:
            workers: As for `embed`.
        """
        explainer = self.explainer_
        return Scorer(explainer, self.game, self.embed(workers))

    def top(self, targets: Targets, k: int = 20) -> TopPlayers:
        """Return the k best players of each target, without a list of all players.

        Args:
            targets: As for `explain`.
            k: Players kept of each target.
        """
        return self.scorer().top(self._ids_of(targets), whole_number("k", k))

    def refine(self, explanations: Explanations, pairs: int, seed: int = 0) -> RefineResult:
        """Improve scores with model calls.

        Args:
            explanations: What `explain` returned.
            pairs: Pairs of coalitions for each target. The model is evaluated twice for each.
            seed: Seed of the coalitions.

        Returns:
            The better explanations, and how far each of them moved.
        """
        return refine(self._game_of(explanations), explanations, pairs, self._stretch, seed)

    def refine_until(self, explanations: Explanations, at_least: float = AT_LEAST, seed: int = 0) -> AdaptiveResult:
        """Improve the doubtful explanations with model calls until they reach a confidence.

        Args:
            explanations: What `explain` returned.
            at_least: Confidence to reach.
            seed: Seed of the coalitions.

        Returns:
            The explanations, and the pairs of coalitions spent on each.
        """
        return refine_until_confident(self._game_of(explanations), explanations, self._stretch, at_least, seed)

    def verify(self, explanations: Explanations, draws: int = DRAWS, seed: int = 0) -> pd.DataFrame:
        """Compare the fidelity of each explanation with that of random players, by model calls.

        Args:
            explanations: What `explain` returned.
            draws: Random explanations for each target.
            seed: Seed of the random players.
        """
        return verify(self._game_of(explanations), explanations, draws, seed)

    @property
    def _stretch(self) -> float:
        return self.fitted_.stretch if self.fitted_ else 1.0

    def _game_of(self, explanations: Explanations) -> Game:
        if not isinstance(explanations, Explanations):
            raise InputError("explanations.type", got=type(explanations).__name__)
        return explanations.game or self.game

    def check_supports_refinement(self, is_requested: bool) -> None:
        """Raise InputError if explanations of many targets cannot be refined. In memory they can."""

    # --- files

    def save(self, path: Path | str, **more: float) -> None:
        """Write the trained explainer to a file, with the samples that correct its scores.

        Args:
            path: File to write. `LARA.load` reads it.
            more: Further numbers to store.
        """
        fitted, pairs = self.fitted, self._reader.stored_pairs()
        lara_io.save_fitted(Path(path), fitted, self.user_model, self.value, self.index, self.players, pairs, more)

    @staticmethod
    def load(path: Path | str, model: Model, graph: Graph, features: Tensor | None = None, **options: Any) -> LARA:
        """Return the `LARA` that `save` stored, ready to explain.

        Args:
            path: The file.
            model: The model that it was trained to explain.
            graph: The graph, or another one for the model.
            features: As for `LARA`.
            options: memory, compute_device, store, target_type, pairs, relation and leave_out, as for `LARA`. Without
                pairs, those that it was saved with.
        """
        device = getattr(graph, "device", torch.device("cpu"))  # the constructor checks the graph
        explainer, saved, stored = lara_io.read_explainer(Path(path), device)
        saved |= {name: value for name, value in options.items() if value is not None}
        lara = LARA(model, graph, features, explainer.config.task, explainer.config.hops, **saved)
        lara.restore(explainer, stored)
        lara_io.note_differences(stored, model, lara.fitted, lara.task.num_targets(lara.graph))
        return lara

    def restore(self, explainer: Explainer, stored: dict[str, Any]) -> LARA:
        """Use an explainer that was read from a file, and return this `LARA`.

        Args:
            explainer: The explainer.
            stored: All else that the file holds.
        """
        reader = None if stored.get("pairs") is None else self._reader
        return self.with_fitted(lara_io.fitted_from_file(explainer, stored, self.features.device, reader))


def explain(
    model: Model,
    graph: Graph,
    features: Tensor,
    targets: Targets,
    classes: Targets | None = None,
    **settings: Any,
) -> Explanations:
    """Train on all nodes (or graphs) and explain some, for a first look; `dgl_lara.explain`.

    Training takes most of the time, so keep a `LARA` to explain more than once.

    Args:
        model: As for `LARA`.
        graph: A DGL graph.
        features: (num_nodes, columns).
        targets: Nodes (or graphs) to explain.
        classes: One class for each target. None means the predicted classes.
        settings: Further arguments of `LARA`.

    Examples:
        >>> print(explain(model, graph, features, [512])[0].in_words())
    """
    lara = LARA(model, graph, features, **settings)
    all_targets = torch.ones(lara.task.num_targets(graph), dtype=torch.bool)
    return lara.fit(all_targets if len(all_targets) else targets).explain(targets, classes)
