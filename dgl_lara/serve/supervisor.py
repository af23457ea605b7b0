"""`dgl-lara serve`: loads the runs once, then forks workers that share all of it.

This process opens the port and never answers by itself. It forks a keeper (`keeper.py`) and the workers, starts one
anew where it dies, and on SIGHUP loads the runs again, starts new workers beside the old ones and lets those finish
what they have begun. Nothing here starts a thread: a fork would lose it.
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

from dgl_lara._util.progress import QUIET, log_info, resting, set_loudness
from dgl_lara.errors import InputError, LaraError
from dgl_lara.serve.middleware import Limits
from dgl_lara.serve.model import ServedModel

BACKLOG = 2048
IDLE = 1.0  # seconds that a stopping worker gives its idle connections to ask once more
MARGIN = 5  # and, beyond the time that a request may take, those that are being answered
WAIT_READY = 300.0
LONGEST_REST = 60.0  # seconds before a keeper is replaced whose predecessors died at once

fork = multiprocessing.get_context("fork")
Load = Callable[[], list[ServedModel]]


class Server(uvicorn.Server):
    """One that stops in two steps: it accepts nobody new and closes connections after their next answer; then, when
    none is left or a moment has passed, it ends as uvicorn does, which waits for what is being answered."""

    stops_at: float | None = None

    def handle_exit(self, sig: int, frame: object) -> None:
        self.config.app.draining = True  # type: ignore[union-attr]
        self.stops_at = self.stops_at or time.monotonic() + IDLE

    async def on_tick(self, counter: int) -> bool:
        if self.stops_at is not None:
            for server in self.servers:
                server.close()
            self.should_exit = not self.server_state.connections or time.monotonic() > self.stops_at
        return await super().on_tick(counter)


def work(models: Sequence[ServedModel], port: socket.socket, limits: Limits, token: str | None, ready: Connection,
         generation: int) -> None:  # fmt: skip
    """One worker, until it is told to stop."""
    from dgl_lara.serve import metrics
    from dgl_lara.serve.app import Service, guarded

    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    set_loudness(QUIET)  # whoever waits for an answer does not sit here
    for model in models:
        model.follow()
    metrics.reloads.set(generation)
    service = Service(models, limits, os.getppid())
    app = guarded(service, token, only_here=is_only_here(port))
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, lifespan="off", timeout_graceful_shutdown=int(limits.seconds) + 1,
        server_header=False,
    )  # fmt: skip
    gc.freeze()
    ready.send(True)
    ready.close()
    service.warm_up()
    Server(config).run(sockets=[port])


def _child(function: Callable, *given: object) -> None:
    """Signals are its own affair, not the supervisor's."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    gc.enable()
    function(*given)


def how_it_ended(process: BaseProcess) -> str:
    code = process.exitcode or 0
    return signal.strsignal(-code) or f"signal {-code}" if code < 0 else f"exit code {code}"


class WorkerGroup:
    """Workers and keeper of one loading of the runs."""

    def __init__(self, number: int, models: list[ServedModel], supervisor: Supervisor) -> None:
        self.number, self.models, self.supervisor = number, models, supervisor
        self.keeper = self.new_keeper()
        self._until_caught_up()
        self.workers = [self.new_worker() for _ in range(supervisor.workers)]
        deadline = time.monotonic() + WAIT_READY
        for process, ready in self.workers:
            if not ready.poll(max(0.0, deadline - time.monotonic())) or process.exitcode is not None:
                self.stop()
                raise LaraError("a worker did not come up.")

    def _until_caught_up(self) -> None:
        """Updates that a crash left in the log count before anybody is answered."""
        for model in self.models:
            wanted = len(model.log.entries())
            while model.published() < wanted:
                if self.keeper.exitcode is not None:
                    raise LaraError(f"{model.name}: the updates in its log cannot be applied.")
                if self.supervisor.is_to_stop:
                    self.stop()
                    raise LaraError("stopped before the updates in the log were applied.")
                time.sleep(0.01)
            model.follow()

    @staticmethod
    def _forked(function: Callable, *given: object) -> BaseProcess:
        process = fork.Process(target=_child, args=(function, *given), daemon=True)
        process.start()
        return process

    def new_keeper(self, rest: float = 0.0) -> BaseProcess:
        """`rest`: seconds before it begins, so that one that dies at once is not started again and again."""
        from dgl_lara.serve.updater import keep

        self.rest, self.keeper_begins = rest, time.monotonic() + rest
        return self._forked(keep, self.models, self.supervisor.fill, rest)

    def new_worker(self) -> tuple[BaseProcess, Connection]:
        for model in self.models:
            model.follow()
        gc.collect()
        gc.freeze()
        gc.enable()
        here, there = fork.Pipe(duplex=False)
        of = self.supervisor
        process = self._forked(work, self.models, of.port, of.limits, of.token, there, self.number)
        there.close()
        return process, here

    def forget(self) -> None:
        """What was loaded. Those who answer have it still; new ones that are forked from here would carry it along."""
        self.models = []
        gc.unfreeze()
        gc.collect()

    def mend(self) -> None:
        """Whoever has died is started anew."""
        if not self.models and any(process.exitcode is not None for process in self.processes):
            self.models = self.supervisor.load()  # a reload failed halfway
        if self.keeper.exitcode is not None:
            at_once = time.monotonic() - self.keeper_begins < LONGEST_REST
            rest = min(2 * self.rest + 1, LONGEST_REST) if at_once else 0.0
            log_info(f"the keeper has died ({how_it_ended(self.keeper)}); another takes over in {rest:.0f} s.")
            self.keeper = self.new_keeper(rest)
        for place, (process, _) in enumerate(self.workers):
            if process.exitcode is not None:
                log_info(f"worker {process.pid} has died ({how_it_ended(process)}); another takes over.")
                self.workers[place] = self.new_worker()

    @property
    def processes(self) -> list[BaseProcess]:
        return [self.keeper, *(process for process, _ in self.workers)]

    @property
    def sentinels(self) -> list[int]:
        return [process.sentinel for process in self.processes]

    def stop(self) -> None:
        """Workers finish what they have begun; the keeper goes last, for updates that somebody still waits for."""
        for process, _ in getattr(self, "workers", []):
            process.terminate()
        for process, _ in getattr(self, "workers", []):
            process.join(self.supervisor.limits.seconds + MARGIN)
            process.kill()
        self.keeper.terminate()
        self.keeper.join(self.supervisor.limits.seconds + MARGIN)
        self.keeper.kill()


class Supervisor:
    def __init__(
        self, load: Load, address: tuple[str, int], workers: int, limits: Limits, token: Callable[[], str | None],
        fill: bool = True,
    ) -> None:  # fmt: skip
        self.load, self.workers, self.limits, self.read_token, self.fill = load, workers, limits, token, fill
        self.token = token()
        self.port = listening(*address)
        self.asked: set[int] = set()

    @property
    def is_to_stop(self) -> bool:
        return bool(self.asked & {signal.SIGTERM, signal.SIGINT})

    def run(self, announce: Callable[[str], None]) -> None:
        """Until SIGTERM or Ctrl-C."""
        models = self.load()
        wake, waker = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(waker, False)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda number, frame: self.asked.add(number))
        try:
            now = WorkerGroup(1, models, self)
        except LaraError:
            if self.is_to_stop:
                return
            raise
        del models
        host, port = self.port.getsockname()[:2]
        announce(f"http://{f'[{host}]' if ':' in host else host}:{port}")
        with resting():
            while not self.is_to_stop:
                if signal.SIGHUP in self.asked:
                    self.asked.discard(signal.SIGHUP)
                    now = self._reloaded(now)
                wait([wake, *now.sentinels])
                with suppress(BlockingIOError):
                    os.read(wake, 4096)
                if not self.asked:
                    now.mend()
        now.stop()

    def _reloaded(self, before: WorkerGroup) -> WorkerGroup:
        """The runs as they are now; what cannot be loaded leaves everything as it was."""
        try:
            self.token = self.read_token()
            models = self.load()
            before.forget()
            after = WorkerGroup(before.number + 1, models, self)
        except (LaraError, OSError) as error:
            log_info(f"not reloaded, the old runs are still served: {error}")
            return before
        before.stop()
        log_info(f"reloaded ({after.number}).")
        return after


def is_only_here(port: socket.socket) -> bool:
    """Nobody on another machine can reach it."""
    return ip_address(port.getsockname()[0]).is_loopback


def listening(host: str, port: int) -> socket.socket:
    if not host.strip():  # which would be every network there is
        raise InputError("--host must name an address, like 127.0.0.1, or 0.0.0.0 for every network (got '').")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
    except (OSError, OverflowError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(f"port {port} of {host} cannot be had ({reason}); name another with --port.") from error
    found.listen(BACKLOG)
    found.set_inheritable(True)
    return found
