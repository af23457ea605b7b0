"""Shards as tasks of Ray, on this machine or on a cluster.

If a worker dies, another one repeats its shard. Complete shards stay, so a second call continues after an interruption.
A task gets names and numbers only. Each worker opens the run once and maps its embeddings into memory.
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
from dgl_lara._util.progress import Progress, is_quiet, status
from dgl_lara.errors import InputError, LaraError
from dgl_lara.inference.request import ExplainRequest
from dgl_lara.runs.explain_job import ExplainJob, open_job
from dgl_lara.shards.explain_shard import explain_shard
from dgl_lara.shards.shard_folder import Shard, ShardFolder, ShardManifest

SHARDS_PER_CORE = 4  # so that a dead worker costs a quarter of its share, and slow machines get fewer
MAX_RETRIES = 3  # of a shard whose worker died
OBJECT_STORE_BYTES = 100 * 2**20  # nearly the least that Ray accepts; tasks exchange nothing large
SECONDS_TO_CONNECT = 10.0  # to a cluster; Ray itself waits for minutes
FORWARDED = ("DGL_LARA_DATA", "DGL_LARA_CACHE", "PYTHONPATH")  # environment of the workers


def explain_by_ray(
    request: ExplainRequest, folder: ShardFolder, shards: int | None, address: str | None
) -> ShardManifest:
    """Explain all shards that are not complete.

    Args:
        request: What to explain.
        folder: Folder of the shards.
        shards: Number of shards. None means that of the folder, or some for each core.
        address: Cluster to connect to, such as "auto" or "host:6379". None means start Ray on this machine.

    Returns:
        The manifest of the folder.
    """
    paths: dict[str, Any] = {name: value.resolve() for name, value in vars(request).items() if isinstance(value, Path)}
    request = replace(request, **paths)
    with _cluster(address) as ray:
        stored = folder.request()
        default = stored["shards"] if stored else SHARDS_PER_CORE * int(ray.cluster_resources().get("CPU", 1))
        total = shards or default
        most_workers = max(int(node["Resources"].get("CPU", 1)) for node in ray.nodes() if node["Alive"])
        task = ray.remote(max_retries=MAX_RETRIES, num_cpus=1, num_gpus=int(request.device == "cuda"))(_explain)
        arguments = (Path.cwd(), folder.folder.resolve(), most_workers)
        pending = [task.remote(request, Shard(index, total), *arguments) for index in range(total)]
        with Progress[None](total=total, label="explaining", unit="shard") as bar:
            while pending:
                (finished, *_), pending = ray.wait(pending)
                _check(ray, finished)
                bar.advance()
    return folder.manifest()


def _explain(request: ExplainRequest, shard: Shard, directory: Path, folder: Path, most_workers: int) -> None:
    """Explain a shard in a worker of Ray."""
    with suppress(OSError):  # another machine may not have this directory
        os.chdir(directory)
    explain_shard(_opened(request, most_workers), shard, ShardFolder(folder))


@lru_cache(maxsize=1)
def _opened(request: ExplainRequest, most_workers: int) -> ExplainJob:
    """Open a job once for all shards of a worker, with its share of the free memory of the machine."""
    return open_job(replace(request, memory=request.memory or free_memory() // most_workers))


def _check(ray: Any, finished: Any) -> None:
    """Raise the error of a task, if there was one."""
    try:
        ray.get(finished)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, LaraError):
            raise error.cause from None
        problem = f"{type(error.cause).__name__}: {error.cause}"
        raise LaraError("ray.task", problem=problem) from error
    except ray.exceptions.RayError as error:
        raise LaraError("ray.gave_up", tries=MAX_RETRIES + 1, problem=_first_line(error)) from error


@contextmanager
def _cluster(address: str | None) -> Iterator[Any]:
    """Connect to a cluster, or start Ray on this machine until the work is done."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # send no statistics
    try:
        import ray
    except ModuleNotFoundError as error:
        raise InputError("ray.packages", name=error.name) from error
    where = address or os.environ.get("RAY_ADDRESS", "local")
    options: dict[str, Any] = {"log_to_driver": not is_quiet(), "logging_level": logging.ERROR}
    if where == "local":
        options |= {"include_dashboard": False, "object_store_memory": OBJECT_STORE_BYTES}
    check_reachable(where)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    environment = {name: os.environ[name] for name in FORWARDED if name in os.environ}
    try:
        with status("starting Ray" if where == "local" else f"connecting to Ray at {where}"):
            ray.init(where, runtime_env={"env_vars": environment}, **options)
    except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise LaraError("ray.unreachable", address=where, problem=_first_line(error)) from error
    for number, handler in handlers.items():
        signal.signal(number, handler)  # those of Ray would end the command without a message
    try:
        yield ray
    finally:
        ray.shutdown()


def check_reachable(address: str) -> None:
    """Raise if nothing listens at HOST:PORT. Ray itself resolves the addresses "local" and "auto"."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), SECONDS_TO_CONNECT).close()
    except (OSError, OverflowError) as error:
        problem = getattr(error, "strerror", None) or str(error)
        raise LaraError("ray.unreachable", address=address, problem=problem) from error


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
