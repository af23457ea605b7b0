"""`dgl-lara serve`: explanations over HTTP, and the page to explore them with."""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click

from dgl_lara.cli.console import echo
from dgl_lara.cli.options import FILE, FOLDER, RUN, Count, Memory, Rate, trust_options
from dgl_lara.errors import InputError


@dataclass(frozen=True)
class ServeOptions:
    """How runs are to be served."""

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
    target: int | None = None  # of the first run, that somebody wants to begin with


STATE_OPTION = click.option(
    "--state", type=FOLDER, help="Where graph updates and shared tables are kept. [RUN/serving]"
)


@click.command("serve")
@click.option("--run", "folders", type=RUN, multiple=True,
              help="Run to serve, under the name of its folder; again for more. Default: the newest.")  # fmt: skip
@click.option("--host", default=ServeOptions.host, show_default=True, help="Address to listen on.")
@click.option("--port", type=Count(0, 65535), default=ServeOptions.port, show_default=True, help="0: any free one.")
@click.option("--workers", type=Count(1, 256), help="Processes that answer. [one a core]")
@click.option("--token-file", type=FILE, help="File with the bearer token that requests must carry.")
@STATE_OPTION
@click.option("--max-body", type=Memory(), default="16MB", show_default=True, help="Size of a request, at most.")
@click.option("--timeout", type=Rate(3600), default=60.0, show_default=True, help="Seconds for a request, at most.")
@click.option("--fill/--no-fill", default=True, help="Explain everything while nobody asks, or only what is asked for.")
@click.option("--memory", type=Memory(), help="Working memory to keep to, like 4GB. [70 % of what is free]")
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
    """Serve trained runs over HTTP (KServe v1) and as a page to explore them with."""
    wanted = ServeOptions(host, port, workers, token_file, state, max_body, timeout, fill, memory, trust)
    start(folders, wanted, lambda names, where: echo(f"serving {', '.join(names)} at {where}"))


def start(folders: tuple[Path, ...], wanted: ServeOptions, announce: Callable[[list[str], str], None]) -> None:
    """Until it is told to stop. `announce` gets the names of the models and the address, once they can be asked."""
    gc.disable()  # until workers come: what is loaded stays, and looking for what could go takes a sixth of the time
    try:
        _run(folders, wanted, announce)
    finally:
        gc.enable()


def _run(folders: tuple[Path, ...], wanted: ServeOptions, announce: Callable[[list[str], str], None]) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"  # a worker is one thread; before torch loads
    counting = tempfile.TemporaryDirectory(prefix="dgl-lara-metrics-")  # where workers count, for all of them together
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = counting.name  # before prometheus_client loads
    try:
        from dgl_lara.serve import app  # noqa: F401 (whatever is missing is missing now)
        from dgl_lara.serve.middleware import Limits
        from dgl_lara.serve.model import ServedModel, open_models
        from dgl_lara.serve.supervisor import Supervisor, is_loopback
    except ModuleNotFoundError as error:
        raise InputError("service.packages", name=error.name) from error
    from dgl_lara._util.notices import notice
    from dgl_lara.runs.folder import newest_run

    def load() -> list[ServedModel]:
        models = open_models(chosen, wanted.state, wanted.memory, wanted.trust)
        if wanted.target is not None:
            models[0].check_target(wanted.target)
        return models

    chosen = folders or (newest_run(),)
    names = [folder.resolve().name for folder in chosen]
    supervisor = Supervisor(
        load=load,
        address=(wanted.host, wanted.port),
        workers=wanted.workers or os.cpu_count() or 1,
        limits=Limits(wanted.max_body, wanted.timeout),
        token=lambda: read_token(wanted.token_file),
        fill=wanted.fill,
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
