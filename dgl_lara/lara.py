"""`LARA`: the method as an estimator. The constructor only stores, `fit` learns, `explain` answers.

explanations = LARA(model, graph, features).fit(nodes).explain(nodes)

A model that is called otherwise than f(graph, features) -> logits: see `adapters.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import dgl
import torch
from torch import Tensor

from dgl_lara.errors import InputError, LaraError
from dgl_lara.explainer.network import Explainer
from dgl_lara.explanation import Explanations
from dgl_lara.game.game import Game
from dgl_lara.game.players import max_hop
from dgl_lara.game.removal import bare
from dgl_lara.inference.scores import Embeddings, check_targets, embed_all, explain
from dgl_lara.model import blackbox
from dgl_lara.model.blackbox import Model
from dgl_lara.model.evaluating import evaluating
from dgl_lara.training.loop import TrainingConfig, TrainingState, default, train
from dgl_lara.utils.randomness import generator


def choose_hops(model: Model, graph: dgl.DGLGraph, features: Tensor, task: str, hops: int | str) -> int:
    """K: what was asked for; "auto": what the model says (`num_hops`), else Eq. 13; "measure": Eq. 13 in any case.

    A model that normalises by degree really does look one hop beyond its layers, so Eq. 13 finds 4 for three layers.
    """
    if isinstance(hops, int):
        return hops
    if hops not in ("auto", "measure"):
        raise InputError(f"hops must be a whole number, 'auto' or 'measure' (got '{hops}').")
    declared = getattr(model, "num_hops", None)
    if declared is not None and hops == "auto":
        return int(declared)
    if task == "graph":
        return 3  # every node is a player anyway; K only sets the depth of g
    nodes = torch.linspace(0, graph.num_nodes() - 1, min(20, graph.num_nodes())).long().to(features.device)
    graph = bare(graph)
    blackbox.untouched(model, graph, features, task)  # a model that cannot be explained at all is told so first
    with evaluating(model):
        return max_hop(lambda some, x: blackbox.call(model, some, x, task), graph, features, nodes, tolerance=1e-3)


def features_of(graph: dgl.DGLGraph) -> Tensor:
    """Where DGL's data sets keep them."""
    if "feat" not in graph.ndata:
        held = ", ".join(graph.ndata) or "nothing"
        raise InputError(
            f"no features were given, and graph.ndata has no 'feat' to take in their place (it has {held})."
        )
    return graph.ndata["feat"]


class LARA:
    """Learns to explain `model`, any callable f(graph, features) -> logits (one row a node, or a graph of a batch)."""

    def __init__(
        self,
        model: Model,
        graph: dgl.DGLGraph,
        features: Tensor | None = None,
        task: str = "node",
        hops: int | str = "auto",
        value: str = "logit",
        config: TrainingConfig | None = None,
    ) -> None:
        self.model, self.graph, self.task = model, graph, task
        self.features = features_of(graph) if features is None else features
        self.hops, self.value, self.config = hops, value, config

    def _make_game(self) -> Game:
        hops = choose_hops(self.model, self.graph, self.features, self.task, self.hops)
        return Game(self.model, self.graph, self.features, self.task, hops, self.value)

    def fit(self, targets: Tensor | Sequence[int], validation: Tensor | Sequence[int] | None = None) -> LARA:
        """Train the explainer on these nodes (or graphs). Without `validation`, a tenth of them is held out for it."""
        self.game_ = self._make_game()
        chosen = self._as_targets(targets).unique()
        self.config_ = default(self.task, len(chosen)) if self.config is None else self.config
        if validation is None:
            shuffled = chosen[torch.randperm(len(chosen), generator=generator(self.config_.seed)).to(chosen.device)]
            held_out = max(1, len(chosen) // 10)
            chosen, validating = (shuffled[held_out:], shuffled[:held_out]) if len(chosen) > 1 else (chosen, chosen)
        else:
            validating = self._as_targets(validation).unique()
        state: TrainingState = train(self.game_, self.config_, chosen, validating)
        self.explainer_: Explainer = state.average
        self.explainer_.load_state_dict(state.best_weights)
        self.history_ = state.history
        self.embeddings_: Embeddings = embed_all(self.explainer_, self.game_, self.config_.inputs)
        return self

    def explain(self, targets: Tensor | Sequence[int], classes: Tensor | Sequence[int] | None = None) -> Explanations:
        """Scores of every player of these targets, for the predicted class or for the `classes` asked for."""
        if "explainer_" not in vars(self):
            raise LaraError("this LARA has not learned yet; call fit(targets) first.")
        chosen, wanted = self._as_targets(targets), None
        if classes is not None:
            wanted = torch.as_tensor(classes, device=self.features.device).long().flatten()
            if len(wanted) != len(chosen):
                raise InputError(f"classes must name one a target, {len(chosen)} (got {len(wanted)}).")
            if int(wanted.min()) < 0 or int(wanted.max()) >= self.game_.num_classes:
                raise InputError(f"classes must lie in 0..{self.game_.num_classes - 1} (got {wanted.tolist()[:5]}).")
        return explain(self.explainer_, self.game_, self.embeddings_, chosen, wanted)

    def _as_targets(self, targets: Tensor | Sequence[int]) -> Tensor:
        try:
            chosen = torch.as_tensor(targets, device=self.features.device)
        except (ValueError, TypeError) as error:
            raise InputError(f"targets must be whole numbers or a mask of booleans ({error}).") from error
        if chosen.dtype == torch.bool and len(chosen) != self.game_.num_targets:
            raise InputError(f"a mask of targets must have {self.game_.num_targets} entries (got {len(chosen)}).")
        if chosen.is_floating_point() and len(chosen.flatten()):
            raise InputError("targets must be whole numbers or a mask of booleans.")
        chosen = chosen.nonzero().flatten() if chosen.dtype == torch.bool else chosen.long().flatten()
        check_targets(chosen, self.game_)
        return chosen
