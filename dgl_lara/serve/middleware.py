"""Between the network and the routes: who may ask, how much and for how long; what is counted; errors in a sentence."""

from __future__ import annotations

import hmac
import sys
import time
import traceback
from dataclasses import dataclass

import anyio
import orjson
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dgl_lara.errors import InputError, LaraError
from dgl_lara.serve import metrics

OPEN = {"/", "/healthz", "/openapi.json", "/docs"}  # hold no data of anybody
METHODS = {"GET", "HEAD", "POST"}
HERE = {"localhost", "127.0.0.1", "[::1]"}  # what a service on this machine alone is called


@dataclass(frozen=True)
class Limits:
    """Of one request."""

    body: int = 16 * 2**20  # bytes
    seconds: float = 60.0
    waiting: int = 64  # requests of a worker that may wait for a computation


class TooLarge(Exception):
    """The body has more bytes than a request may have."""


class RequestMiddleware:
    """An ASGI application around another. `draining`: connections are closed after their next answer; `only_here`: it
    listens on this machine alone."""

    def __init__(self, app: ASGIApp, limits: Limits, token: str | None = None, only_here: bool = False) -> None:
        self.app, self.limits, self.token = app, limits, token
        self.draining, self.only_here = False, only_here

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, sent, received = time.perf_counter(), 0, 0
        scope["app"] = self  # so that routes leave errors to us

        async def limited() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self.limits.body:
                raise TooLarge
            return message

        async def answer(message: Message) -> None:
            nonlocal sent
            if message["type"] == "http.response.start":
                sent = message["status"]
                if self.draining or sent == 413:  # what is left of a body that nobody reads
                    message["headers"] = [*message["headers"], (b"connection", b"close")]
            await send(message)

        try:
            self._check(scope)
            with anyio.fail_after(self.limits.seconds + 1):  # computations watch the clock themselves
                await self.app(scope, limited, answer)
        except ClientDisconnect:  # nobody is there to be told
            pass
        except Exception as error:
            if sent:
                raise
            status, said = described(error, self.limits)
            more = [(b"www-authenticate", b"Bearer")] if status == 401 else []
            await respond(answer, status, said, more)
        route = scope["endpoint"].__name__ if "endpoint" in scope else "none"
        metrics.latency.labels(route).observe(time.perf_counter() - started)
        metrics.requests.labels(route, sent).inc()

    def _check(self, scope: Scope) -> None:
        headers = dict(scope["headers"])
        if self.token is not None and scope["path"] not in OPEN:
            given = headers.get(b"authorization", b"").removeprefix(b"Bearer ")
            if not hmac.compare_digest(given, self.token.encode()):
                raise HTTPException(401, "a bearer token is needed: Authorization: Bearer TOKEN.")
        if self.token is None:
            self._check_page(scope["method"], headers)
        if scope["method"] not in METHODS:
            raise HTTPException(405, f"{scope['method']} is not a method of this service.")
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > self.limits.body:
            raise TooLarge

    def _check_page(self, method: str, headers: dict[bytes, bytes]) -> None:
        """Whoever has no token to show may not be sent by a page of somebody else, which a browser on this machine has
        open: neither to change what is explained, nor, under a name that leads here, to read it."""
        host = headers.get(b"host", b"").decode("latin1")
        origin, site = headers.get(b"origin"), headers.get(b"sec-fetch-site")
        other = origin is not None and origin.decode("latin1").partition("://")[2] != host
        if method == "POST" and (other if site is None else site not in (b"same-origin", b"none")):
            raise HTTPException(403, "this was asked by a page of another site; use a token (--token-file) for that.")
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        if self.only_here and name and name.lower() not in HERE:
            raise HTTPException(
                403, f"this service is for its own machine, as localhost (got '{name}'); use a token (--token-file)."
            )


def described(error: Exception, limits: Limits) -> tuple[int, str]:
    """Status and sentence; what nobody foresaw is told to whoever runs the service, not to whoever asks."""
    if isinstance(error, HTTPException):
        return error.status_code, error.detail
    if isinstance(error, InputError):
        return 400, str(error)
    if isinstance(error, TooLarge):
        return 413, f"a request may have at most {limits.body:,} bytes; send it in parts."
    if isinstance(error, TimeoutError):
        return 503, f"this took longer than {limits.seconds:g} seconds; ask for less at a time."
    if isinstance(error, LaraError):
        return 500, str(error)
    traceback.print_exception(error, file=sys.stderr)
    return 500, "something went wrong here; the service has noted what."


async def respond(send: Send, status: int, said: str, more: list[tuple[bytes, bytes]]) -> None:
    body = orjson.dumps({"error": said})
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
