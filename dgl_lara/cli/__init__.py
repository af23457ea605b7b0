"""The `dgl-lara` command. Commands import heavy libraries when they run, so that --help is instant."""

from __future__ import annotations

import os
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import click

from dgl_lara import __version__
from dgl_lara.cli.benchmark import benchmark
from dgl_lara.cli.config_file import CONFIG
from dgl_lara.cli.console import LOUDNESS, UsageError, echo, may_report, never_silent, print_error, reset_loudness
from dgl_lara.cli.datasets import datasets
from dgl_lara.cli.eval import evaluate_command
from dgl_lara.cli.explain import explain_command
from dgl_lara.cli.explore import explore
from dgl_lara.cli.partition import partition
from dgl_lara.cli.report import report
from dgl_lara.cli.reproduce import reproduce
from dgl_lara.cli.runs import runs
from dgl_lara.cli.serve import serve
from dgl_lara.cli.shards import shards
from dgl_lara.cli.summary import summary
from dgl_lara.cli.target import target
from dgl_lara.cli.train import train
from dgl_lara.errors import LaraError


class Command(click.Group):
    """The group of all commands. It turns errors into one sentence and an exit code, and Ctrl-C into a quiet end."""

    def main(self, args: Sequence[str] | None = None, **more: Any) -> Any:  # type: ignore[override]
        """Run the command line. Ctrl-C ends it quietly at any moment."""
        try:
            code = super().main(args, **{**more, "standalone_mode": False})
        except click.Abort:
            _print_interrupted()
            code = 130
        except click.ClickException as error:
            if isinstance(error, click.NoSuchOption) and error.ctx and error.ctx.command is self:
                error = UsageError("options.before_command", problem=error.format_message())
            error.show()
            code = error.exit_code
        except OSError as error:  # while --help or --version prints
            _exit_on(error)
        sys.exit(code if isinstance(code, int) else 0)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        if command is not None:
            _check_repeated(click.Context(command, ctx, name, resilient_parsing=True), rest)
        return name, command, rest

    def invoke(self, ctx: click.Context) -> Any:
        reset_loudness()
        try:
            with never_silent(), _plain_warnings():
                return super().invoke(ctx)
        except LaraError as error:
            print_error(f"Error: {error}" + ("" if " " in error.code else f" [{error.code}]"))
            sys.exit(error.exit_code)
        except OSError as error:
            _exit_on(error)
        except KeyboardInterrupt:
            _print_interrupted()
            sys.exit(130)
        except click.UsageError as error:
            if not may_report():
                sys.exit(error.exit_code)
            raise


def _check_repeated(context: click.Context, words: list[str]) -> None:
    """Raise UsageError for a repeated option. click would silently use the last one."""
    try:
        _, _, given = context.command.make_parser(context).parse_args(list(words))
    except click.UsageError:
        return  # click reports it
    for option, times in Counter(given).items():
        takes_one = isinstance(option, click.Option) and not (option.multiple or option.is_flag or option.count)
        if times > 1 and takes_one:
            raise UsageError("options.repeated", name=option.opts[0], times=times)


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Print our own warnings without the line of code that Python adds."""
    original = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], filename: str, *more: Any) -> None:
        if Path(filename).is_relative_to(Path(__file__).parents[1]):
            print_error(f"note: {message}")
        else:
            original(message, category, filename, *more)

    with warnings.catch_warnings():
        warnings.showwarning = show  # type: ignore[assignment]
        yield


def _exit_on(error: OSError) -> NoReturn:
    print_error(f"Error: {error.filename or 'the output'}: {error.strerror or error}.")
    sys.exit(1)


def _print_interrupted() -> None:
    if os.environ.get("RANK", "0") == "0":  # the first of several processes
        echo("Interrupted.", err=True)


@click.group(cls=Command, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="dgl-lara")
def main() -> None:
    """Explain any graph neural network in one feed-forward pass."""


for command in (
    partition,
    target,
    train,
    evaluate_command,
    explain_command,
    shards,
    summary,
    benchmark,
    report,
    reproduce,
    serve,
    explore,
):
    command.params += [CONFIG, *LOUDNESS]
    main.add_command(command)
for command in (datasets, runs):
    main.add_command(command)
