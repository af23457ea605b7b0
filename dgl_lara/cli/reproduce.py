"""Command `dgl-lara reproduce`. The paper's tables and figures, by the scripts in experiments/."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

import click

from dgl_lara.cli.console import UsageError, echo
from dgl_lara.cli.options import COUNT, DATASET_NAME, FOLDER, NEW_FOLDER, device_option
from dgl_lara.constants import VALUES
from dgl_lara.datasets import DATASETS
from dgl_lara.errors import LaraError

WHAT = {  # in the order of `all`, in which later ones build on earlier ones
    "table-targets": "accuracy of the models that are explained",
    "figure-4": "fidelity against sparsity, all methods",
    "figure-1": "Fidelity+ and throughput as radars",
    "table-1": "throughput, all methods",
    "table-auc": "AUC against ground truth, of edges and of nodes",
    "figure-2": "correlation of attributions with fidelity",
    "figure-5": "learning removal against learning mutual information",
    "table-2": "dual against single embedding",
    "table-3": "latency for 10^2 ... 10^5 nodes",
    "table-4": "layers of the explainer",
    "table-dim": "dimension of the embeddings",
    "qualitative": "pictures of explanations",
}
OF_SPEED = ("figure-1", "table-1", "table-3")  # measured with nothing else running
HELP = """Make the tables and figures of the paper, with its own figures next to ours.

An interrupted run continues where it stopped, and shared measurements are made once.

\b
""" + "\n".join(f"{name:15}{words}" for name, words in {**WHAT, "all": "everything"}.items())
EXPERIMENTS = Path(__file__).parents[2] / "experiments"


def script(what: str) -> ModuleType:
    """Import experiments/<what>.py. The scripts import each other by name, so their folder has to be on the path."""
    path = EXPERIMENTS / f"{what.replace('-', '_')}.py"
    if not path.is_file():
        raise LaraError("reproduce.no_source", file=path.name, folder=EXPERIMENTS)
    if str(EXPERIMENTS) not in sys.path:
        sys.path.insert(0, str(EXPERIMENTS))
    return importlib.import_module(path.stem)


@click.command(help=HELP)
@click.argument("what", type=click.Choice([*WHAT, "all"]), metavar="WHAT")
@click.option("--quick", is_flag=True, help="Shorter training, 1 seed and 100 targets, under an hour.")
@click.option("--seeds", type=COUNT, help="Repetitions. Default is 5, with --quick 1.")
@click.option("--targets", type=COUNT, help="Test targets of a data set, at most. Default is 200, with --quick 100.")
@click.option("--dataset", "names", type=DATASET_NAME, multiple=True, help="Data sets to use instead of the paper's.")
@click.option("--value", type=click.Choice(VALUES[:3]), default="logit", show_default=True,
              help="Number to explain. The authors' code explains log-odds.")  # fmt: skip
@click.option("--data-dir", type=FOLDER, help="Folder with original data. Default is DGL_LARA_DATA, or the cache.")
@click.option("--out", type=NEW_FOLDER, help="Folder of the results. Default is experiments/results.")
@click.option(
    "--jobs", type=click.IntRange(1, 256), help="Data sets at a time, with `all`. Default is 2 if there are two cores."
)
@click.option("--only", type=DATASET_NAME, hidden=True, help="Only this data set (a job of `all`).")
@device_option
def reproduce(
    what: str,
    quick: bool,
    seeds: int | None,
    targets: int | None,
    names: tuple[str, ...],
    value: str,
    data_dir: Path | None,
    out: Path | None,
    jobs: int | None,
    only: str | None,
    device: str,
) -> None:
    chosen = [name for name in WHAT if not (only and name in OF_SPEED)] if what == "all" else [what]
    if files := [name for name in names if name not in DATASETS]:
        raise UsageError("choice.unknown", name="--dataset", known=", ".join(DATASETS), got=files[0], hint="")
    common = script("common")
    settings = common.Settings(
        quick=quick,
        seeds=seeds,
        targets=targets,
        data_dir=data_dir,
        out=out or common.RESULTS,
        device=device,
        value=value,
        datasets=names,
        only=only,
    )
    scripts = {name: script(name) for name in chosen}

    from dgl_lara._util.memory import reuse_freed_memory
    from dgl_lara.cli.options import choose_device

    if what == "all" and not names and not only:
        jobs = jobs or (2 if (os.cpu_count() or 1) > 1 and choose_device(device).type == "cpu" else 1)
        if jobs > 1:
            options: dict[str, object] = {"--seeds": seeds, "--targets": targets, "--value": value, "--device": device}
            options |= {"--data-dir": data_dir, "--out": settings.out}
            words = [
                str(word)
                for option, word_value in options.items()
                if word_value is not None
                for word in (option, word_value)
            ]
            words = ["reproduce", "all", *(["--quick"] if quick else []), *words]
            measure_side_by_side(common.LONGEST_FIRST, words, jobs, settings.out)
    reuse_freed_memory()
    for module in scripts.values():
        if settings.names(module.NAMES):
            for path in module.run(settings):
                echo(f"written: {path}")


def measure_side_by_side(names: Sequence[str], words: list[str], jobs: int, out: Path) -> None:
    """Run a command for several data sets at once, whose results are on disk afterwards. Speed is not measured.

    Small graphs do not profit from several threads, so two processes with one thread each take about half the time.

    Args:
        names: Data sets.
        words: The command after `dgl-lara`.
        jobs: Number of processes at a time.
        out: Folder of the results.
    """
    from dgl_lara._util.notices import notice
    from dgl_lara._util.progress import Progress

    out.mkdir(parents=True, exist_ok=True)
    notice("reproduce.parallel", jobs=jobs, out=out)
    for name in Progress(_finished(names, words, jobs, out), "measuring", total=len(names), unit="data set"):
        notice("reproduce.measured", name=name)


def _finished(names: Sequence[str], words: list[str], jobs: int, out: Path) -> Iterator[str]:
    """Yield each data set when its process ends."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // jobs))}
    waiting, running = list(names), dict[str, subprocess.Popen]()
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                name = waiting.pop(0)
                with (out / f"{name}.log").open("w") as log:
                    command = [sys.executable, "-m", "dgl_lara", *words, "--only", name]
                    running[name] = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
            time.sleep(0.2)
            for name in [name for name, process in running.items() if process.poll() is not None]:
                log_file = out / f"{name}.log"
                if running.pop(name).returncode:
                    last = " ".join(log_file.read_text().strip().splitlines()[-1:])
                    raise LaraError("reproduce.failed", name=name, problem=last, log=log_file)
                log_file.unlink()
                yield name
    finally:
        for process in running.values():
            process.terminate()  # files are written atomically
        for process in running.values():
            process.wait()
