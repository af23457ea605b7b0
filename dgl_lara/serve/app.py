"""The routes. What the table knows is answered at once; computations wait in two lanes, so that a long one (refining, a
graph that came along, a page of the explorer) does not hold up the short ones."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route, Router

from dgl_lara.errors import InputError
from dgl_lara.serve import metrics
from dgl_lara.serve.explorer import explorer_page, list_targets, view
from dgl_lara.serve.handlers import CachedQuery, RequestHandler
from dgl_lara.serve.middleware import Limits, RequestMiddleware
from dgl_lara.serve.model import ServedModel
from dgl_lara.serve.openapi import description, description_page
from dgl_lara.serve.schemas import (
    GraphUpdate,
    PredictRequest,
    TargetsQuery,
    ViewQuery,
    read,
    read_query,
)

USUAL = Limits()
LOOK_AGAIN = 0.005  # seconds between two looks whether an update counts already


class Service:
    def __init__(self, models: Sequence[ServedModel], limits: Limits, supervisor: int | None = None) -> None:
        """`supervisor`: the process that can load the runs anew."""
        self.models = {model.name: model for model in models}
        self.limits, self.supervisor = limits, supervisor
        self.short, self.long = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
        self.waiting = 0

    def warm_up(self) -> None:
        """What is compiled is loaded while nobody waits for it; until then computations wait, the table does not."""
        for model in self.models.values():
            self.short.submit(model.warm_up)

    def model(self, request: Request) -> ServedModel:
        name = request.path_params["name"]
        if name not in self.models:
            raise HTTPException(404, f"there is no model '{name[:60]}'; there is {', '.join(self.models)}.")
        return self.models[name]

    def job(self, request: Request) -> RequestHandler:
        return RequestHandler(self.model(request), time.monotonic() + self.limits.seconds)

    async def computed(self, lane: ThreadPoolExecutor, work: Callable, *given: Any) -> Any:
        if self.waiting >= self.limits.waiting:
            raise HTTPException(503, f"{self.waiting} requests wait already; come back in a moment.")
        self.waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(lane, work, *given)
        finally:
            self.waiting -= 1

    # --- KServe v1

    async def list_models(self, request: Request) -> Response:
        return as_json({"models": list(self.models)})

    async def show_model(self, request: Request) -> Response:
        name, _, verb = request.path_params["name"].rpartition(":")
        if name in self.models and verb in ("explain", "predict"):
            raise HTTPException(405, f"{verb} is asked with POST.")
        return as_json({"name": self.model(request).name, "ready": True})

    async def explain(self, request: Request) -> Response:
        job = self.job(request)
        asked = job.understood(await request.body())
        if not isinstance(asked, CachedQuery):
            return counted(job, await self.computed(self.long, job.explain, asked))
        if asked.is_known:
            return counted(job, job.explain(asked))
        return counted(job, await self.computed(self.short, job.explain, asked))

    async def predict(self, request: Request) -> Response:
        job, asked = self.job(request), read(PredictRequest, await request.body())
        if any(instance.subgraph or instance.pair for instance in asked.instances):
            return counted(job, await self.computed(self.long, job.predict, asked))
        return counted(job, job.predict(asked))

    # --- the graph

    async def update_graph(self, request: Request) -> Response:
        model, update = self.model(request), read(GraphUpdate, await request.body())
        entry = await asyncio.to_thread(model.accept, update)
        metrics.updates.labels(model.name).inc()
        until = time.monotonic() + self.limits.seconds
        while (applied := model.published() >= entry["sequence"]) is False and time.monotonic() < until:
            await asyncio.sleep(LOOK_AGAIN)
        metrics.sequence.labels(model.name).set(model.published())
        if applied and (why := model.rejection_reason(entry["sequence"])):
            raise InputError(f"update {entry['sequence']} was taken back: {why}")
        told = {"sequence": entry["sequence"], "nodes": entry["nodes"], "applied": applied}
        return as_json(told, 200 if applied else 202)

    async def reload(self, request: Request) -> Response:
        self.model(request)
        if self.supervisor is None:
            raise HTTPException(409, "this process cannot load its run anew; start it again.")
        os.kill(self.supervisor, signal.SIGHUP)
        return as_json({"reloading": True}, 202)

    # --- the explorer

    async def show_targets(self, request: Request) -> Response:
        job, query = self.job(request), read_query(TargetsQuery, request.query_params)
        return as_json(await self.computed(self.long, list_targets, job, query))

    async def show_view(self, request: Request) -> Response:
        job, query = self.job(request), read_query(ViewQuery, request.query_params)
        answer = await self.computed(self.long, view, job, query)
        return counted(job, answer)

    async def show_explorer(self, request: Request) -> Response:
        if "text/html" not in request.headers.get("accept", ""):  # what KServe's clients ask before anything else
            return as_json({"status": "alive"})
        return HTMLResponse(explorer_page(), headers={"referrer-policy": "no-referrer"})

    # --- of the service itself

    async def healthz(self, request: Request) -> Response:
        return as_json({"status": "ok"})

    async def metrics(self, request: Request) -> Response:
        return Response(metrics.text(), media_type="text/plain; version=0.0.4")

    async def show_description(self, request: Request) -> Response:
        return as_json(description(tuple(self.models)))

    async def show_docs(self, request: Request) -> Response:
        return HTMLResponse(description_page(tuple(self.models)))

    @property
    def routes(self) -> list[Route]:
        one = "/v1/models/{name}"
        return [
            Route(f"{one}:explain", self.explain, methods=["POST"]),
            Route(f"{one}:predict", self.predict, methods=["POST"]),
            Route(f"{one}/graph", self.update_graph, methods=["POST"]),
            Route(f"{one}/reload", self.reload, methods=["POST"]),
            Route(f"{one}/targets", self.show_targets),
            Route(f"{one}/view", self.show_view),
            Route("/v1/models", self.list_models),
            Route(one, self.show_model),
            Route("/healthz", self.healthz),
            Route("/metrics", self.metrics),
            Route("/openapi.json", self.show_description),
            Route("/docs", self.show_docs),
            Route("/", self.show_explorer),
        ]


async def not_found(scope: Any, receive: Any, send: Any) -> None:
    raise HTTPException(404, "there is nothing here; /docs says what there is.")


def as_json(content: Any, status: int = 200) -> Response:
    return Response(orjson.dumps(content), status, media_type="application/json")


def counted(job: RequestHandler, content: Any) -> Response:
    if job.from_table:
        metrics.explanations.labels("table").inc(job.from_table)
    if job.computed:
        metrics.explanations.labels("computed").inc(job.computed)
    if job.model_calls:
        metrics.model_calls.inc(job.model_calls)
    return as_json(content)


def guarded(service: Service, token: str | None = None, only_here: bool = False) -> RequestMiddleware:
    return RequestMiddleware(
        Router(service.routes, redirect_slashes=False, default=not_found), service.limits, token, only_here
    )


def make_app(models: Sequence[ServedModel], limits: Limits = USUAL, token: str | None = None) -> RequestMiddleware:
    return guarded(Service(models, limits), token)
