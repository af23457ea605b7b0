"""The process of `dgl-lara serve`. It loads the runs once and forks the updater and the workers, which share them.

It opens the port and answers no request. It replaces processes that die, and on SIGHUP loads the runs again, starts new
workers and lets the old ones finish. It must start no thread, because a fork would lose it.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from ipaddress import ip_address
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

import uvicorn

from dgl_lara._util.notices import notice
from dgl_lara._util.progress import QUIET, idle, set_loudness
from dgl_lara.errors import InputError, LaraError
from dgl_lara.serve.middleware import Limits
from dgl_lara.serve.model import ServedModel

BACKLOG = 2048  # connections
SECONDS_IDLE = 1.0  # in which idle connections of a stopping worker may send one more request
SECONDS_BEYOND_LIMIT = 5  # that a stopping process has after the time of its longest request
SECONDS_TO_START = 300.0
MAX_DELAY_SECONDS = 60.0  # before an updater starts whose predecessors died at once

fork = multiprocessing.get_context("fork")
Load = Callable[[], list[ServedModel]]


class _Server(uvicorn.Server):
    """A server that stops in two steps.

    It accepts no connections and closes each after its next answer. When none is left, or after `SECONDS_IDLE`, it ends
    as uvicorn does, which waits for requests that are being answered.
    """

    stops_at: float | None = None

    def handle_exit(self, sig: int, frame: object) -> None:
        self.config.app.draining = True  # type: ignore[union-attr]
        self.stops_at = self.stops_at or time.monotonic() + SECONDS_IDLE

    async def on_tick(self, counter: int) -> bool:
        if self.stops_at is not None:
            for server in self.servers:
                server.close()
            self.should_exit = not self.server_state.connections or time.monotonic() > self.stops_at
        return await super().on_tick(counter)


def _run_worker(models: Sequence[ServedModel], port: socket.socket, limits: Limits, token: str | None,
                ready: Connection, generation: int) -> None:  # fmt: skip
    from dgl_lara.serve import metrics
    from dgl_lara.serve.app import Service, asgi_app

    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    set_loudness(QUIET)
    for model in models:
        model.follow()
    metrics.reloads.set(generation)
    service = Service(models, limits, os.getppid())
    config = uvicorn.Config(
        asgi_app(service, token, is_loopback(port)), log_level="warning", access_log=False, lifespan="off",
        timeout_graceful_shutdown=int(limits.seconds) + 1, server_header=False,
    )  # fmt: skip
    gc.freeze()
    ready.send(True)
    ready.close()
    service.warm_up()
    _Server(config).run(sockets=[port])


def _fork(function: Callable, *arguments: object) -> BaseProcess:
    process = fork.Process(target=_in_child, args=(function, *arguments), daemon=True)
    process.start()
    return process


def _in_child(function: Callable, *arguments: object) -> None:
    """Run a function without the signal handlers of the supervisor."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    gc.enable()
    function(*arguments)


def _exit_reason(process: BaseProcess) -> str:
    code = process.exitcode or 0
    return signal.strsignal(-code) or f"signal {-code}" if code < 0 else f"exit code {code}"


class WorkerGroup:
    """Updater and workers of one loading of the runs."""

    def __init__(self, number: int, models: list[ServedModel], supervisor: Supervisor) -> None:
        self.number, self.models, self.supervisor = number, models, supervisor
        self.workers: list[tuple[BaseProcess, Connection]] = []
        self.updater = self._new_updater()
        self._wait_for_updates()
        self.workers = [self._new_worker() for _ in range(supervisor.num_workers)]
        deadline = time.monotonic() + SECONDS_TO_START
        for process, ready in self.workers:
            if not ready.poll(max(0.0, deadline - time.monotonic())) or process.exitcode is not None:
                self.stop()
                raise LaraError("worker.no_start")

    def _wait_for_updates(self) -> None:
        """Wait until the updates that a crash left in the log are applied."""
        for model in self.models:
            expected = len(model.log.entries())
            while model.published() < expected:
                if self.updater.exitcode is not None:
                    raise LaraError("updater.no_catch_up", model=model.name)
                if self.supervisor.is_stopping:
                    self.stop()
                    raise LaraError("updater.stopped")
                time.sleep(0.01)
            model.follow()

    def _new_updater(self, delay: float = 0.0) -> BaseProcess:
        """Start an updater that waits before it begins, so that a failing one is not replaced all the time."""
        from dgl_lara.serve.updater import run_updater

        self._delay, self._updater_start = delay, time.monotonic() + delay
        return _fork(run_updater, self.models, self.supervisor.fill, delay)

    def _new_worker(self) -> tuple[BaseProcess, Connection]:
        for model in self.models:
            model.follow()
        gc.collect()
        gc.freeze()
        gc.enable()
        receiver, sender = fork.Pipe(duplex=False)
        parent = self.supervisor
        process = _fork(_run_worker, self.models, parent.port, parent.limits, parent.token, sender, self.number)
        sender.close()
        return process, receiver

    def release_models(self) -> None:
        """Release the loaded models in this process, so that new workers do not inherit them."""
        self.models = []
        gc.unfreeze()
        gc.collect()

    def _replace_dead(self) -> None:
        """Start processes in place of those that died."""
        if not self.models and any(process.exitcode is not None for process in self.processes):
            self.models = self.supervisor.load()  # a reload has failed after it released them
        if self.updater.exitcode is not None:
            died_at_once = time.monotonic() - self._updater_start < MAX_DELAY_SECONDS
            delay = min(2 * self._delay + 1, MAX_DELAY_SECONDS) if died_at_once else 0.0
            notice("updater.died", reason=_exit_reason(self.updater), seconds=delay)
            self.updater = self._new_updater(delay)
        for index, (process, _) in enumerate(self.workers):
            if process.exitcode is not None:
                notice("worker.died", pid=process.pid, reason=_exit_reason(process))
                self.workers[index] = self._new_worker()

    @property
    def processes(self) -> list[BaseProcess]:
        return [self.updater, *(process for process, _ in self.workers)]

    def stop(self) -> None:
        """Stop the workers after their requests, then the updater, for whose updates requests may wait."""
        workers = [process for process, _ in self.workers]
        for group in (workers, [self.updater]):
            for process in group:
                process.terminate()
            for process in group:
                process.join(self.supervisor.limits.seconds + SECONDS_BEYOND_LIMIT)
                process.kill()


class Supervisor:
    """Keeps a service running.

    Args:
        load: Loads the runs.
        address: Host and port. Port 0: any free one.
        workers: Number of workers.
        limits: Limits of a request.
        token: Returns the bearer token that requests must have. It is read again on a reload.
        fill: Compute explanations of all targets while there is nothing else to do.
    """

    def __init__(
        self, load: Load, address: tuple[str, int], workers: int, limits: Limits, token: Callable[[], str | None],
        fill: bool = True,
    ) -> None:  # fmt: skip
        self.load, self.num_workers, self.limits, self._read_token, self.fill = load, workers, limits, token, fill
        self.token = token()
        self.port = listen(*address)
        self._signals: set[int] = set()  # received and not handled yet

    @property
    def is_stopping(self) -> bool:
        return bool(self._signals & {signal.SIGTERM, signal.SIGINT})

    def run(self, announce: Callable[[str], None]) -> None:
        """Serve until SIGTERM or Ctrl-C, and call `announce` with the address when the service is ready."""
        models = self.load()
        wake, waker = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(waker, False)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda number, frame: self._signals.add(number))
        try:
            group = WorkerGroup(1, models, self)
        except LaraError:
            if self.is_stopping:
                return
            raise
        del models
        host, port = self.port.getsockname()[:2]
        announce(f"http://{f'[{host}]' if ':' in host else host}:{port}")
        with idle():
            while not self.is_stopping:
                if signal.SIGHUP in self._signals:
                    self._signals.discard(signal.SIGHUP)
                    group = self._reloaded(group)
                wait([wake, *(process.sentinel for process in group.processes)])
                with suppress(BlockingIOError):
                    os.read(wake, 4096)
                if not self._signals:
                    group._replace_dead()
        group.stop()

    def _reloaded(self, before: WorkerGroup) -> WorkerGroup:
        """Return a group with the runs loaded again, or the group before if they cannot be loaded."""
        try:
            self.token = self._read_token()
            models = self.load()
            before.release_models()
            after = WorkerGroup(before.number + 1, models, self)
        except (LaraError, OSError) as error:
            notice("reload.failed", problem=error)
            return before
        before.stop()
        notice("reload.done", count=after.number)
        return after


def is_loopback(port: socket.socket) -> bool:
    """Return whether only this machine can reach a socket."""
    return ip_address(port.getsockname()[0]).is_loopback


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens at an address."""
    if not host.strip():  # for the operating system this is every network
        raise InputError("port.host")
    server = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        server.bind((host, port))
    except (OSError, OverflowError) as error:
        problem = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError("port.unavailable", port=port, host=host, problem=problem) from error
    server.listen(BACKLOG)
    server.set_inheritable(True)
    return server
