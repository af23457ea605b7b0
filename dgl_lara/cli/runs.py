"""`dgl-lara runs`: what has been trained, and what to do with it."""

from __future__ import annotations

import sys

import click

from dgl_lara.cli.config_file import written
from dgl_lara.cli.console import echo, width
from dgl_lara.cli.train import train
from dgl_lara.errors import InputError


@click.group(invoke_without_command=True)
@click.pass_context
def runs(context: click.Context) -> None:
    """List the runs in runs/, show or compare them, hand back their settings, delete them."""
    if context.invoked_subcommand:
        return
    from dgl_lara._util.tables import text_blocks
    from dgl_lara.constants import RUNS
    from dgl_lara.runs.overview import all_runs, listing

    found = all_runs()
    if not found:
        echo(f"there is no run in {RUNS}/ yet; train one with: dgl-lara train --dataset ba-shapes")
        return
    echo(text_blocks(*listing(found), width()))
    echo("\nthe first is the newest, which eval, explain and report take unless --run names another")
    echo("agreement: R2 of the scores with the true attribution on validation targets; 1 is perfect")
    if any(run.judged for run in found):
        echo("delta: fidelity+ less fidelity-, over so many targets; a node that is explained is kept itself")


@runs.command("list", hidden=True)
@click.pass_context
def list_runs(context: click.Context) -> None:
    """The same as without a word behind it."""
    context.invoke(runs)


@runs.command()
@click.argument("run")
def show(run: str) -> None:
    """What RUN (a folder, or its name in runs/) was made of and what came of it."""
    from dgl_lara._util.tables import text_blocks, text_table
    from dgl_lara.runs.overview import find, own_figures, plainly, settings

    found = find(run)
    command = found.environment.get("command", "-")
    echo(f"{found.folder}: started {found.started}, {found.size / 2**20:.1f} MB\n{command}\n")
    echo(text_table(["setting", "value"], [[name, plainly(value)] for name, value in settings(found).items()]))
    if found.agreement is not None:
        echo(f"\n{found.steps} steps, validation agreement {found.agreement:.3f}")
    if found.stopped and found.is_being_trained:
        echo(f"it is being trained, {found.stopped} so far")
    elif found.stopped:
        echo(f"stopped after {found.stopped}; go on with: {found.again}")
    if not found.is_trained:
        echo(f"\nnot trained yet; go on with: {found.again}")
    for name, content in found.evaluations.items():
        before = found.came_before(content)
        stale = f" (of an earlier explainer, after {before} steps: evaluate it again)" if before else ""
        echo(f"\n{name}: {content.get('what', '-')}{stale}")
        header, rows = own_figures(content)
        if rows:
            echo(text_blocks(header, rows, width()))


@runs.command()
@click.argument("one")
@click.argument("other")
def compare(one: str, other: str) -> None:
    """The settings in which two runs differ, and their figures side by side."""
    from dgl_lara._util.tables import text_table
    from dgl_lara.runs.overview import comparison, find

    first, second = find(one), find(other)
    if first.folder.resolve() == second.folder.resolve():
        raise InputError(f"{one} and {other} are the same run, {first.folder}; name two.")
    echo(text_table(*comparison(first, second)))


@runs.command()
@click.argument("run")
def config(run: str) -> None:
    """The settings of RUN, for `dgl-lara train --config FILE`: dgl-lara runs config RUN > run.toml."""
    from dgl_lara.runs.overview import as_options, find

    known = {name.lstrip("-") for option in train.params for name in option.opts}
    options = {name: value for name, value in as_options(find(run)).items() if name in known}
    echo(written("train", options).rstrip("\n"))


@runs.command()
@click.argument("names", nargs=-1, required=True, metavar="RUN...")
@click.option("--yes", is_flag=True, help="Do not ask.")
def delete(names: tuple[str, ...], yes: bool) -> None:
    """Delete runs for good. What dgl-lara did not write stays."""
    from dgl_lara.runs.overview import delete as remove
    from dgl_lara.runs.overview import find

    found = [find(name, damaged_too=True) for name in names]
    for run in found:
        what = f"{run.folder} ({run.dataset}, started {run.started}, {run.size / 2**20:.1f} MB)"
        if not yes:
            if not sys.stdin.isatty():
                raise InputError(f"to delete {run.folder} without a terminal to ask on, say --yes.")
            if not click.confirm(f"delete {what}?", err=True):
                continue
        foreign = remove(run)
        left = f"; not ours and left there: {', '.join(path.name for path in foreign)}" if foreign else ""
        echo(f"deleted {what}{left}")
