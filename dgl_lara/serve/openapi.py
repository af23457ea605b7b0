"""OpenAPI description of the service, built from the models that check requests, and a page that shows it."""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from dgl_lara import __version__
from dgl_lara._util.templates import rendered
from dgl_lara.serve.schemas import ExplainBody, GraphUpdate, PredictBody, TargetsQuery, ViewQuery

Schema = dict[str, Any]
NUMBER, TEXT, FLAG, INTEGER = ({"type": name} for name in ("number", "string", "boolean", "integer"))
ERRORS = {
    400: "the request is invalid", 401: "a bearer token is needed", 404: "there is no such model",
    405: "the path has no such method", 413: "the request is too large", 503: "the service is busy or timed out",
}  # fmt: skip


def _list_of(item: Schema) -> Schema:
    return {"type": "array", "items": item}


def _object(**fields: Schema) -> Schema:
    return {"type": "object", "properties": fields, "required": list(fields)}


TARGET = {"type": ["integer", "array"], "items": INTEGER, "description": "number of the target, or both ends of a link"}
PLAYER = _object(id=INTEGER, name=TEXT, hop=INTEGER, score=NUMBER)
PLAYER["properties"]["type"] = {**TEXT, "description": "node type, if there are several"}
EXPLANATION = _object(
    target=TARGET, **{"class": INTEGER}, value=NUMBER, confidence={"type": ["number", "null"]}, source=TEXT,
    players=_list_of(PLAYER),
)  # fmt: skip
PREDICTION = _object(target=TARGET, **{"class": INTEGER}, name=TEXT, logits=_list_of(NUMBER))
MODEL = "/v1/models/{name}"


@cache
def openapi(models: tuple[str, ...]) -> dict[str, Any]:
    """Return the OpenAPI document.

    Args:
        models: Names of the models.
    """
    _, shapes = models_json_schema(
        [(body, "validation") for body in (ExplainBody, PredictBody, GraphUpdate)],
        ref_template="#/components/schemas/{model}",
    )
    name = {"name": "name", "in": "path", "required": True, "schema": {**TEXT, "enum": list(models)}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "dgl-lara", "version": __version__, "description": "Explanations of a graph neural network."},
        "paths": _paths(),
        "components": {
            "schemas": {**shapes["$defs"], "Error": _object(error=TEXT, code=TEXT)},
            "parameters": {"name": name},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _paths() -> dict[str, Any]:
    explained = _object(predictions=_list_of(NUMBER), explanations=_list_of(EXPLANATION))
    updated = _object(sequence=INTEGER, nodes=_list_of(INTEGER), applied=FLAG)
    targets = _object(total=INTEGER, rows=_list_of({"type": "object"}))
    return {
        "/v1/models": {"get": _call("list_models", "List the models.", _object(models=_list_of(TEXT)))},
        MODEL: {"get": _call("show_model", "Show one model.", _object(name=TEXT, ready=FLAG), MODEL)},
        f"{MODEL}:explain": {"post": _call("explain", "Explain predictions.", explained, MODEL, ExplainBody)},
        f"{MODEL}:predict": {
            "post": _call(
                "predict", "Return the outputs of the model.", _object(predictions=_list_of(PREDICTION)), MODEL,
                PredictBody,
            )
        },
        f"{MODEL}/graph": {
            "post": _call(
                "update_graph", "Add or remove nodes and edges. The update is on disk and applied when it is answered.",
                updated, MODEL, GraphUpdate, also={202: "the update is on disk and will be applied soon"},
            )
        },
        f"{MODEL}/reload": {
            "post": _call("reload", "Reload the runs without losing a request.", _object(reloading=FLAG), MODEL,
                          status=202, also={409: "this process cannot reload"})
        },
        f"{MODEL}/targets": {"get": _call("show_targets", "List targets.", targets, MODEL, query=TargetsQuery)},
        f"{MODEL}/view": {
            "get": _call("show_view", "Return what the explorer shows of one explanation.", {"type": "object"}, MODEL,
                         query=ViewQuery)
        },
        "/healthz": {"get": _call("healthz", "Check that the service answers.", _object(status=TEXT))},
        "/metrics": {"get": _call("metrics", "Return metrics for Prometheus.", TEXT, media="text/plain")},
    }  # fmt: skip


def _call(
    name: str,
    summary: str,
    answer: Schema,
    path: str = "",
    body: type[BaseModel] | None = None,
    query: type[BaseModel] | None = None,
    status: int = 200,
    media: str = "application/json",
    also: dict[int, str] | None = None,
) -> dict[str, Any]:
    """Return one operation. `also`: further statuses, of which those below 300 have the same answer."""
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    responses: dict[str, Any] = {str(status): {"description": summary, "content": {media: {"schema": answer}}}}
    for code, description in (also or {}).items():
        content = {"content": {media: {"schema": answer}}} if code < 300 else {}
        responses[str(code)] = {"description": description, **content}
    responses |= {str(code): {"description": description, "content": error} for code, description in ERRORS.items()}
    parameters = ([{"$ref": "#/components/parameters/name"}] if path else []) + _parameters(query)
    call = {"operationId": name, "summary": summary, "responses": responses, "parameters": parameters}
    if body is not None:
        schema = {"$ref": f"#/components/schemas/{body.__name__}"}
        call["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return call


def _parameters(query: type[BaseModel] | None) -> list[dict[str, Any]]:
    if query is None:
        return []
    shape = query.model_json_schema()
    return [
        {"name": name, "in": "query", "required": name in shape.get("required", []), "schema": _without_null(field)}
        for name, field in shape["properties"].items()
    ]


def _without_null(field: Schema) -> Schema:
    """Return the schema of a query parameter, which is left out instead of null."""
    options = [option for option in field.get("anyOf", []) if option.get("type") != "null"]
    rest = {name: value for name, value in field.items() if name not in ("anyOf", "default", "title")}
    return {**rest, **(options[0] if options else {})}


@cache
def docs_page(models: tuple[str, ...]) -> str:
    """Return an HTML page of all operations that loads nothing from other sites."""
    content = openapi(models)
    calls = [
        {"method": method.upper(), "path": path, **call}
        for path, methods in content["paths"].items()
        for method, call in methods.items()
    ]
    return rendered(__package__, "openapi.html", calls=calls, schemas=content["components"]["schemas"])
