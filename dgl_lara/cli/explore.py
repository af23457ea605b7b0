"""Command `dgl-lara explore`. Explore a run in the browser."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from urllib.parse import urlencode

import click

from dgl_lara.cli.console import echo
from dgl_lara.cli.options import INDEX, RUN, memory_option, trust_options
from dgl_lara.cli.serve import STATE_OPTION, ServeOptions, start


@click.command("explore")
@click.option("--run", "folders", type=RUN, multiple=True, help="Run to explore. Repeatable. Default is the newest.")
@click.option("--node", "--graph", "target", type=INDEX, help="Target to start with.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Default is any free port.")
@click.option("--browser/--no-browser", default=True, help="Open the page, or only print its address.")
@STATE_OPTION
@memory_option
@trust_options
def explore(
    folders: tuple[Path, ...],
    target: int | None,
    port: int,
    browser: bool,
    state: Path | None,
    memory: int | None,
    trust: bool | str,
) -> None:
    """Explore the explanations of a run in the browser."""

    def announce(names: list[str], address: str) -> None:
        begin = {} if target is None else {"model": names[0], "target": target}
        page = f"{address}/?{urlencode(begin)}" if begin else f"{address}/"
        echo(f"exploring {', '.join(names)} at {page} (Ctrl-C ends it)")
        if browser:
            webbrowser.open(page)

    start(folders, ServeOptions(port=port, workers=1, state=state, memory=memory, trust=trust, target=target), announce)
