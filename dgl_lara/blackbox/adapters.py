"""Adapters for models that are not called as f(graph, features) -> logits.

features_in_graph(model)            model(graph), with the features in graph.ndata['feat']
keywords(model, features="x")       model(graph, x=features), and other fixed arguments
edge_weight(model, "w")             model(graph, features, graph.edata["w"])
element(model, 0)                   one element of an output tuple, list or dict
head(model, 2), head(model, "mean") one of several heads, (rows, heads, classes)
link_predictor(encoder)             a score for pairs of nodes, from a model that returns embeddings
from_pyg(model, data)               a PyTorch Geometric model and its data
pyg(model)                          the model alone, if the graph comes from a file

Adapters can be nested. They pass on the ends of pairs for link models. On heterogeneous graphs, features are
{type: x}. Outputs of one number per row need no adapter: `value="logit"` takes it for the logit of class 1 of two,
`value="output"` (regression) explains it as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from dgl_lara.blackbox.adapter import ModelAdapter, unwrap
from dgl_lara.blackbox.call import Model
from dgl_lara.blackbox.pyg import from_pyg, pyg
from dgl_lara.errors import InputError, ModelError
from dgl_lara.graphs.graph import Graph

__all__ = [
    "edge_weight", "element", "features_in_graph", "from_pyg", "head", "keywords", "link_predictor", "pyg", "unwrap",
]  # fmt: skip


def features_in_graph(model: Callable, name: str = "feat") -> Model:
    """Adapt model(graph), which reads its features from the graph.

    Args:
        model: Called with the graph alone.
        name: Key of the features in graph.ndata.

    Returns:
        f(graph, features), for `LARA`.

    Examples:
        >>> LARA(features_in_graph(model), graph, graph.ndata["feat"])
    """
    return _FeaturesInGraph(model, name=name)


class _FeaturesInGraph(ModelAdapter):
    name: str

    def forward(self, graph: Graph, features: Tensor | Mapping[str, Tensor], *ends: Tensor) -> Any:
        with graph.local_scope():
            by_type = features if isinstance(features, Mapping) else {graph.ntypes[0]: features}
            for node_type, rows in by_type.items():
                graph.nodes[node_type].data[self.name] = rows
            return self.model(graph, *ends)


def keywords(
    model: Callable,
    features: str = "features",
    graph: str | None = None,
    ends: tuple[str, str] = ("u", "v"),
    **others: Any,
) -> Model:
    """Adapt a model that takes keyword arguments.

    Args:
        model: Called as model(graph, <features>=..., ...).
        features: Name of the argument for the features.
        graph: Name of the argument for the graph, if that is a keyword too.
        ends: Names of the arguments for both ends of a pair, for link models.
        others: Further arguments with fixed values.

    Returns:
        f(graph, features), for `LARA`.

    Examples:
        >>> keywords(model, graph="g", features="inputs", training=False)
    """
    return _Keywords(model, features=features, graph=graph, ends=ends, others=others)


class _Keywords(ModelAdapter):
    features: str
    graph: str | None
    ends: tuple[str, str]
    others: dict[str, Any]

    def forward(self, graph: Graph, features: Tensor, *ends: Tensor) -> Any:
        pair = dict(zip(self.ends, ends, strict=True)) if ends else {}
        named = {self.features: features, **pair, **self.others}
        return self.model(graph, **named) if self.graph is None else self.model(**{self.graph: graph}, **named)


def edge_weight(model: Callable, column: str = "w", keyword: str | None = None) -> Model:
    """Adapt a model that takes edge weights or other edge data as an argument.

    Args:
        model: Called as model(graph, features, graph.edata[column]), with {relation: rows} on heterogeneous graphs.
        column: Key of the edge data in graph.edata.
        keyword: Name of the argument, if it is a keyword.

    Returns:
        f(graph, features), for `LARA`.

    Examples:
        >>> LARA(edge_weight(model, "amount", keyword="edge_weight"), graph, features)
    """
    return _EdgeWeight(model, column=column, keyword=keyword)


class _EdgeWeight(ModelAdapter):
    column: str
    keyword: str | None

    def forward(self, graph: Graph, features: Tensor, *ends: Tensor) -> Any:
        edge_data = {relation: graph.edges[relation].data for relation in graph.canonical_etypes}
        by_relation = {relation: data[self.column] for relation, data in edge_data.items() if self.column in data}
        if not by_relation:
            carried = ", ".join(sorted({f"'{name}'" for data in edge_data.values() for name in data})) or "no data"
            raise ModelError("adapter.no_edge_data", column=self.column, carried=carried)
        rows = by_relation if len(edge_data) > 1 else next(iter(by_relation.values()))
        if self.keyword is None:
            return self.model(graph, features, rows, *ends)
        return self.model(graph, features, *ends, **{self.keyword: rows})


def element(model: Callable, which: int | str) -> Model:
    """Adapt a model that returns several things.

    Args:
        model: Returns a tuple, a list or a dict.
        which: Index or key of the logits.

    Returns:
        f(graph, features), for `LARA`.

    Examples:
        >>> element(model, "logits")
    """
    return _Element(model, which=which)


class _Element(ModelAdapter):
    which: int | str

    def forward(self, graph: Graph, features: Tensor, *ends: Tensor) -> Any:
        outputs = self.model(graph, features, *ends)
        try:
            return outputs[self.which]
        except (KeyError, IndexError, TypeError) as error:
            got = list(outputs) if isinstance(outputs, dict) else f"{len(outputs)} elements"
            raise ModelError("adapter.no_element", which=self.which, got=got) from error


def head(model: Callable, which: int | str) -> Model:
    """Adapt a model with several heads.

    Args:
        model: Returns (rows, heads, classes).
        which: Index of a head, or "mean".

    Returns:
        f(graph, features), for `LARA`.

    Examples:
        >>> head(model, "mean")
    """
    if isinstance(which, str) and which != "mean":
        raise InputError("adapter.head", got=which)
    return _Head(model, which=which)


class _Head(ModelAdapter):
    which: int | str

    def forward(self, graph: Graph, features: Tensor, *ends: Tensor) -> Tensor:
        outputs = self.model(graph, features, *ends)
        if outputs.dim() != 3:
            raise ModelError("adapter.head_shape", got=tuple(outputs.shape))
        if isinstance(self.which, str):
            return outputs.mean(dim=1)
        if not -outputs.shape[1] <= self.which < outputs.shape[1]:
            raise ModelError("adapter.head_range", most=outputs.shape[1] - 1, got=self.which)
        return outputs[:, self.which]


def link_predictor(
    encoder: Callable, score: str | Callable[[Tensor, Tensor], Tensor] = "dot", types: tuple[str, str] | None = None
) -> Model:
    """Adapt a model that returns node embeddings to one that scores pairs of nodes.

    Args:
        encoder: Called as encoder(graph, features). Returns one row per node, or {type: rows}.
        score: "dot", or a function (a torch module) of the rows of both ends that returns one number per pair.
        types: Node types of both ends, if the encoder returns {type: rows}.

    Returns:
        f(graph, features, u, v), for `LARA(..., task="link")`.

    Examples:
        >>> LARA(link_predictor(encoder, types=("user", "film")), graph, features, task="link", relation="likes")
    """
    if score != "dot" and not callable(score):
        raise InputError("adapter.score", got=score)
    return _LinkPredictor(encoder, score=score, types=types)


class _LinkPredictor(ModelAdapter):
    score: str | Callable[[Tensor, Tensor], Tensor]
    types: tuple[str, str] | None

    def forward(self, graph: Graph, features: Tensor, u: Tensor, v: Tensor) -> Tensor:
        rows = self.model(graph, features)
        u_rows, v_rows = self._of_ends(rows) if isinstance(rows, Mapping) else (rows, rows)
        if isinstance(self.score, str):
            return (u_rows[u] * v_rows[v]).sum(1)
        return self.score(u_rows[u], v_rows[v])

    def _of_ends(self, rows: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        if self.types is None or not set(self.types) <= set(rows):
            raise ModelError("adapter.types", types=", ".join(map(str, rows)), got=self.types)
        return rows[self.types[0]], rows[self.types[1]]
