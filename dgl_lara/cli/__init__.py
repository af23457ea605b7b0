"""The `dgl-lara` command. A command parses, calls and prints; heavy imports happen inside, so --help is instant."""

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
from dgl_lara.cli.console import LOUDNESS, echo, may_tell, never_silent, print_error, speak_as_usual
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
    """Turns our errors into one sentence and an exit code, and Ctrl-C into a quiet end."""

    def main(self, args: Sequence[str] | None = None, **more: Any) -> Any:  # type: ignore[override]
        """As click's own; but Ctrl-C while it still reads the command line, or at a question, is one everywhere."""
        try:
            code = super().main(args, **{**more, "standalone_mode": False})
        except click.Abort:
            _say_interrupted()
            code = 130
        except click.ClickException as error:
            if isinstance(error, click.NoSuchOption) and error.ctx and error.ctx.command is self:
                where = "Options stand behind a command: dgl-lara COMMAND [OPTIONS]."
                error = click.UsageError(f"{error.format_message()} {where}", error.ctx)
            error.show()
            code = error.exit_code
        except OSError as error:  # of --help or --version
            _say_what_failed(error)
        sys.exit(code if isinstance(code, int) else 0)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        if command is not None:
            refuse_two_values(click.Context(command, ctx, name, resilient_parsing=True), rest)
        return name, command, rest

    def invoke(self, ctx: click.Context) -> Any:
        speak_as_usual()
        try:
            with never_silent(), warnings_in_words():
                return super().invoke(ctx)
        except LaraError as error:
            print_error(f"Error: {error}" + ("" if " " in error.code else f" [{error.code}]"))
            sys.exit(error.exit_code)
        except OSError as error:
            _say_what_failed(error)
        except KeyboardInterrupt:
            _say_interrupted()
            sys.exit(130)
        except click.UsageError as error:
            if not may_tell():
                sys.exit(error.exit_code)
            raise


def refuse_two_values(context: click.Context, words: list[str]) -> None:
    """click would take the last one, and nobody hears of the first."""
    try:
        _, _, given = context.command.make_parser(context).parse_args(list(words))
    except click.UsageError:
        return  # click says it itself
    for option, times in Counter(given).items():
        takes_one = isinstance(option, click.Option) and not (option.multiple or option.is_flag or option.count)
        if times > 1 and takes_one:
            raise click.UsageError(f"{option.opts[0]} is given {times} times, and takes one value.", context)


@contextmanager
def warnings_in_words() -> Iterator[None]:
    """Our own are sentences for whoever reads, without the line of code that Python adds."""
    as_usual = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], filename: str, *more: Any) -> None:
        if Path(filename).is_relative_to(Path(__file__).parents[1]):
            print_error(f"note: {message}")
        else:
            as_usual(message, category, filename, *more)

    with warnings.catch_warnings():
        warnings.showwarning = show  # type: ignore[assignment]
        yield


def _say_what_failed(error: OSError) -> NoReturn:
    print_error(f"Error: {error.filename or 'the output'}: {error.strerror or error}.")
    sys.exit(1)


def _say_interrupted() -> None:
    if os.environ.get("RANK", "0") == "0":  # of several processes one says so
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
