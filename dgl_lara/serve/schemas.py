"""What clients send, checked as it is read: one sentence for whatever does not fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from dgl_lara.errors import InputError

TOP = 20  # players of an explanation, unless asked otherwise
MOST_INSTANCES = 10_000  # of one request
MOST_TOP = 10_000
MOST_PAIRS = 1024  # of coalitions, to refine with
MOST_NODES, MOST_EDGES = 20_000, 200_000  # of a graph that a request brings along, and of one update

Number = Annotated[int, Field(ge=0, lt=2**31)]
Edge = Annotated[tuple[Number, Number], Field(description="from, to")]
End = Number | Annotated[str, Field(max_length=200, description="the key of a node that the same update adds")]
Name = Annotated[str, Field(max_length=200)]
Row = Annotated[list[float], Field(min_length=1)]
Rows = Annotated[list[Row], Field(min_length=1, max_length=MOST_NODES)]
Edges = Annotated[list[Edge], Field(max_length=MOST_EDGES)]
Carried = Annotated[list[float | Row], Field(max_length=MOST_EDGES)]


class RequestModel(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, populate_by_name=True)


class Subgraph(RequestModel):
    """A graph of the client's own. Rows of features are its nodes, numbered from 0. Of several types: features by type,
    edges and what they carry by relation."""

    features: Rows | dict[Name, Rows]
    edges: Edges | dict[Name, Edges] = Field(default=[], description="both directions, where there are both")
    edge_data: dict[Name, Carried] | dict[Name, dict[Name, Carried]] = Field(
        default={}, description="by name, one entry an edge, where the model reads it"
    )


class TargetRef(RequestModel):
    """What is asked about: a node, a graph or a pair of nodes, by number; with `subgraph`, of the client's graph."""

    node: Number | None = Field(None, examples=[0])
    type: Name | None = Field(None, description="of the node, where there are several")
    graph: Number | None = Field(None, description="where the model explains graphs")
    pair: Edge | None = Field(None, description="where the model explains links")
    relation: Name | None = Field(None, description="that the pair stands for, where there are several types")
    subgraph: Subgraph | None = None


class Instance(TargetRef):
    asked_class: Number | None = Field(None, alias="class", description="without it, the predicted one")
    rather_than: Number | None = Field(None, description="with class: why that one rather than this")
    top: Annotated[int, Field(ge=1, le=MOST_TOP)] = TOP
    players: Literal["nodes", "edges", "features"] | None = Field(None, description="without it, the first trained")
    refine: Annotated[int, Field(ge=1, le=MOST_PAIRS)] | None = Field(None, description="pairs of model calls")


class ExplainRequest(RequestModel):
    instances: list[Instance] = Field(min_length=1, max_length=MOST_INSTANCES)


class PredictRequest(RequestModel):
    instances: list[TargetRef] = Field(min_length=1, max_length=MOST_INSTANCES)


class NewNode(RequestModel):
    features: Row
    key: str | None = Field(None, max_length=200, description="by which edges of the same update know it")
    name: str | None = Field(None, max_length=200)


class GraphUpdate(RequestModel):
    """Edges run from the first node to the second. A removed node keeps its number, and nobody else gets it."""

    add_nodes: list[NewNode] = Field(default=[], max_length=MOST_NODES)
    add_edges: list[tuple[End, End]] = Field(default=[], max_length=MOST_EDGES)
    remove_nodes: list[Number] = Field(default=[], max_length=MOST_NODES)
    remove_edges: list[Edge] = Field(default=[], max_length=MOST_EDGES)
    both_ways: bool = Field(False, description="each edge that is named stands for both directions")


_readers: dict[type[RequestModel], TypeAdapter] = {}


def read(kind: type[RequestModel], body: bytes) -> Any:
    """The message; InputError with one sentence where it is none."""
    reader = _readers.setdefault(kind, TypeAdapter(kind))
    try:
        return reader.validate_json(body)
    except ValidationError as error:
        raise InputError(_sentence(error)) from None


def usual_nodes(body: bytes) -> list[int] | None:
    """The nodes of a request that says of each nothing else, or that all players of the table are wanted: what nearly
    everybody sends, read in a tenth of the time. None: it is another one, or none at all."""
    try:
        whole = orjson.loads(body)
        instances = whole["instances"]
        nodes, tops = [one["node"] for one in instances], [one.get("top", TOP) for one in instances]
        plain = len(whole) == 1 and sum(map(len, instances)) == len(nodes) + sum("top" in one for one in instances)
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        return None
    plain &= 0 < len(nodes) <= MOST_INSTANCES and set(tops) == {TOP} and {*map(type, tops), *map(type, nodes)} == {int}
    return nodes if plain and min(nodes) >= 0 else None


def _sentence(error: ValidationError) -> str:
    found = error.errors(include_url=False, include_context=False)
    first = max(found, key=lambda one: len(one["loc"]))  # where several shapes would do, of the one that came closest
    where = ".".join(str(part) for part in first["loc"] if "[" not in str(part))  # without the names of such shapes
    said = first["msg"][0].lower() + first["msg"][1:]
    got = repr(first["input"])
    shown = f" (got {got if len(got) <= 60 else got[:57] + '...'})" if first["type"] != "missing" else ""
    return f"{where or 'the request'}: {said}{shown}."


# --- queries of the explorer


class TargetsQuery(BaseModel):
    """Which targets, in which order."""

    model_config = ConfigDict(extra="forbid")

    find: str = Field("", max_length=200, description="part of a name, or of a number")
    predicted: Number | None = Field(None, description="of this class, by the model")
    wrong: bool = Field(False, description="only those whose label is another one")
    order: Literal["number", "confidence"] = Field("number", description="confidence: the lowest first")
    offset: Number = 0
    limit: Annotated[int, Field(ge=1, le=200)] = 50


class ViewQuery(BaseModel):
    """One explanation with everything that a page shows of it."""

    model_config = ConfigDict(extra="forbid")

    target: str = Field(pattern="^[0-9]{1,9}(,[0-9]{1,9})?$", description="its number; of a link both ends: 3,14")
    players: Literal["nodes", "edges", "features"] | None = None
    asked_class: Number | None = Field(None, alias="class")
    rather_than: Number | None = None
    most: Annotated[int, Field(ge=5, le=300)] = Field(100, description="nodes that are drawn")


def read_query(kind: type[BaseModel], given: Mapping[str, str]) -> Any:
    try:
        return kind.model_validate(dict(given))
    except ValidationError as error:
        raise InputError(_sentence(error)) from None
