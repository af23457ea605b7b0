"""`LARAExplainer`: LARA as an algorithm of PyTorch Geometric. Trained once, it explains without calls of the model."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData
from torch_geometric.explain import Explainer, ExplainerAlgorithm, Explanation, HeteroExplanation
from torch_geometric.explain.config import ExplanationType, MaskType, ModelMode, ModelTaskLevel

from dgl_lara.blackbox.adapter import unwrap
from dgl_lara.blackbox.pyg import from_pyg
from dgl_lara.errors import InputError, LaraError, message
from dgl_lara.explanation import Explanations
from dgl_lara.game.player_specs import Edges, Features, Nodes, PlayerSpec
from dgl_lara.graphs.graph import Graph
from dgl_lara.lara import LARA
from dgl_lara.pyg.as_logits import as_logits
from dgl_lara.pyg.masks import by_type, column_mask, edge_mask, entry_mask, node_mask
from dgl_lara.training.config import TrainingConfig

Index = int | Tensor | None
Masks: TypeAlias = Explanation | HeteroExplanation
Inputs = dict[Any, Tensor]  # of the model, by name, or by name and type
MaskMaker = Callable[[LARA, Explanations], Tensor]

NODE_MASKS: dict[MaskType, tuple[str, MaskMaker]] = {  # type of node mask -> players, and the function for the mask
    MaskType.object: ("nodes", node_mask),
    MaskType.common_attributes: ("features", column_mask),
    MaskType.attributes: ("features", entry_mask),
}


class LARAExplainer(ExplainerAlgorithm):
    """LARA as an algorithm of PyTorch Geometric's `Explainer`. Masks hold signed scores, not weights in [0, 1].

    A call explains the class that `Explainer` chooses: the predicted one of a "model", the label of a "phenomenon".
    Several outputs, `index=torch.tensor([3, 8])`, are explained by the mean of their masks.

    Args:
        hops: K of the model, as for `LARA`.
        value: "logit", "probability" or "log-odds". A regression model is explained by its output.
        config: Settings of training.
        memory: Bytes that training and explaining may use.
        directed: Score each direction of an edge.
        baseline: The value of removed features: "zero", "mean" or "rows".
        target_type: For heterogeneous graphs (x and edge_index are dicts), the type of the nodes that the model
            classifies. Masks are then given by type and by relation, in a HeteroExplanation.

    Attributes:
        laras: The trained `LARA` by its players, "nodes", "edges" or "features".

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
        self._inputs: Inputs = {}  # of training
        self._other_graph: tuple[Inputs, dict[str, LARA]] = ({}, {})  # the last other graph, and g on it

    def supports(self) -> bool:
        """Return whether LARA can explain the model. The reason why not is logged."""
        if self.model_config.task_level == ModelTaskLevel.edge:
            logging.error(message("pyg.edge_level"))
            return False
        if self.model_config.mode == ModelMode.regression and self.value not in ("logit", "output"):
            logging.error(message("pyg.regression_value", got=self.value))
            return False
        return True

    def train(
        self, model: Any = True, x: Any = None, edge_index: Any = None, *others: Any, index: Index = None, **more: Any
    ) -> Any:
        """Train a `LARA` for each mask, in one call instead of PGExplainer's loop over epochs.

        Args:
            model: The model to explain.
            x: (num_nodes, num_features), or {type: x}.
            edge_index: (2, num_edges), or {relation: edge_index}.
            others: No further positional arguments are allowed.
            index: Nodes (or graphs) to learn from. None means all. No label is used.
            more: Other arguments of the model: batch for a graph task, edge_attr, edge_weight and other edge data. A
                `target` is ignored.

        Returns:
            The algorithm.
        """
        if isinstance(model, bool):
            return super().train(model)  # train() and eval() of torch modules
        if not isinstance(model, nn.Module) or others:
            raise InputError("pyg.arguments", got=type(model).__name__)
        more.pop("target", None)
        data = self._convert(model, x, edge_index, more)
        value = "output" if self.model_config.mode == ModelMode.regression else self.value
        laras = {}
        for name in self._makers:
            options: dict[str, Any] = {"players": self.players[name], "target_type": self.target_type}
            lara = LARA(*data, self._task, self.hops, value, self.config, self.memory, **options)
            laras[name] = lara.fit(_outputs(index, _count(lara), lara.features.device))
        self.laras, self._inputs, self._other_graph = laras, _copy(_inputs(x, edge_index, more)), ({}, {})
        return self

    def forward(
        self, model: nn.Module, x: Any, edge_index: Any, *, target: Tensor, index: Index = None, **more: Any
    ) -> Masks:
        laras, explanations = self._explain(model, x, edge_index, target, index, more)
        return self._masks(laras, explanations)

    def each(
        self, model: nn.Module, x: Any, edge_index: Any, *, target: Tensor, index: Index = None, **more: Any
    ) -> Iterator[Masks]:
        """Yield the masks of each output in `index`, from one pass of the model."""
        laras, explanations = self._explain(model, x, edge_index, target, index, more)
        for row in range(len(next(iter(explanations.values())))):
            one = {name: batch[row].batch for name, batch in explanations.items()}
            yield self._masks(laras, one)

    @property
    def _task(self) -> str:
        return self.model_config.task_level.value

    @property
    def _makers(self) -> dict[str, tuple[str, MaskMaker]]:
        """Return the name and the function of each mask, by players."""
        makers, config = {}, self.explainer_config
        if config.node_mask_type is not None:
            players, maker = NODE_MASKS[config.node_mask_type]
            makers[players] = ("node_mask", maker)
        if config.edge_mask_type is not None:
            makers["edges"] = ("edge_mask", edge_mask)
        return makers

    def _masks(self, laras: dict[str, LARA], explanations: dict[str, Explanations]) -> Masks:
        makers = self._makers
        masks = {makers[name][0]: makers[name][1](laras[name], batch) for name, batch in explanations.items()}
        types = next(iter(laras.values())).types
        return Explanation(**masks) if types is None else by_type(types, masks)

    def _explain(
        self, model: nn.Module, x: Any, edge_index: Any, target: Tensor, index: Index, more: dict[str, Any]
    ) -> tuple[dict[str, LARA], dict[str, Explanations]]:
        if missing := set(self._makers) - set(self.laras):
            raise LaraError("pyg.not_trained", players=" and ".join(sorted(missing)))
        laras = self._laras_on(model, x, edge_index, more)
        first = next(iter(laras.values()))
        count, device = _count(first), first.features.device
        outputs = _outputs(index, count, device)
        classes = None
        if self.model_config.mode != ModelMode.regression:
            if target.dim() != 1 or len(target) != count or target.is_floating_point():
                raise InputError("pyg.target", count=count, dtype=target.dtype, shape=tuple(target.shape))
            classes = target.to(device)[outputs]
        for lara in laras.values():
            lara.embed()  # once per graph. Explanations then need no call of the model
        return laras, {name: laras[name].explain(outputs, classes) for name in self._makers}

    def _convert(self, model: nn.Module, x: Any, edge_index: Any, more: dict[str, Any]) -> tuple[Any, Graph, Any]:
        """Return f, graph and features for `LARA`. Data is copied, so that later changes in place are noticed."""
        x, edge_index, more = _copy(x), _copy(edge_index), _copy(more)
        tensors = list(_inputs(x, edge_index, {}).values())
        both_dicts = isinstance(x, dict) == isinstance(edge_index, dict)
        if not both_dicts or not all(isinstance(one, Tensor) and one.layout is torch.strided for one in tensors):
            raise InputError("pyg.data", x=type(x).__name__, edge_index=type(edge_index).__name__)
        arguments = {name.removesuffix("_dict"): value for name, value in more.items() if value is not None}
        batch = arguments.pop("batch", None)
        if batch is not None and bool((batch.diff() < 0).any()):
            raise InputError("pyg.batch_order")
        if isinstance(x, dict):
            typed = {name: value for name, value in arguments.items() if isinstance(value, dict)}
            data: Any = HeteroData()
            for name, value in {"x": x, "edge_index": edge_index, **typed}.items():
                data.set_value_dict(name, value)
        else:
            data = Data(x=x, edge_index=edge_index, batch=batch, **arguments)
        f, graph, features = from_pyg(model, data, self._task)
        passed = {name for relation in graph.canonical_etypes for name in graph.edges[relation].data}
        if lost := sorted(arguments.keys() - passed):
            raise InputError("pyg.other_data", got=", ".join(lost))
        return as_logits(f, self.model_config), graph, features

    def _laras_on(self, model: nn.Module, x: Any, edge_index: Any, more: dict[str, Any]) -> dict[str, LARA]:
        """Return the trained LARAs, or for another graph LARAs with their g on it."""
        f, graph, features = self._convert(model, x, edge_index, more)
        if any(unwrap(lara.model) is not unwrap(f) for lara in self.laras.values()):
            raise LaraError("pyg.other_model")
        inputs = _inputs(x, edge_index, more)
        for known, laras in ((self._inputs, self.laras), self._other_graph):
            if _are_equal(known, inputs):
                return laras
        self._other_graph = _copy(inputs), {name: lara.on_graph(graph, features) for name, lara in self.laras.items()}
        return self._other_graph[1]


def explain_each(
    explainer: Explainer,
    x: Tensor | dict,
    edge_index: Tensor | dict,
    *,
    target: Tensor | None = None,
    index: Index = None,
    **more: Any,
) -> Iterator[Masks]:
    """Yield `explainer(x, edge_index, index=i)` for every i of `index`, from one pass of the model.

    Args:
        explainer: PyG's explainer, with a trained `LARAExplainer`.
        x: (num_nodes, num_features), or {type: x}.
        edge_index: (2, num_edges), or {relation: edge_index}.
        target: The labels of a "phenomenon".
        index: Outputs to explain. None means all.
        more: Other arguments of the model, as in training.

    Yields:
        The explanation that PyG's call returns, thresholds included.

    Raises:
        InputError: "pyg.not_lara" or "pyg.needs_target".

    Examples:
        >>> for explanation in explain_each(explainer, data.x, data.edge_index, index=data.test_mask):
        ...     fidelity(explainer, explanation)
    """
    algorithm = explainer.algorithm
    if not isinstance(algorithm, LARAExplainer):
        raise InputError("pyg.not_lara", got=type(algorithm).__name__)
    prediction = None
    if explainer.explanation_type == ExplanationType.model:
        prediction = explainer.get_prediction(x, edge_index, **more)
        target = explainer.get_target(prediction)
    if target is None:
        raise InputError("pyg.needs_target")
    outputs = _outputs(index, len(target), target.device)
    explanations = algorithm.each(explainer.model, x, edge_index, target=target, index=outputs, **more)
    for explanation, output in zip(explanations, outputs, strict=True):
        explanation._model_config, explanation._model_args = explainer.model_config, list(more)
        attributes = {"prediction": prediction, "target": target, "index": output.reshape(1)}
        for name, value in {**attributes, "x": x, "edge_index": edge_index, **more}.items():
            if isinstance(value, dict):
                explanation.set_value_dict(name.removesuffix("_dict"), value)
            else:
                explanation[name] = value
        explanation.validate_masks()
        yield explanation.threshold(explainer.threshold_config)


def _outputs(index: Index, count: int, device: torch.device) -> Tensor:
    """Return ids of outputs from a number, numbers, a mask, or None for all."""
    every_output = torch.arange(count, device=device)
    try:
        return every_output if index is None else every_output[index].reshape(-1)
    except IndexError as error:
        raise InputError("pyg.index", most=count - 1, problem=str(error)) from error


def _count(lara: LARA) -> int:
    return lara.task.num_targets(lara.graph)


def _inputs(x: Any, edge_index: Any, more: dict[str, Any]) -> Inputs:
    """Return all tensors by name and type."""
    inputs: Inputs = {}
    for name, value in {"x": x, "edge_index": edge_index, **more}.items():
        items = value.items() if isinstance(value, dict) else [(None, value)]
        inputs |= {(name, key): tensor for key, tensor in items if tensor is not None}
    return inputs


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _copy(item) for name, item in value.items()}
    return value.detach().clone() if isinstance(value, Tensor) else value


def _are_equal(first: Inputs, second: Inputs) -> bool:
    return first.keys() == second.keys() and all(
        tensor.device == second[name].device and torch.equal(tensor, second[name]) for name, tensor in first.items()
    )
