"""`LARAExplainer`: trained once, then a mask is a walk over what one pass of g has embedded, and no model call."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any, cast

import dgl
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.explain import Explainer, ExplainerAlgorithm, Explanation
from torch_geometric.explain.config import ExplanationType, MaskType, ModelMode, ModelTaskLevel

from dgl_lara.errors import InputError, LaraError
from dgl_lara.explanation import Explanations
from dgl_lara.game.kinds import Choice, Edges, Features, Nodes
from dgl_lara.lara import LARA, described
from dgl_lara.model.adapters import from_pyg, unwrapped
from dgl_lara.pyg.answers import as_logits
from dgl_lara.pyg.masks import column_mask, edge_mask, entry_mask, node_mask
from dgl_lara.training.config import TrainingConfig

Index = int | Tensor | None
MaskMaker = Callable[[LARA, Explanations], Tensor]

NODE_MASKS: dict[MaskType, tuple[str, MaskMaker]] = {
    MaskType.object: ("nodes", node_mask),
    MaskType.common_attributes: ("features", column_mask),
    MaskType.attributes: ("features", entry_mask),
}


class LARAExplainer(ExplainerAlgorithm):
    """LARA as an algorithm of PyTorch Geometric's `Explainer`. Masks hold signed scores, not weights in [0, 1].

    A call explains the class that `Explainer` names: the predicted one of a "model", the label of a "phenomenon".
    Several outputs, `index=torch.tensor([3, 8])`, are explained together, as their mean.

    Args:
        hops: As for `LARA`: how far the model looks.
        value: "logit", "probability" or "log-odds"; of a regression always its output.
        config: Settings of the training.
        memory: Bytes that training and explaining keep to.
        directed: Each direction of an edge has a score of its own.
        baseline: What takes the place of removed features: "zero", "mean" or "rows".

    Attributes:
        laras: The trained `LARA` by the kind of its players, "nodes", "edges" or "features".

    Examples:
        >>> explainer = Explainer(model, LARAExplainer(), explanation_type="model", edge_mask_type="object", ...)
        >>> explainer.algorithm.train(model, data.x, data.edge_index)
        >>> explainer(data.x, data.edge_index, index=5).edge_mask
    """

    def __init__(
        self,
        hops: int | str = "auto",
        value: str = "logit",
        config: TrainingConfig | None = None,
        memory: int | None = None,
        directed: bool = False,
        baseline: str = "zero",
    ) -> None:
        super().__init__()
        self.hops, self.value, self.config, self.memory = hops, value, config, memory
        self.players: dict[str, Choice] = {
            "nodes": Nodes(), "edges": Edges(directed), "features": Features(baseline=baseline)
        }  # fmt: skip
        self.laras: dict[str, LARA] = {}
        self._elsewhere: dict[str, LARA] = {}  # the same on the graph that was asked about last

    # --- what PyG asks for

    def supports(self) -> bool:
        if self.model_config.task_level == ModelTaskLevel.edge:
            logging.error(
                "LARAExplainer explains nodes and graphs, not task_level='edge': a link is no target of LARA's."
            )
            return False
        if self.model_config.mode == ModelMode.regression and self.value not in ("logit", "output"):
            logging.error(
                f"LARAExplainer explains the output of a regression model as it is (got value='{self.value}')."
            )
            return False
        return True

    def train(
        self, model: Any = True, x: Any = None, edge_index: Any = None, *others: Any, index: Index = None, **more: Any
    ) -> Any:
        """Learns once, in the place of PGExplainer's loop over epochs; one `LARA` for each kind of mask.

        Args:
            model: The model to explain.
            x: (num_nodes, num_features).
            edge_index: (2, num_edges).
            index: Nodes (or graphs) to learn from; without it all of them. No label is used.
            more: batch, for a graph task: the graph that each node belongs to. A `target` is not needed.

        Returns:
            Itself.
        """
        if isinstance(model, bool):
            return super().train(model)  # of every torch module: train(), eval()
        if not isinstance(model, nn.Module) or others:
            raise InputError(
                f"train takes the model first, train(model, x, edge_index): LARA learns in one call and has no epochs "
                f"(got {type(model).__name__})."
            )
        more.pop("target", None)
        where = self._where(model, x, edge_index, more)
        targets = _chosen(index, self._count(where[1]), where[1].device)
        value = "output" if self.model_config.mode == ModelMode.regression else self.value
        laras = {}
        for kind in self._makers:
            lara = LARA(
                *where, self._task, self.hops, value, self.config, self.memory, players=self.players[kind]
            )  # fmt: skip
            laras[kind] = lara.fit(targets)
        self.laras, self._elsewhere = laras, {}
        return self

    def forward(
        self, model: nn.Module, x: Any, edge_index: Any, *, target: Tensor, index: Index = None, **more: Any
    ) -> Explanation:
        laras, found = self._explained(model, x, edge_index, target, index, more)
        return self._as_masks(laras, found)

    def each(
        self, model: nn.Module, x: Any, edge_index: Any, *, target: Tensor, index: Index = None, **more: Any
    ) -> Iterator[Explanation]:
        """One explanation for each output in `index`, from one pass."""
        laras, found = self._explained(model, x, edge_index, target, index, more)
        for place in range(len(next(iter(found.values())))):
            mine = {kind: cast(Explanations, explanations[place].batch) for kind, explanations in found.items()}
            yield self._as_masks(laras, mine)

    # --- how

    @property
    def _task(self) -> str:
        return self.model_config.task_level.value

    @property
    def _makers(self) -> dict[str, tuple[str, MaskMaker]]:
        """By the kind of players: which mask, and what makes it."""
        makers, config = {}, self.explainer_config
        if config.node_mask_type is not None:
            kind, maker = NODE_MASKS[config.node_mask_type]
            makers[kind] = ("node_mask", maker)
        if config.edge_mask_type is not None:
            makers["edges"] = ("edge_mask", edge_mask)
        return makers

    def _as_masks(self, laras: dict[str, LARA], found: dict[str, Explanations]) -> Explanation:
        makers = self._makers
        return Explanation(**{makers[kind][0]: makers[kind][1](laras[kind], some) for kind, some in found.items()})

    def _explained(
        self, model: nn.Module, x: Any, edge_index: Any, target: Tensor, index: Index, more: dict[str, Any]
    ) -> tuple[dict[str, LARA], dict[str, Explanations]]:
        if missing := set(self._makers) - set(self.laras):
            raise LaraError(
                f"LARAExplainer has not learned to explain by {' and '.join(sorted(missing))} yet; call "
                "explainer.algorithm.train(model, x, edge_index) first."
            )
        laras = self._laras_on(self._where(model, x, edge_index, more))
        count = self._count(next(iter(laras.values())).graph)
        chosen = _chosen(index, count, x.device)
        classes = None
        if self.model_config.mode != ModelMode.regression:
            if target.dim() != 1 or len(target) != count or target.is_floating_point():
                raise InputError(
                    f"target must hold a class for each of the model's {count} outputs (got {target.dtype} "
                    f"{tuple(target.shape)})."
                )
            classes = target.to(x.device)[chosen]
        for lara in laras.values():
            lara.embed()  # once for this graph: no explanation of it needs the model then
        return laras, {kind: laras[kind].explain(chosen, classes) for kind in self._makers}

    def _where(
        self, model: nn.Module, x: Any, edge_index: Any, more: dict[str, Any]
    ) -> tuple[Any, dgl.DGLGraph, Tensor]:
        """f, graph and features, for `LARA`."""
        if not isinstance(x, Tensor) or not isinstance(edge_index, Tensor) or edge_index.layout is not torch.strided:
            raise InputError(
                "LARAExplainer takes a graph with one kind of node, x and a dense edge_index of (2, num_edges) (got "
                f"{type(x).__name__} and {type(edge_index).__name__})."
            )
        batch = more.get("batch")
        given = {name for name, value in more.items() if value is not None and name != "batch"}
        if given:
            raise InputError(
                f"LARAExplainer gives the model the nodes and edges that are left and nothing else of the graph (got "
                f"{', '.join(sorted(given))}); wrap the model so that it needs x, edge_index and batch alone."
            )
        if batch is not None and bool((batch.diff() < 0).any()):
            raise InputError("batch must be rising: the nodes of a graph stand together.")
        # a copy, so that later changes of x in place are noticed
        f, graph, features = from_pyg(model, Data(x=x.detach().clone(), edge_index=edge_index, batch=batch), self._task)
        return as_logits(f, self.model_config), graph, features

    def _count(self, graph: dgl.DGLGraph) -> int:
        return graph.num_nodes() if self.model_config.task_level == ModelTaskLevel.node else graph.batch_size

    def _laras_on(self, where: tuple[Any, dgl.DGLGraph, Tensor]) -> dict[str, LARA]:
        """Those trained, or, of another graph, the same g there."""
        f, graph, features = where
        if any(unwrapped(lara.model) is not unwrapped(f) for lara in self.laras.values()):
            raise LaraError("this LARAExplainer was trained on another model; call explainer.algorithm.train again.")
        for known in (self.laras, self._elsewhere):
            if known and all(_is_of(lara, graph, features) for lara in known.values()):
                return known
        self._elsewhere = {kind: _moved(lara, graph, features) for kind, lara in self.laras.items()}
        return self._elsewhere


def explain_each(
    explainer: Explainer,
    x: Tensor,
    edge_index: Tensor,
    *,
    target: Tensor | None = None,
    index: Index = None,
    **more: Any,
) -> Iterator[Explanation]:
    """`explainer(x, edge_index, index=i)` for every i of `index`, with one pass of the model for all of them.

    Args:
        explainer: PyG's, with a trained `LARAExplainer`.
        x: (num_nodes, num_features).
        edge_index: (2, num_edges).
        target: The labels, of a "phenomenon".
        index: Outputs to explain; without it all of them.
        more: batch, for a graph task.

    Yields:
        What PyG's call gives, thresholds included; one after the other, since every mask is as long as the graph.

    Examples:
        >>> for explanation in explain_each(explainer, data.x, data.edge_index, index=data.test_mask):
        ...     fidelity(explainer, explanation)
    """
    algorithm = explainer.algorithm
    if not isinstance(algorithm, LARAExplainer):
        raise InputError(f"explain_each is for a LARAExplainer (got {type(algorithm).__name__}).")
    prediction = None
    if explainer.explanation_type == ExplanationType.model:
        prediction = explainer.get_prediction(x, edge_index, **more)
        target = explainer.get_target(prediction)
    if target is None:
        raise InputError("a phenomenon is explained by its labels: give target=.")
    outputs = _chosen(index, len(target), target.device)
    found = algorithm.each(explainer.model, x, edge_index, target=target, index=outputs, **more)
    for explanation, output in zip(found, outputs, strict=True):
        explanation._model_config, explanation._model_args = explainer.model_config, list(more)
        explanation.update({"prediction": prediction, "target": target, "index": output.reshape(1)})
        explanation.update({"x": x, "edge_index": edge_index, **more})
        explanation.validate_masks()
        yield explanation.threshold(explainer.threshold_config)


def _chosen(index: Index, count: int, device: torch.device) -> Tensor:
    """Numbers of outputs, however PyG's users name them: a number, numbers, a mask; None for all."""
    everyone = torch.arange(count, device=device)
    try:
        return everyone if index is None else everyone[index].reshape(-1)
    except IndexError as error:
        raise InputError(f"index must name outputs 0..{count - 1} of the model ({error}).") from error


def _is_of(lara: LARA, graph: dgl.DGLGraph, features: Tensor) -> bool:
    if lara.features.device != features.device or lara.graph.batch_size != graph.batch_size:
        return False
    pairs = [
        (lara.features, features),
        (lara.graph.batch_num_nodes(), graph.batch_num_nodes()),
        *zip(lara.graph.edges(), graph.edges(), strict=True),
    ]
    return all(torch.equal(mine, theirs) for mine, theirs in pairs)


def _moved(lara: LARA, graph: dgl.DGLGraph, features: Tensor) -> LARA:
    """The trained g on another graph of the same model; what f said of the first one does not count there."""
    hops = lara.explainer_.config.hops
    there = LARA(lara.model, graph, features, lara.task, hops, lara.value, memory=lara.memory, players=lara.players)
    return there.with_explainer(lara.explainer_, described(lara.config_, lara.value, lara.errors_, lara.cost_))
