"""Models that are called otherwise than f(graph, features) -> logits, each adapted in a line.

features_in_graph(model)            model(graph), with the features in graph.ndata['feat']
keywords(model, features="x")       model(graph, x=features), and other fixed arguments
edge_weight(model, "w")             model(graph, features, graph.edata["w"])
element(model, 0)                   one element of an output tuple, list or dict
head(model, 2), head(model, "mean") one of several heads, (rows, heads, classes)
link_predictor(encoder)             a score for pairs of nodes, from a model that gives embeddings
from_pyg(model, data)               a PyTorch Geometric model and its data
pyg(model)                          the model alone, where the graph comes from a file

They can be put into one another, and hand on the ends of pairs where links are asked about. Features are {type: x} on
graphs of several types. Outputs of one number a row need none of them: `value="logit"` takes the number for
the logit of class 1 of two, `value="output"` (regression) for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import dgl
from torch import Tensor

from dgl_lara.blackbox.adapter import ModelAdapter, unwrap
from dgl_lara.blackbox.call import Model
from dgl_lara.blackbox.pyg import from_pyg, pyg
from dgl_lara.errors import InputError, ModelError

__all__ = [
    "edge_weight", "element", "features_in_graph", "from_pyg", "head", "keywords", "link_predictor", "pyg", "unwrap",
]  # fmt: skip


def features_in_graph(model: Callable, name: str = "feat") -> Model:
    """For model(graph) that reads its features from the graph.

    Args:
        model: Called with the graph alone.
        name: Where it looks, graph.ndata[name].

    Returns:
        f(graph, features), for `LARA`.

    Examples:
        >>> LARA(features_in_graph(model), graph, graph.ndata["feat"])
    """
    return FeaturesInGraph(model, name=name)


class FeaturesInGraph(ModelAdapter):
    name: str

    def forward(self, graph: dgl.DGLGraph, features: Tensor | Mapping[str, Tensor], *ends: Tensor) -> Any:
        with graph.local_scope():
            by_type = features if isinstance(features, Mapping) else {graph.ntypes[0]: features}
            for kind, rows in by_type.items():
                graph.nodes[kind].data[self.name] = rows
            return self.model(graph, *ends)


def keywords(
    model: Callable,
    features: str = "features",
    graph: str | None = None,
    ends: tuple[str, str] = ("u", "v"),
    **others: Any,
) -> Model:
    """For a model that is called by keywords.

    Args:
        model: Called as model(graph, <features>=..., ...).
        features: What it calls the features.
        graph: What it calls the graph, where that too is given by keyword.
        ends: What it calls both ends of a pair, where links are asked about.
        others: Further arguments, the same in every call.

    Examples:
        >>> keywords(model, graph="g", features="inputs", training=False)
    """
    return Keywords(model, features=features, graph=graph, ends=ends, others=others)


class Keywords(ModelAdapter):
    features: str
    graph: str | None
    ends: tuple[str, str] = ("u", "v")
    others: dict[str, Any]

    def forward(self, graph: dgl.DGLGraph, features: Tensor, *ends: Tensor) -> Any:
        pair = dict(zip(self.ends, ends, strict=True)) if ends else {}
        named = {self.features: features, **pair, **self.others}
        return self.model(graph, **named) if self.graph is None else self.model(**{self.graph: graph}, **named)


def edge_weight(model: Callable, column: str = "w", keyword: str | None = None) -> Model:
    """For a model that takes what edges carry as an argument: weights, or other data.

    Args:
        model: Called as model(graph, features, graph.edata[column]).
        column: Which data of the edges it takes. On graphs of several types it is given {relation: rows}.
        keyword: What it calls them, where they are given by keyword.

    Examples:
        >>> LARA(edge_weight(model, "amount", keyword="edge_weight"), graph, features)
    """
    return EdgeWeight(model, column=column, keyword=keyword)


class EdgeWeight(ModelAdapter):
    column: str
    keyword: str | None

    def forward(self, graph: dgl.DGLGraph, features: Tensor, *ends: Tensor) -> Any:
        several = len(graph.canonical_etypes) > 1
        held = {relation: graph.edges[relation].data for relation in graph.canonical_etypes}
        found = {relation: data[self.column] for relation, data in held.items() if self.column in data}
        if not found:
            known = ", ".join(sorted({f"'{name}'" for data in held.values() for name in data})) or "nothing"
            raise ModelError(
                f"the model takes the edge data '{self.column}', but the edges carry {known}; put it into "
                f"graph.edata['{self.column}']."
            )
        rows = found if several else next(iter(found.values()))
        if self.keyword is None:
            return self.model(graph, features, rows, *ends)
        return self.model(graph, features, *ends, **{self.keyword: rows})


def element(model: Callable, which: int | str) -> Model:
    """For a model that returns several things.

    Args:
        model: Returns a tuple, a list or a dict.
        which: The place or the key of the logits in it.

    Examples:
        >>> element(model, "logits")
    """
    return Element(model, which=which)


class Element(ModelAdapter):
    which: int | str

    def forward(self, graph: dgl.DGLGraph, features: Tensor, *ends: Tensor) -> Any:
        output = self.model(graph, features, *ends)
        try:
            return output[self.which]
        except (KeyError, IndexError, TypeError) as error:
            held = list(output) if isinstance(output, dict) else f"{len(output)} elements"
            raise ModelError(f"the model's output has no element {self.which!r} (it has {held}).") from error


def head(model: Callable, which: int | str) -> Model:
    """For a model with several heads.

    Args:
        model: Returns (rows, heads, classes).
        which: The number of one of them, or "mean".

    Examples:
        >>> head(model, "mean")
    """
    if isinstance(which, str) and which != "mean":
        raise InputError(f"head must be a number or 'mean' (got '{which}').")
    return Head(model, which=which)


class Head(ModelAdapter):
    which: int | str

    def forward(self, graph: dgl.DGLGraph, features: Tensor, *ends: Tensor) -> Tensor:
        output = self.model(graph, features, *ends)
        if output.dim() != 3:
            raise ModelError(f"head chooses from (rows, heads, classes) (got {tuple(output.shape)}).")
        if isinstance(self.which, str):
            return output.mean(dim=1)
        if not -output.shape[1] <= self.which < output.shape[1]:
            raise ModelError(f"the model has {output.shape[1]} heads, numbered from 0 (asked for {self.which}).")
        return output[:, self.which]


def link_predictor(
    encoder: Callable, score: str | Callable[[Tensor, Tensor], Tensor] = "dot", types: tuple[str, str] | None = None
) -> Model:
    """For a model that gives embeddings of nodes, and something that scores pairs of them.

    Args:
        encoder: Called as encoder(graph, features); returns one row a node, or {type: rows}.
        score: "dot", or a function (a torch module) of the rows of both ends, which gives one number a pair.
        types: Of both ends, where the encoder returns {type: rows}.

    Returns:
        f(graph, features, u, v), for `LARA(..., task="link")`.

    Examples:
        >>> LARA(link_predictor(encoder, types=("user", "film")), graph, features, task="link", relation="likes")
    """
    if score != "dot" and not callable(score):
        raise InputError(f"score must be 'dot' or a function of the embeddings of both ends (got {score!r}).")
    return LinkPredictor(encoder, score=score, types=types)


class LinkPredictor(ModelAdapter):
    score: str | Callable[[Tensor, Tensor], Tensor]
    types: tuple[str, str] | None

    def forward(self, graph: dgl.DGLGraph, features: Tensor, u: Tensor, v: Tensor) -> Tensor:
        rows = self.model(graph, features)
        one, other = self._of_ends(rows) if isinstance(rows, Mapping) else (rows, rows)
        return (one[u] * other[v]).sum(1) if isinstance(self.score, str) else self.score(one[u], other[v])

    def _of_ends(self, rows: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        if self.types is None or not set(self.types) <= set(rows):
            named = "no types were" if self.types is None else f"types={self.types} was"
            raise ModelError(
                f"the encoder gives embeddings of {', '.join(map(str, rows))}, and {named} given; name those of both "
                "ends, link_predictor(encoder, types=('user', 'item'))."
            )
        return rows[self.types[0]], rows[self.types[1]]
