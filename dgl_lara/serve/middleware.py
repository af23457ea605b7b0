"""ASGI middleware for token, origin, limits, metrics, and errors as JSON."""

from __future__ import annotations

import hmac
import sys
import time
import traceback
from dataclasses import dataclass
from typing import Any

import anyio
import orjson
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dgl_lara.errors import InputError, LaraError, message
from dgl_lara.serve import metrics

OPEN_PATHS = {"/", "/healthz", "/openapi.json", "/docs"}  # without any data
METHODS = {"GET", "HEAD", "POST"}
LOCAL_NAMES = {"localhost", "127.0.0.1", "[::1]"}


@dataclass(frozen=True)
class Limits:
    """Limits of one request."""

    body: int = 16 * 2**20
    seconds: float = 60.0
    waiting: int = 64


class HttpError(LaraError):
    """An error with an HTTP status of its own."""

    def __init__(self, code: str, status: int, **fields: object) -> None:
        super().__init__(code, **fields)
        self.status = status


class RequestMiddleware:
    """ASGI application around another. If `draining`, it closes each connection after its next answer."""

    def __init__(self, app: ASGIApp, limits: Limits, token: str | None = None, loopback_only: bool = False) -> None:
        self.app, self.limits, self.token = app, limits, token
        self.draining, self.loopback_only = False, loopback_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status, received = time.perf_counter(), 0, 0
        scope["app"] = self  # so that routes raise errors instead of answering them

        async def limited() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            self._check_size(received)
            return message

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if self.draining or status == 413:  # the rest of a large body is not read
                    message["headers"] = [*message["headers"], (b"connection", b"close")]
            await send(message)

        try:
            self._check(scope)
            with anyio.fail_after(self.limits.seconds + 1):  # computations check the deadline themselves
                await self.app(scope, limited, answer)
        except ClientDisconnect:
            pass
        except Exception as error:
            if status:
                raise
            await _respond(answer, *_to_http_error(error, self.limits))
        route = scope["endpoint"].__name__.strip("_") if "endpoint" in scope else "none"
        metrics.latency.labels(route).observe(time.perf_counter() - started)
        metrics.requests.labels(route, status).inc()

    def _check(self, scope: Scope) -> None:
        headers = dict(scope["headers"])
        if self.token is None:
            self._check_site(scope["method"], headers)
        elif scope["path"] not in OPEN_PATHS:
            token = headers.get(b"authorization", b"").removeprefix(b"Bearer ")
            if not hmac.compare_digest(token, self.token.encode()):
                raise HttpError("http.token", 401)
        if scope["method"] not in METHODS:
            raise HttpError("http.method", 405, got=scope["method"])
        length = headers.get(b"content-length", b"0")
        if length.isdigit():
            self._check_size(int(length))

    def _check_size(self, num_bytes: int) -> None:
        if num_bytes > self.limits.body:
            raise HttpError("http.too_large", 413, most=self.limits.body)

    def _check_site(self, method: str, headers: dict[bytes, bytes]) -> None:
        """Reject cross-site requests (CSRF) and, on the loopback, other Host names (DNS rebinding)."""
        host = headers.get(b"host", b"").decode("latin1")
        origin, site = headers.get(b"origin"), headers.get(b"sec-fetch-site")
        is_other = origin is not None and origin.decode("latin1").partition("://")[2] != host
        if method == "POST" and (is_other if site is None else site not in (b"same-origin", b"none")):
            raise HttpError("http.cross_site", 403)
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        if self.loopback_only and name and name.lower() not in LOCAL_NAMES:
            raise HttpError("http.host", 403, got=name)


def _to_http_error(error: Exception, limits: Limits) -> tuple[int, dict[str, Any]]:
    """Return status and body. Clients do not see the text of an unexpected error, which is printed to stderr."""
    if isinstance(error, HTTPException):  # of starlette, for a method that no route has
        return error.status_code, {"error": error.detail, "code": "http.route"}
    if isinstance(error, LaraError):
        status = error.status if isinstance(error, HttpError) else 400 if isinstance(error, InputError) else 500
        return status, {"error": str(error), "code": error.code}
    if isinstance(error, TimeoutError):
        return 503, {"error": message("http.timeout", most=limits.seconds), "code": "http.timeout"}
    traceback.print_exception(error, file=sys.stderr)
    return 500, {"error": message("http.internal"), "code": "http.internal"}


async def _respond(send: Send, status: int, content: dict[str, Any]) -> None:
    body = orjson.dumps(content)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
