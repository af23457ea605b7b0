"""Routes of the service.

Cached answers are returned at once. Computations wait in two lanes, so that a long one (refining, a subgraph, a page of
the explorer) does not delay short ones.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route, Router

from dgl_lara.errors import InputError
from dgl_lara.serve import metrics
from dgl_lara.serve.explorer import explorer_page, list_targets, view
from dgl_lara.serve.handlers import RequestHandler
from dgl_lara.serve.middleware import HttpError, Limits, RequestMiddleware
from dgl_lara.serve.model import ServedModel
from dgl_lara.serve.openapi import docs_page, openapi
from dgl_lara.serve.schemas import GraphUpdate, PredictBody, TargetsQuery, ViewQuery, parse_body, parse_query

DEFAULT_LIMITS = Limits()
SECONDS_BETWEEN_POLLS = 0.005  # while a request waits for its update


class Service:
    """Endpoints of all models. `supervisor` is the process that can reload the runs."""

    def __init__(self, models: Sequence[ServedModel], limits: Limits, supervisor: int | None = None) -> None:
        self.models = {model.name: model for model in models}
        self.limits, self.supervisor = limits, supervisor
        self._short, self._long = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
        self.num_waiting = 0

    def warm_up(self) -> None:
        """Load compiled code in the background. Computations wait for it, and cached answers do not."""
        for model in self.models.values():
            self._short.submit(model.warm_up)

    def _model(self, request: Request) -> ServedModel:
        name = request.path_params["name"]
        if name not in self.models:
            raise HttpError("model.unknown", 404, got=name[:60], models=", ".join(self.models))
        return self.models[name]

    def _handler(self, request: Request) -> RequestHandler:
        return RequestHandler(self._model(request), time.monotonic() + self.limits.seconds)

    async def _compute(self, lane: ThreadPoolExecutor, function: Callable, *arguments: Any) -> Any:
        if self.num_waiting >= self.limits.waiting:
            raise HttpError("service.busy", 503, waiting=self.num_waiting)
        self.num_waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(lane, function, *arguments)
        finally:
            self.num_waiting -= 1

    # --- KServe v1

    async def _list_models(self, request: Request) -> Response:
        return _json({"models": list(self.models)})

    async def _show_model(self, request: Request) -> Response:
        name, _, verb = request.path_params["name"].rpartition(":")
        if name in self.models and verb in ("explain", "predict"):
            raise HttpError("http.needs_post", 405, verb=verb)
        return _json({"name": self._model(request).name, "ready": True})

    async def _explain(self, request: Request) -> Response:
        handler = self._handler(request)
        query = handler.parse(await request.body())
        if query.is_ready:
            return _counted(handler, query.answer())
        return _counted(handler, await self._compute(self._long if query.is_long else self._short, query.answer))

    async def _predict(self, request: Request) -> Response:
        handler, body = self._handler(request), parse_body(PredictBody, await request.body())
        if any(instance.subgraph or instance.pair for instance in body.instances):
            return _counted(handler, await self._compute(self._long, handler.predict, body))
        return _counted(handler, handler.predict(body))

    # --- the graph

    async def _update_graph(self, request: Request) -> Response:
        model, update = self._model(request), parse_body(GraphUpdate, await request.body())
        entry = await asyncio.to_thread(model.accept, update)
        metrics.updates.labels(model.name).inc()
        deadline = time.monotonic() + self.limits.seconds
        while (applied := model.published() >= entry["sequence"]) is False and time.monotonic() < deadline:
            await asyncio.sleep(SECONDS_BETWEEN_POLLS)
        metrics.sequence.labels(model.name).set(model.published())
        if applied and (problem := model.rejection_reason(entry["sequence"])):
            raise InputError("update.rejected", sequence=entry["sequence"], problem=problem)
        content = {"sequence": entry["sequence"], "nodes": entry["nodes"], "applied": applied}
        return _json(content, 200 if applied else 202)

    async def _reload(self, request: Request) -> Response:
        self._model(request)
        if self.supervisor is None:
            raise HttpError("reload.unsupported", 409)
        os.kill(self.supervisor, signal.SIGHUP)
        return _json({"reloading": True}, 202)

    # --- the explorer

    async def _show_targets(self, request: Request) -> Response:
        handler, query = self._handler(request), parse_query(TargetsQuery, request.query_params)
        return _json(await self._compute(self._long, list_targets, handler, query))

    async def _show_view(self, request: Request) -> Response:
        handler, query = self._handler(request), parse_query(ViewQuery, request.query_params)
        return _counted(handler, await self._compute(self._long, view, handler, query))

    async def _show_explorer(self, request: Request) -> Response:
        if "text/html" not in request.headers.get("accept", ""):  # KServe's clients check this path first
            return _json({"status": "alive"})
        return HTMLResponse(explorer_page(), headers={"referrer-policy": "no-referrer"})

    # --- the service itself

    async def _healthz(self, request: Request) -> Response:
        return _json({"status": "ok"})

    async def _metrics(self, request: Request) -> Response:
        return Response(metrics.metrics_text(), media_type="text/plain; version=0.0.4")

    async def _show_openapi(self, request: Request) -> Response:
        return _json(openapi(tuple(self.models)))

    async def _show_docs(self, request: Request) -> Response:
        return HTMLResponse(docs_page(tuple(self.models)))

    @property
    def routes(self) -> list[Route]:
        model = "/v1/models/{name}"
        return [
            Route(f"{model}:explain", self._explain, methods=["POST"]),
            Route(f"{model}:predict", self._predict, methods=["POST"]),
            Route(f"{model}/graph", self._update_graph, methods=["POST"]),
            Route(f"{model}/reload", self._reload, methods=["POST"]),
            Route(f"{model}/targets", self._show_targets),
            Route(f"{model}/view", self._show_view),
            Route("/v1/models", self._list_models),
            Route(model, self._show_model),
            Route("/healthz", self._healthz),
            Route("/metrics", self._metrics),
            Route("/openapi.json", self._show_openapi),
            Route("/docs", self._show_docs),
            Route("/", self._show_explorer),
        ]


async def _not_found(scope: Any, receive: Any, send: Any) -> None:
    raise HttpError("http.path", 404)


def _json(content: Any, status: int = 200) -> Response:
    return Response(orjson.dumps(content), status, media_type="application/json")


def _counted(handler: RequestHandler, content: Any) -> Response:
    if handler.from_cache:
        metrics.explanations.labels("table").inc(handler.from_cache)
    if handler.computed:
        metrics.explanations.labels("computed").inc(handler.computed)
    if handler.model_calls:
        metrics.model_calls.inc(handler.model_calls)
    return _json(content)


def asgi_app(service: Service, token: str | None = None, loopback_only: bool = False) -> RequestMiddleware:
    """Return the ASGI application of a service, see `RequestMiddleware`."""
    router = Router(service.routes, redirect_slashes=False, default=_not_found)
    return RequestMiddleware(router, service.limits, token, loopback_only)


def make_app(
    models: Sequence[ServedModel], limits: Limits = DEFAULT_LIMITS, token: str | None = None
) -> RequestMiddleware:
    """Return the ASGI application of some models."""
    return asgi_app(Service(models, limits), token)
