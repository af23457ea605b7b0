"""`dgl-lara explore`: a run in the browser, node by node."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from urllib.parse import urlencode

import click

from dgl_lara.cli.console import echo
from dgl_lara.cli.options import RUN, Count, Memory, trust_options
from dgl_lara.cli.serve import STATE_OPTION, ServeOptions, start


@click.command("explore")
@click.option("--run", "folders", type=RUN, multiple=True, help="Run to explore; again for more. Default: the newest.")
@click.option("--node", "--graph", "target", type=Count(0), help="Where to begin.")
@click.option("--port", type=Count(0, 65535), default=0, help="[any free one]")
@click.option("--browser/--no-browser", default=True, help="Open the page, or only say where it is.")
@STATE_OPTION
@click.option("--memory", type=Memory(), help="Working memory to keep to, like 4GB. [70 % of what is free]")
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
    """Walk through a run in the browser: why is this node what the model says, and that one?"""

    def announce(names: list[str], where: str) -> None:
        begin = {} if target is None else {"model": names[0], "target": target}
        page = f"{where}/?{urlencode(begin)}" if begin else f"{where}/"
        echo(f"exploring {', '.join(names)} at {page} (Ctrl-C ends it)")
        if browser:
            webbrowser.open(page)

    start(folders, ServeOptions(port=port, workers=1, state=state, memory=memory, trust=trust, target=target), announce)
