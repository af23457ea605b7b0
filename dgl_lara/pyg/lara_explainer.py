"""`LARAExplainer`: trained once, then a mask is a walk over what one pass of g has embedded, and no model call."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import dgl
import torch
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData
from torch_geometric.explain import Explainer, ExplainerAlgorithm, Explanation, HeteroExplanation
from torch_geometric.explain.config import ExplanationType, MaskType, ModelMode, ModelTaskLevel

from dgl_lara.blackbox.adapter import unwrap
from dgl_lara.blackbox.pyg import from_pyg
from dgl_lara.errors import InputError, LaraError
from dgl_lara.explanation import Explanations
from dgl_lara.game.player_specs import Edges, Features, Nodes, PlayerSpec
from dgl_lara.lara import LARA
from dgl_lara.pyg.answers import as_logits
from dgl_lara.pyg.masks import column_mask, edge_mask, entry_mask, node_mask, of_types
from dgl_lara.training.config import TrainingConfig

Index = int | Tensor | None
Masks: TypeAlias = Explanation | HeteroExplanation
Inputs = dict[Any, Tensor]  # of the model, by name; of several types by name and type
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
        target_type: Of graphs of several types (x and edge_index are dicts): the type whose nodes the model answers
            for. Masks then are by type and by relation, in a HeteroExplanation.

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
        target_type: str | None = None,
    ) -> None:
        super().__init__()
        self.target_type = target_type
        self.hops, self.value, self.config, self.memory = hops, value, config, memory
        self.players: dict[str, PlayerSpec] = {
            "nodes": Nodes(), "edges": Edges(directed), "features": Features(baseline=baseline)
        }  # fmt: skip
        self.laras: dict[str, LARA] = {}
        self._inputs: Inputs = {}  # what they were trained on
        self._elsewhere: tuple[Inputs, dict[str, LARA]] = ({}, {})  # the same on the graph that was asked about last

    # --- what PyG asks for

    def supports(self) -> bool:
        if self.model_config.task_level == ModelTaskLevel.edge:
            logging.error(
                "LARAExplainer explains nodes and graphs, not task_level='edge'; links are explained by "
                "LARA(*from_pyg(model, data), task='link')."
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
            x: (num_nodes, num_features), or {type: x}.
            edge_index: (2, num_edges), or {relation: edge_index}.
            index: Nodes (or graphs) to learn from; without it all of them. No label is used.
            more: What the model takes besides: batch, for a graph task; edge_attr, edge_weight and other data of the
                edges. A `target` is not needed.

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
        value = "output" if self.model_config.mode == ModelMode.regression else self.value
        laras = {}
        for kind in self._makers:
            who: dict[str, Any] = {"players": self.players[kind], "target_type": self.target_type}
            lara = LARA(*where, self._task, self.hops, value, self.config, self.memory, **who)
            laras[kind] = lara.fit(_chosen(index, _count(lara), lara.features.device))
        self.laras, self._inputs, self._elsewhere = laras, _copied(_inputs(x, edge_index, more)), ({}, {})
        return self

    def forward(
        self, model: nn.Module, x: Any, edge_index: Any, *, target: Tensor, index: Index = None, **more: Any
    ) -> Masks:
        laras, found = self._explained(model, x, edge_index, target, index, more)
        return self._as_masks(laras, found)

    def each(
        self, model: nn.Module, x: Any, edge_index: Any, *, target: Tensor, index: Index = None, **more: Any
    ) -> Iterator[Masks]:
        """One explanation for each output in `index`, from one pass."""
        laras, found = self._explained(model, x, edge_index, target, index, more)
        for place in range(len(next(iter(found.values())))):
            mine = {kind: explanations[place].batch for kind, explanations in found.items()}
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

    def _as_masks(self, laras: dict[str, LARA], found: dict[str, Explanations]) -> Masks:
        makers = self._makers
        masks = {makers[kind][0]: makers[kind][1](laras[kind], some) for kind, some in found.items()}
        types = next(iter(laras.values())).types
        return Explanation(**masks) if types is None else of_types(types, masks)

    def _explained(
        self, model: nn.Module, x: Any, edge_index: Any, target: Tensor, index: Index, more: dict[str, Any]
    ) -> tuple[dict[str, LARA], dict[str, Explanations]]:
        if missing := set(self._makers) - set(self.laras):
            raise LaraError(
                f"LARAExplainer has not learned to explain by {' and '.join(sorted(missing))} yet; call "
                "explainer.algorithm.train(model, x, edge_index) first."
            )
        laras = self._laras_on(model, x, edge_index, more)
        first = next(iter(laras.values()))
        count, device = _count(first), first.features.device
        chosen = _chosen(index, count, device)
        classes = None
        if self.model_config.mode != ModelMode.regression:
            if target.dim() != 1 or len(target) != count or target.is_floating_point():
                raise InputError(
                    f"target must hold a class for each of the model's {count} outputs (got {target.dtype} "
                    f"{tuple(target.shape)})."
                )
            classes = target.to(device)[chosen]
        for lara in laras.values():
            lara.embed()  # once for this graph: no explanation of it needs the model then
        return laras, {kind: laras[kind].explain(chosen, classes) for kind in self._makers}

    def _where(self, model: nn.Module, x: Any, edge_index: Any, more: dict[str, Any]) -> tuple[Any, dgl.DGLGraph, Any]:
        """f, graph and features, for `LARA`; of copies, so that later changes in place are noticed."""
        x, edge_index, more = _copied(x), _copied(edge_index), _copied(more)
        tensors = list(_inputs(x, edge_index, {}).values())
        alike = isinstance(x, dict) == isinstance(edge_index, dict)
        if not alike or not all(isinstance(one, Tensor) and one.layout is torch.strided for one in tensors):
            raise InputError(
                "LARAExplainer takes x and a dense edge_index of (2, num_edges), or a dict of these by type and by "
                f"relation (got {type(x).__name__} and {type(edge_index).__name__})."
            )
        given = {name.removesuffix("_dict"): value for name, value in more.items() if value is not None}
        batch = given.pop("batch", None)
        if batch is not None and bool((batch.diff() < 0).any()):
            raise InputError("batch must be rising: the nodes of a graph stand together.")
        if isinstance(x, dict):
            by_type = {name: value for name, value in given.items() if isinstance(value, dict)}
            data: Any = HeteroData()
            for name, value in {"x": x, "edge_index": edge_index, **by_type}.items():
                data.set_value_dict(name, value)
        else:
            data = Data(x=x, edge_index=edge_index, batch=batch, **given)
        f, graph, features = from_pyg(model, data, self._task)
        carried = {name for relation in graph.canonical_etypes for name in graph.edges[relation].data}
        if lost := sorted(given.keys() - carried):
            raise InputError(
                "LARAExplainer gives the model the nodes and edges that are left, with data that has a row for each "
                f"edge and that the model takes, and nothing else of the graph (got {', '.join(lost)})."
            )
        return as_logits(f, self.model_config), graph, features

    def _laras_on(self, model: nn.Module, x: Any, edge_index: Any, more: dict[str, Any]) -> dict[str, LARA]:
        """Those trained, or, of another graph, the same g there."""
        f, graph, features = self._where(model, x, edge_index, more)
        if any(unwrap(lara.model) is not unwrap(f) for lara in self.laras.values()):
            raise LaraError("this LARAExplainer was trained on another model; call explainer.algorithm.train again.")
        asked = _inputs(x, edge_index, more)
        for inputs, laras in ((self._inputs, self.laras), self._elsewhere):
            if _are_equal(inputs, asked):
                return laras
        self._elsewhere = _copied(asked), {kind: lara.on(graph, features) for kind, lara in self.laras.items()}
        return self._elsewhere[1]


def explain_each(
    explainer: Explainer,
    x: Tensor | dict,
    edge_index: Tensor | dict,
    *,
    target: Tensor | None = None,
    index: Index = None,
    **more: Any,
) -> Iterator[Masks]:
    """`explainer(x, edge_index, index=i)` for every i of `index`, with one pass of the model for all of them.

    Args:
        explainer: PyG's, with a trained `LARAExplainer`.
        x: (num_nodes, num_features), or {type: x}.
        edge_index: (2, num_edges), or {relation: edge_index}.
        target: The labels, of a "phenomenon".
        index: Outputs to explain; without it all of them.
        more: What the model takes besides, as in training.

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
        about = {"prediction": prediction, "target": target, "index": output.reshape(1)}
        for name, value in {**about, "x": x, "edge_index": edge_index, **more}.items():
            if isinstance(value, dict):
                explanation.set_value_dict(name.removesuffix("_dict"), value)
            else:
                explanation[name] = value
        explanation.validate_masks()
        yield explanation.threshold(explainer.threshold_config)


def _chosen(index: Index, count: int, device: torch.device) -> Tensor:
    """Numbers of outputs, however PyG's users name them: a number, numbers, a mask; None for all."""
    everyone = torch.arange(count, device=device)
    try:
        return everyone if index is None else everyone[index].reshape(-1)
    except IndexError as error:
        raise InputError(f"index must name outputs 0..{count - 1} of the model ({error}).") from error


def _count(lara: LARA) -> int:
    return lara.task.num_targets(lara.graph)


def _inputs(x: Any, edge_index: Any, more: dict[str, Any]) -> Inputs:
    found: Inputs = {}
    for name, value in {"x": x, "edge_index": edge_index, **more}.items():
        parts = value.items() if isinstance(value, dict) else [(None, value)]
        found |= {(name, kind): part for kind, part in parts if part is not None}
    return found


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _copied(part) for name, part in value.items()}
    return value.detach().clone() if isinstance(value, Tensor) else value


def _are_equal(mine: Inputs, theirs: Inputs) -> bool:
    return mine.keys() == theirs.keys() and all(
        part.device == theirs[name].device and torch.equal(part, theirs[name]) for name, part in mine.items()
    )
