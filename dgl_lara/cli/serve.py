"""`dgl-lara serve`: explanations over HTTP, and the page to explore them with."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import click

from dgl_lara.cli.options import FILE, FOLDER, RUN, Count, Memory, Rate, trust_options
from dgl_lara.cli.printing import echo
from dgl_lara.errors import InputError

NEEDS = "serving needs more packages ({}): pip install 'dgl-lara[serve]'"


@click.command("serve")
@click.option("--run", "folders", type=RUN, multiple=True,
              help="Run to serve, under the name of its folder; again for more. Default: the newest.")  # fmt: skip
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=Count(0, 65535), default=8080, show_default=True, help="0: any free one.")
@click.option("--workers", type=Count(1, 256), help="Processes that answer. [one a core]")
@click.option("--token-file", type=FILE, help="File with the bearer token that requests must carry.")
@click.option("--state", type=FOLDER, help="Where graph updates and shared tables are kept. [RUN/serving]")
@click.option("--max-body", type=Memory(), default="16MB", show_default=True, help="Size of a request, at most.")
@click.option("--timeout", type=Rate(3600), default=60.0, show_default=True, help="Seconds for a request, at most.")
@click.option("--no-fill", is_flag=True, help="Explain only what is asked for, not everything while nobody asks.")
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
    no_fill: bool,
    memory: int | None,
    trust: bool | str,
) -> None:
    """Serve trained runs over HTTP (KServe v1) and as a page to explore them with."""
    start(folders, (host, port), workers, token_file, state, (max_body, timeout), not no_fill, memory, trust)


def start(
    folders: tuple[Path, ...],
    address: tuple[str, int],
    workers: int | None,
    token_file: Path | None,
    state: Path | None,
    limits: tuple[int, float],
    fill: bool,
    memory: int | None,
    trust: bool | str,
) -> None:
    """Until it is told to stop."""
    for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"):  # a worker is one thread; before torch and numba load
        os.environ[name] = "1"
    counting = tempfile.TemporaryDirectory(prefix="dgl-lara-metrics-")  # where workers count, for all of them together
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = counting.name  # before prometheus_client loads
    try:
        from dgl_lara.serve import app  # noqa: F401 (whatever is missing is missing now)
        from dgl_lara.serve.guard import Limits
        from dgl_lara.serve.served import open_models
        from dgl_lara.serve.supervisor import Supervisor
    except ModuleNotFoundError as error:
        raise InputError(NEEDS.format(error.name)) from error
    from dgl_lara.runs import newest_run

    chosen = folders or (newest_run(),)
    supervisor = Supervisor(
        load=lambda: open_models(chosen, state, memory, trust),
        address=address,
        workers=workers or os.cpu_count() or 1,
        limits=Limits(*limits),
        token=lambda: read_token(token_file),
        fill=fill,
    )
    with counting:
        supervisor.run(lambda where: echo(f"serving {', '.join(path.resolve().name for path in chosen)} at {where}"))


def read_token(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        token = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the token file {path} cannot be read ({error}).") from error
    if not token:
        raise InputError(f"the token file {path} is empty.")
    return token
