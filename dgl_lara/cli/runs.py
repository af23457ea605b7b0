"""Command `dgl-lara runs`. List, show, compare and delete runs."""

from __future__ import annotations

import sys

import click

from dgl_lara.cli.config_file import to_toml
from dgl_lara.cli.console import echo, width
from dgl_lara.cli.train import train
from dgl_lara.errors import InputError


@click.group(invoke_without_command=True)
@click.pass_context
def runs(context: click.Context) -> None:
    """List the runs in runs/, show or compare them, print their settings, delete them."""
    if context.invoked_subcommand:
        return
    from dgl_lara._util.tables import text_blocks
    from dgl_lara.errors import message
    from dgl_lara.runs.overview import all_runs
    from dgl_lara.runs.tables import run_table

    found = all_runs()
    if not found:
        echo(message("run.none", of="", dataset="ba-shapes"))
        return
    echo(text_blocks(*run_table(found), width()))
    echo("\nThe first run is the newest. eval, explain and report use it unless --run names another.")
    echo("agreement: R2 of the scores with the true attribution on validation targets. 1 is perfect.")
    if any(run.figures for run in found):
        echo("delta: fidelity+ minus fidelity-, averaged over the targets. The explained node itself is kept.")


@runs.command("list", hidden=True)
@click.pass_context
def list_runs(context: click.Context) -> None:
    """List the runs."""
    context.invoke(runs)


@runs.command()
@click.argument("run")
def show(run: str) -> None:
    """Show settings and results of RUN, a folder or a name in runs/."""
    from dgl_lara._util.tables import text_blocks, text_table
    from dgl_lara.runs.overview import find_run, lara_table
    from dgl_lara.runs.tables import setting_text, settings_of

    found = find_run(run)
    command = found.environment.get("command", "-")
    echo(f"{found.folder}: started {found.started}, {found.size / 2**20:.1f} MB\n{command}\n")
    echo(text_table(["setting", "value"], [[name, setting_text(value)] for name, value in settings_of(found).items()]))
    if found.agreement is not None:
        echo(f"\n{found.steps} steps, validation agreement {found.agreement:.3f}")
    if found.stopped and found.is_being_trained:
        echo(f"in training, {found.stopped} so far")
    elif found.stopped:
        echo(f"stopped after {found.stopped}; continue with: {found.resume_command}")
    elif not found.is_trained:
        echo(f"\nnot trained yet; continue with: {found.resume_command}")
    for name, content in found.evaluations.items():
        step = found.outdated_step(content)
        outdated = f" (of an earlier explainer, after {step} steps; evaluate it again)" if step else ""
        echo(f"\n{name}: {content.get('what', '-')}{outdated}")
        header, rows = lara_table(content)
        if rows:
            echo(text_blocks(header, rows, width()))


@runs.command()
@click.argument("one")
@click.argument("other")
def compare(one: str, other: str) -> None:
    """Show the settings in which two runs differ, and their figures."""
    from dgl_lara._util.tables import text_table
    from dgl_lara.runs.overview import find_run
    from dgl_lara.runs.tables import comparison

    first, second = find_run(one), find_run(other)
    if first.folder.resolve() == second.folder.resolve():
        raise InputError("run.same", one=one, other=other, folder=first.folder)
    echo(text_table(*comparison(first, second)))


@runs.command()
@click.argument("run")
def config(run: str) -> None:
    """Print the settings of RUN for --config, as in dgl-lara runs config RUN > run.toml."""
    from dgl_lara.runs.overview import find_run
    from dgl_lara.runs.tables import train_options

    names = {name.lstrip("-") for option in train.params for name in option.opts}
    options = {name: value for name, value in train_options(find_run(run)).items() if name in names}
    echo(to_toml("train", options).rstrip("\n"))


@runs.command()
@click.argument("names", nargs=-1, required=True, metavar="RUN...")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def delete(names: tuple[str, ...], yes: bool) -> None:
    """Delete runs. Files that dgl-lara did not write stay."""
    from dgl_lara.runs.overview import delete_run, find_run

    for run in [find_run(name, allow_damaged=True) for name in names]:
        what = f"{run.folder} ({run.dataset}, started {run.started}, {run.size / 2**20:.1f} MB)"
        if not yes:
            if not sys.stdin.isatty():
                raise InputError("runs.no_terminal", folder=run.folder)
            if not click.confirm(f"delete {what}?", err=True):
                continue
        kept = delete_run(run)
        note = f"; not written by dgl-lara and kept: {', '.join(path.name for path in kept)}" if kept else ""
        echo(f"deleted {what}{note}")
