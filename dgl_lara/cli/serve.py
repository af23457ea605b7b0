"""Command `dgl-lara serve`. Serve explanations over HTTP."""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click

from dgl_lara.cli.console import echo
from dgl_lara.cli.options import FILE, FOLDER, MEMORY, RUN, PositiveFloat, memory_option, trust_options
from dgl_lara.errors import InputError


@dataclass(frozen=True)
class ServeOptions:
    """How runs are served."""

    host: str = "127.0.0.1"
    port: int = 8080
    workers: int | None = None
    token_file: Path | None = None
    state: Path | None = None
    max_body: int = 16 * 2**20
    timeout: float = 60.0
    fill: bool = True
    memory: int | None = None
    trust: bool | str = False
    target: int | None = None  # of the first run, that the page shows first


STATE_OPTION = click.option(
    "--state", type=FOLDER, help="Folder for graph updates and shared tables. Default is RUN/serving."
)


@click.command("serve")
@click.option("--run", "folders", type=RUN, multiple=True,
              help="Run to serve under the name of its folder. Repeatable. Default is the newest.")  # fmt: skip
@click.option("--host", default=ServeOptions.host, show_default=True, help="Address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=ServeOptions.port, show_default=True, help="0: any free port."
)
@click.option("--workers", type=click.IntRange(1, 256), help="Processes that answer requests. Default is one a core.")
@click.option("--token-file", type=FILE, help="File with the bearer token that requests must carry.")
@STATE_OPTION
@click.option("--max-body", type=MEMORY, default="16MB", show_default=True, help="Largest request.")
@click.option(
    "--timeout", type=PositiveFloat(3600), default=60.0, show_default=True, help="Seconds after which a request fails."
)
@click.option("--fill/--no-fill", default=True, help="Explain all targets while there are no requests.")
@memory_option
@trust_options
def serve(
    folders: tuple[Path, ...],
    host: str,
    port: int,
    workers: int | None,
    token_file: Path | None,
    state: Path | None,
    max_body: int,
    timeout: float,
    fill: bool,
    memory: int | None,
    trust: bool | str,
) -> None:
    """Serve runs over HTTP (KServe v1), with a page to explore them."""
    options = ServeOptions(host, port, workers, token_file, state, max_body, timeout, fill, memory, trust)
    start(folders, options, lambda names, where: echo(f"serving {', '.join(names)} at {where}"))


def start(folders: tuple[Path, ...], options: ServeOptions, announce: Callable[[list[str], str], None]) -> None:
    """Serve until a signal ends it.

    Args:
        folders: Runs to serve. None means the newest one.
        options: How to serve.
        announce: Called with names and address when requests are answered.
    """
    gc.disable()  # until there are workers: what is loaded stays, and collecting takes a sixth of the time
    try:
        _run(folders, options, announce)
    finally:
        gc.enable()


def _run(folders: tuple[Path, ...], options: ServeOptions, announce: Callable[[list[str], str], None]) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"  # a worker is one thread; before torch loads
    counting = tempfile.TemporaryDirectory(prefix="dgl-lara-metrics-")  # counters of all workers
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = counting.name  # before prometheus_client loads
    try:
        from dgl_lara.serve import app  # noqa: F401 (a missing package shows here)
        from dgl_lara.serve.middleware import Limits
        from dgl_lara.serve.model import ServedModel, open_models
        from dgl_lara.serve.supervisor import Supervisor, is_loopback
    except ModuleNotFoundError as error:
        raise InputError("service.packages", name=error.name) from error
    from dgl_lara._util.notices import notice
    from dgl_lara.runs.folder import newest_run

    def load() -> list[ServedModel]:
        models = open_models(chosen, options.state, options.memory, options.trust)
        if options.target is not None:
            models[0].check_target(options.target)
        return models

    chosen = folders or (newest_run(),)
    names = [folder.resolve().name for folder in chosen]
    supervisor = Supervisor(
        load=load,
        address=(options.host, options.port),
        workers=options.workers or os.cpu_count() or 1,
        limits=Limits(options.max_body, options.timeout),
        token=lambda: read_token(options.token_file),
        fill=options.fill,
    )
    if supervisor.token is None and not is_loopback(supervisor.port):
        notice("service.open")
    with counting:
        supervisor.run(lambda where: announce(names, where))


def read_token(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        token = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("token.unreadable", path=path, problem=error) from error
    if not token:
        raise InputError("token.empty", path=path)
    return token
