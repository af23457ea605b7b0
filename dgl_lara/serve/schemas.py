"""Bodies and queries that clients send, as pydantic models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from dgl_lara.errors import InputError
from dgl_lara.inference.request import ExplainRequest, RefineOptions

TOP = 20  # players of an explanation by default
MAX_INSTANCES = 10_000  # of one request
MAX_TOP = 10_000
MAX_REFINE_PAIRS = 1024
MAX_NODES, MAX_EDGES = 20_000, 200_000  # of a subgraph in a request, and of one update
MAX_SHOWN_LETTERS = 60  # of a wrong value

Number = Annotated[int, Field(ge=0, lt=2**31)]
Edge = Annotated[tuple[Number, Number], Field(description="from, to")]
End = Number | Annotated[str, Field(max_length=200, description="key of a node that the same update adds")]
Name = Annotated[str, Field(max_length=200)]
Row = Annotated[list[float], Field(min_length=1)]
Rows = Annotated[list[Row], Field(min_length=1, max_length=MAX_NODES)]
Edges = Annotated[list[Edge], Field(max_length=MAX_EDGES)]
EdgeColumn = Annotated[list[float | Row], Field(max_length=MAX_EDGES)]
PlayerSetName = Literal["nodes", "edges", "features"]


class _RequestModel(BaseModel):
    """Base of all bodies. Types are strict and unknown fields are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, populate_by_name=True)


class Subgraph(_RequestModel):
    """A graph of the client. Its nodes are the rows of `features`, numbered from 0.

    With several types, features are by type, and edges and their data by relation.
    """

    features: Rows | dict[Name, Rows]
    edges: Edges | dict[Name, Edges] = Field(default=[], description="list both directions if there are both")
    edge_data: dict[Name, EdgeColumn] | dict[Name, dict[Name, EdgeColumn]] = Field(
        default={}, description="by name, one entry for each edge, if the model reads edge data"
    )


class TargetRef(_RequestModel):
    """A node, a graph or a pair of nodes, by number. With `subgraph`, numbers are those of that graph."""

    node: Number | None = Field(None, examples=[0])
    type: Name | None = Field(None, description="node type, if there are several")
    graph: Number | None = Field(None, description="for models that explain graphs")
    pair: Edge | None = Field(None, description="for models that explain links")
    relation: Name | None = Field(None, description="relation of the pair, if there are several types")
    subgraph: Subgraph | None = None


class Instance(TargetRef):
    """A target with options of its explanation."""

    explained_class: Number | None = Field(None, alias="class", description="default: the predicted class")
    rather_than: Number | None = Field(None, description="explain `class` compared with this class")
    top: Annotated[int, Field(ge=1, le=MAX_TOP)] = TOP
    players: PlayerSetName | None = Field(None, description="default: the first player set that was trained")
    refine: Annotated[int, Field(ge=1, le=MAX_REFINE_PAIRS)] | None = Field(None, description="pairs of model calls")

    def request(self) -> ExplainRequest:
        """Return the options as a request."""
        if self.rather_than is not None and self.explained_class is None:
            raise InputError("classes.rival_alone")
        classes = tuple(one for one in (self.explained_class, self.rather_than) if one is not None)
        return ExplainRequest(refine=RefineOptions(self.refine), top=self.top, classes=classes, players=self.players)

    @property
    def is_cacheable(self) -> bool:
        """Whether the cache can hold the explanation, if its target is in the run."""
        options = (self.subgraph, self.explained_class, self.rather_than, self.refine)
        return all(option is None for option in options) and self.top <= TOP


class ExplainBody(_RequestModel):
    instances: list[Instance] = Field(min_length=1, max_length=MAX_INSTANCES)


class PredictBody(_RequestModel):
    instances: list[TargetRef] = Field(min_length=1, max_length=MAX_INSTANCES)


class NewNode(_RequestModel):
    features: Row
    key: str | None = Field(None, max_length=200, description="name of the node in edges of the same update")
    name: str | None = Field(None, max_length=200)


class GraphUpdate(_RequestModel):
    """A change of the graph. Edges run from the first node to the second. Numbers of removed nodes are not reused."""

    add_nodes: list[NewNode] = Field(default=[], max_length=MAX_NODES)
    add_edges: list[tuple[End, End]] = Field(default=[], max_length=MAX_EDGES)
    remove_nodes: list[Number] = Field(default=[], max_length=MAX_NODES)
    remove_edges: list[Edge] = Field(default=[], max_length=MAX_EDGES)
    both_ways: bool = Field(False, description="each edge stands for both directions")


class TargetsQuery(BaseModel):
    """Query for a list of targets."""

    model_config = ConfigDict(extra="forbid")

    find: str = Field("", max_length=200, description="part of a name or a number")
    predicted: Number | None = Field(None, description="only targets with this predicted class")
    wrong: bool = Field(False, description="only targets whose label is another class")
    order: Literal["number", "confidence"] = Field("number", description="confidence: lowest first")
    offset: Number = 0
    limit: Annotated[int, Field(ge=1, le=200)] = 50


class ViewQuery(BaseModel):
    """Query for one explanation with everything that the page shows of it."""

    model_config = ConfigDict(extra="forbid")

    target: str = Field(pattern="^[0-9]{1,9}(,[0-9]{1,9})?$", description="number of the target; ends of a link: 3,14")
    players: PlayerSetName | None = None
    explained_class: Number | None = Field(None, alias="class")
    rather_than: Number | None = None
    most: Annotated[int, Field(ge=5, le=300)] = Field(100, description="nodes that are drawn")


Body = TypeVar("Body", bound=_RequestModel)
Query = TypeVar("Query", bound=BaseModel)
_parsers: dict[type[_RequestModel], TypeAdapter] = {}


def parse_body(model: type[Body], body: bytes) -> Body:
    """Parse a JSON body, or raise an InputError."""
    parser = _parsers.setdefault(model, TypeAdapter(model))
    try:
        return parser.validate_json(body)
    except ValidationError as error:
        raise _input_error(error) from None


def parse_query(model: type[Query], query: Mapping[str, str]) -> Query:
    """Parse the parameters of a query, or raise an InputError."""
    try:
        return model.model_validate(dict(query))
    except ValidationError as error:
        raise _input_error(error) from None


def parse_plain_nodes(body: bytes) -> list[int] | None:
    """Return the nodes of a request with default options, in a tenth of the time of `parse_body`.

    None means the request has other options, or is invalid.
    """
    try:
        content = orjson.loads(body)
        instances = content["instances"]
        nodes, tops = [one["node"] for one in instances], [one.get("top", TOP) for one in instances]
        is_plain = len(content) == 1 and sum(map(len, instances)) == len(nodes) + sum("top" in one for one in instances)
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        return None
    is_plain &= 0 < len(nodes) <= MAX_INSTANCES and set(tops) == {TOP}
    is_plain &= {*map(type, tops), *map(type, nodes)} == {int}
    return nodes if is_plain and min(nodes) >= 0 else None


def _input_error(error: ValidationError) -> InputError:
    """Return the first problem. If a field allows several shapes, return that of the closest shape."""
    problems = error.errors(include_url=False, include_context=False)
    first = max(problems, key=lambda one: len(one["loc"]))
    field = ".".join(str(part) for part in first["loc"] if "[" not in str(part))  # without the names of shapes
    problem = first["msg"][0].lower() + first["msg"][1:]
    if first["type"] == "missing":
        return InputError("request.field_missing", field=field, problem=problem)
    value = repr(first["input"])
    shown = value if len(value) <= MAX_SHOWN_LETTERS else value[: MAX_SHOWN_LETTERS - 3] + "..."
    return InputError("request.field", field=field or "the request", problem=problem, got=shown)
