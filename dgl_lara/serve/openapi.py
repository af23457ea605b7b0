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
JSON = "application/json"


def _list_of(item: Schema) -> Schema:
    return {"type": "array", "items": item}


def _schema(**fields: Schema) -> Schema:
    return {"type": "object", "properties": fields, "required": list(fields)}


TARGET = {"type": ["integer", "array"], "items": INTEGER, "description": "number of the target, or both ends of a link"}
PLAYER = _schema(id=INTEGER, name=TEXT, hop=INTEGER, score=NUMBER)
PLAYER["properties"]["type"] = {**TEXT, "description": "node type, if there are several"}
EXPLANATION = _schema(
    target=TARGET, **{"class": INTEGER}, value=NUMBER, confidence={"type": ["number", "null"]}, source=TEXT,
    players=_list_of(PLAYER),
)  # fmt: skip
PREDICTION = _schema(target=TARGET, **{"class": INTEGER}, name=TEXT, logits=_list_of(NUMBER))
EXPLAINED = _schema(predictions=_list_of(NUMBER), explanations=_list_of(EXPLANATION))
UPDATED = _schema(sequence=INTEGER, nodes=_list_of(INTEGER), applied=FLAG)
MODEL = "/v1/models/{name}"


@cache
def openapi(models: tuple[str, ...]) -> dict[str, Any]:
    """Return the OpenAPI document for models with these names."""
    bodies: Any = [(body, "validation") for body in (ExplainBody, PredictBody, GraphUpdate)]
    _, shapes = models_json_schema(bodies, ref_template="#/components/schemas/{model}")
    name = {"name": "name", "in": "path", "required": True, "schema": {**TEXT, "enum": list(models)}}
    paths: dict[str, Any] = {
        "/v1/models": _get("list_models", "List the models.", _schema(models=_list_of(TEXT))),
        MODEL: _get("show_model", "Show one model.", _schema(name=TEXT, ready=FLAG)),
        f"{MODEL}:explain": _post("explain", "Explain predictions.", EXPLAINED, ExplainBody),
        f"{MODEL}:predict": _post(
            "predict", "Return the outputs of the model.", _schema(predictions=_list_of(PREDICTION)), PredictBody
        ),
        f"{MODEL}/graph": _post(
            "update_graph", "Add or remove nodes and edges, on disk and applied when answered (202: applied later).",
            UPDATED, GraphUpdate, (200, 202),
        ),
        f"{MODEL}/reload": _post("reload", "Reload the runs.", _schema(reloading=FLAG), None, (202, 409)),
        f"{MODEL}/targets": _get(
            "show_targets", "List targets.", _schema(total=INTEGER, rows=_list_of({"type": "object"})), TargetsQuery
        ),
        f"{MODEL}/view": _get("show_view", "Return what the explorer shows.", {"type": "object"}, ViewQuery),
        "/healthz": _get("healthz", "Check that the service answers.", _schema(status=TEXT)),
        "/metrics": _get("metrics", "Return metrics for Prometheus.", TEXT, media="text/plain"),
    }  # fmt: skip
    for path, methods in paths.items():
        if path.startswith(MODEL):
            for call in methods.values():
                call["parameters"].insert(0, {"$ref": "#/components/parameters/name"})
    return {
        "openapi": "3.1.0",
        "info": {"title": "dgl-lara", "version": __version__, "description": "Explanations of a graph neural network."},
        "paths": paths,
        "components": {
            "schemas": {**shapes["$defs"], "Error": _schema(error=TEXT, code=TEXT)},
            "parameters": {"name": name},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _get(
    name: str, summary: str, answer: Schema, query: type[BaseModel] | None = None, media: str = JSON
) -> dict[str, Any]:
    call = _call(name, summary, answer, (200,), media)
    if query is not None:
        shape = query.model_json_schema()
        call["parameters"] += [
            {"name": field, "in": "query", "required": field in shape.get("required", []), "schema": _not_null(schema)}
            for field, schema in shape["properties"].items()
        ]
    return {"get": call}


def _post(
    name: str, summary: str, answer: Schema, body: type[BaseModel] | None, statuses: tuple[int, ...] = (200,)
) -> dict[str, Any]:
    call = _call(name, summary, answer, statuses, JSON)
    if body is not None:
        schema = {"$ref": f"#/components/schemas/{body.__name__}"}
        call["requestBody"] = {"required": True, "content": {JSON: {"schema": schema}}}
    return {"post": call}


def _call(name: str, summary: str, answer: Schema, statuses: tuple[int, ...], media: str) -> dict[str, Any]:
    error = {JSON: {"schema": {"$ref": "#/components/schemas/Error"}}}
    responses: dict[str, Any] = {str(code): {"description": text, "content": error} for code, text in ERRORS.items()}
    for status in statuses:
        content = {media: {"schema": answer}} if status < 300 else error
        responses[str(status)] = {"description": summary, "content": content}
    return {"operationId": name, "summary": summary, "responses": responses, "parameters": []}


def _not_null(field: Schema) -> Schema:
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
