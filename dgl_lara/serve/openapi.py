"""The service described as OpenAPI, from the same classes that check what clients send, and as a page."""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from dgl_lara import __version__
from dgl_lara._util.templates import rendered
from dgl_lara.serve.schemas import ExplainRequest, GraphUpdate, PredictRequest, TargetsQuery, ViewQuery

NUMBER, TEXT, FLAG = {"type": "number"}, {"type": "string"}, {"type": "boolean"}
WHOLE = {"type": "integer"}
ERROR = "Error"
SAID = {
    400: "what does not fit, in a sentence", 401: "a bearer token is needed", 404: "there is no such model",
    405: "not a method of this path", 413: "the request is too large", 503: "too busy, or it took too long",
}  # fmt: skip


def listed(item: dict) -> dict:
    return {"type": "array", "items": item}


def having(**fields: dict) -> dict:
    return {"type": "object", "properties": fields, "required": list(fields)}


MAYBE = {"type": ["number", "null"]}
TARGET = {"type": ["integer", "array"], "items": WHOLE, "description": "its number; of a link those of both ends"}
PLAYER = having(id=WHOLE, name=TEXT, hop=WHOLE, score=NUMBER)
PLAYER["properties"]["type"] = {**TEXT, "description": "of a node, where there are several"}
EXPLANATION = having(
    target=TARGET, **{"class": WHOLE}, value=NUMBER, confidence=MAYBE, source=TEXT, players=listed(PLAYER)
)
PREDICTION = having(target=TARGET, **{"class": WHOLE}, name=TEXT, logits=listed(NUMBER))
NAME = {"$ref": "#/components/parameters/name"}


@cache
def description(models: tuple[str, ...]) -> dict[str, Any]:
    """`models`: their names."""
    _, shapes = models_json_schema(
        [(kind, "validation") for kind in (ExplainRequest, PredictRequest, GraphUpdate)],
        ref_template="#/components/schemas/{model}",
    )
    one = "/v1/models/{name}"
    paths = {
        "/v1/models": {"get": _call("list_models", "The models that are served.", having(models=listed(TEXT)))},
        one: {"get": _call("show_model", "One of them.", having(name=TEXT, ready=FLAG), named=True)},
        f"{one}:explain": {
            "post": _call(
                "explain", "Why the model says what it says.",
                having(predictions=listed(NUMBER), explanations=listed(EXPLANATION)), ExplainRequest, named=True,
            )
        },
        f"{one}:predict": {
            "post": _call(
                "predict", "What the model says.", having(predictions=listed(PREDICTION)), PredictRequest, named=True
            )
        },
        f"{one}/graph": {
            "post": _call(
                "update_graph", "Add or remove nodes and edges. An answer means: it is on disk, and it counts.",
                having(sequence=WHOLE, nodes=listed(WHOLE), applied=FLAG), GraphUpdate, named=True,
                also={202: "it is on disk and will count soon"},
            )
        },
        f"{one}/reload": {
            "post": _call("reload", "Load the runs anew, without a lost request.", having(reloading=FLAG), named=True,
                          status=202, also={409: "this process cannot"})
        },
        f"{one}/targets": {
            "get": _call("show_targets", "What there is to explain, for a list.",
                         having(total=WHOLE, rows=listed({"type": "object"})), named=True, query=TargetsQuery)
        },
        f"{one}/view": {
            "get": _call("show_view", "One explanation with everything that a page shows of it.", {"type": "object"},
                         named=True, query=ViewQuery)
        },
        "/healthz": {"get": _call("healthz", "Whether the service answers.", having(status=TEXT))},
        "/metrics": {"get": _call("metrics", "For Prometheus.", None, media="text/plain")},
    }  # fmt: skip
    return {
        "openapi": "3.1.0",
        "info": {"title": "dgl-lara", "version": __version__, "description": "Explanations of a graph neural network."},
        "paths": paths,
        "components": {
            "schemas": {**shapes["$defs"], ERROR: having(error=TEXT)},
            "parameters": {
                "name": {"name": "name", "in": "path", "required": True, "schema": {**TEXT, "enum": list(models)}}
            },
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _call(
    name: str,
    said: str,
    answer: dict | None,
    body: type[BaseModel] | None = None,
    named: bool = False,
    status: int = 200,
    query: type[BaseModel] | None = None,
    media: str = "application/json",
    also: dict[int, str] | None = None,
) -> dict[str, Any]:
    responses: dict[str, Any] = {
        str(status): {"description": said, "content": {media: {"schema": TEXT if answer is None else answer}}}
    }
    for code, words in (also or {}).items():
        responses[str(code)] = {"description": words}
        if code < 300:
            responses[str(code)]["content"] = {media: {"schema": answer or TEXT}}
    refers = {"schema": {"$ref": f"#/components/schemas/{ERROR}"}}
    for code, words in SAID.items():
        responses[str(code)] = {"description": words, "content": {"application/json": refers}}
    call: dict[str, Any] = {"operationId": name, "summary": said, "responses": responses}
    call["parameters"] = ([NAME] if named else []) + _parameters(query)
    if body is not None:
        shape = {"$ref": f"#/components/schemas/{body.__name__}"}
        call["requestBody"] = {"required": True, "content": {"application/json": {"schema": shape}}}
    return call


def _parameters(query: type[BaseModel] | None) -> list[dict[str, Any]]:
    if query is None:
        return []
    shape = query.model_json_schema()
    return [
        {"name": name, "in": "query", "required": name in shape.get("required", []), "schema": _plain(field)}
        for name, field in shape["properties"].items()
    ]


def _plain(field: dict[str, Any]) -> dict[str, Any]:
    """A query has no null: what may be left out is left out."""
    options = [option for option in field.get("anyOf", []) if option.get("type") != "null"]
    rest = {name: value for name, value in field.items() if name not in ("anyOf", "default", "title")}
    return {**rest, **(options[0] if options else {})}


@cache
def description_page(models: tuple[str, ...]) -> str:
    """Without any outside script."""
    content = description(models)
    calls = [
        {"method": method.upper(), "path": path, **call}
        for path, methods in content["paths"].items()
        for method, call in methods.items()
    ]
    return rendered(__package__, "openapi.html", calls=calls, schemas=content["components"]["schemas"])
