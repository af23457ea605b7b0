"""Shards as tasks of Ray, on this machine or on all of a cluster. A worker that dies costs the shard it was at, which
another does again; what is done stays done, so that a second call goes on where the first was stopped.

A task is given names and numbers. Each worker opens the run once, and maps the embeddings that the first one stores.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from dgl_lara._util.memory import free_memory
from dgl_lara._util.progress import Progress, is_quiet, working
from dgl_lara.errors import InputError, LaraError
from dgl_lara.inference.request import ExplainRequest
from dgl_lara.runs.explain_job import ExplainJob, open_job
from dgl_lara.shards.explain_shard import explain_shard
from dgl_lara.shards.shard_folder import Shard, ShardFolder

SHARDS_A_CORE = 4  # a killed worker costs a quarter of its share, and slow machines get fewer
RETRIES = 3  # of a shard whose worker died
OBJECT_STORE = 100 * 2**20  # bytes, nearly all that Ray asks for: nothing large is handed from task to task
KNOCK = 10.0  # seconds in which a cluster must open its door; Ray itself would wait for minutes
HANDED_ON = ("DGL_LARA_DATA", "DGL_LARA_CACHE", "PYTHONPATH")  # where workers find what the command finds


def explain_by_ray(
    question: ExplainRequest, folder: ShardFolder, shards: int | None, address: str | None
) -> dict[str, Any]:
    """Explain all shards that are not done yet; returns the manifest. `shards`: how many there are; without it as many
    as the folder was begun with, else some for each core."""
    paths: dict[str, Any] = {name: value.resolve() for name, value in vars(question).items() if isinstance(value, Path)}
    question = replace(question, **paths)
    with _cluster(address) as ray:
        begun = folder.question()
        of = shards or (begun["shards"] if begun else SHARDS_A_CORE * int(ray.cluster_resources().get("CPU", 1)))
        beside = max(int(node["Resources"].get("CPU", 1)) for node in ray.nodes() if node["Alive"])
        task = ray.remote(max_retries=RETRIES, num_cpus=1, num_gpus=int(question.device == "cuda"))(_explain)
        home, out = Path.cwd(), folder.folder.resolve()
        waiting = [task.remote(question, Shard(one, of), home, out, beside) for one in range(of)]
        bar: Progress[None] = Progress(total=of, label="explaining", unit="shard")
        with bar:
            while waiting:
                (done, *_), waiting = ray.wait(waiting)
                _answer(ray, done)
                bar.advance()
    return folder.whole()


def _explain(question: ExplainRequest, shard: Shard, home: Path, folder: Path, beside: int) -> None:
    """What a worker does; the only thing of ours that Ray calls."""
    with suppress(OSError):  # another machine need not have it
        os.chdir(home)
    explain_shard(_opened(question, beside), shard, ShardFolder(folder))


@lru_cache(maxsize=1)
def _opened(question: ExplainRequest, beside: int) -> ExplainJob:
    """Kept by the worker from shard to shard. What is free on its machine is for all workers there."""
    return open_job(replace(question, memory=question.memory or free_memory() // beside))


def _answer(ray: Any, done: Any) -> None:
    """One sentence for whatever went wrong in the task."""
    try:
        ray.get(done)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, LaraError):
            raise error.cause from None
        raise LaraError(f"a task of Ray failed ({type(error.cause).__name__}: {error.cause}).") from error
    except ray.exceptions.RayError as error:
        said = str(error).strip().splitlines()[0]
        raise LaraError(f"a shard failed {RETRIES + 1} times ({said}); the same command goes on with it.") from error


@contextmanager
def _cluster(address: str | None) -> Iterator[Any]:
    """Ray, connected to a cluster that runs, or started here until the work is done."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is told to anybody
    try:
        import ray
    except ModuleNotFoundError as error:
        raise InputError(f"--engine ray needs more packages ({error.name}): pip install 'dgl-lara[ray]'") from error
    where = address or os.environ.get("RAY_ADDRESS", "local")
    settings: dict[str, Any] = (
        {"include_dashboard": False, "object_store_memory": OBJECT_STORE} if where == "local" else {}
    )
    knock(where)
    listening = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    handed_on = {name: os.environ[name] for name in HANDED_ON if name in os.environ}
    try:
        with working("starting Ray" if where == "local" else f"looking for Ray at {where}"):
            ray.init(where, runtime_env={"env_vars": handed_on}, logging_level=logging.ERROR,
                     log_to_driver=not is_quiet(), **settings)  # fmt: skip
    except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise unreachable(where, str(error).strip().splitlines()[0]) from error
    for number, handler in listening.items():
        signal.signal(number, handler)  # Ray's own would end the command without a word
    try:
        yield ray
    finally:
        ray.shutdown()


def knock(where: str) -> None:
    """Whether anybody is at HOST:PORT; `local` and `auto` are Ray's own affair."""
    host, _, port = where.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), KNOCK).close()
    except (OSError, OverflowError) as error:
        raise unreachable(where, getattr(error, "strerror", None) or str(error)) from error


def unreachable(where: str, why: str) -> LaraError:
    return LaraError(f"Ray cannot be reached at {where} ({why}); `ray start --head` starts one.")
