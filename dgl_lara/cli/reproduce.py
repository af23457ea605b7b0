"""`dgl-lara reproduce`: the paper's tables and figures, by the scripts in experiments/."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import click

from dgl_lara.choices import VALUES
from dgl_lara.cli.options import FOLDER, DatasetName, device_option
from dgl_lara.errors import LaraError

WHAT = {  # in the order of `all`: what others build on comes first
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
HELP = """Make the paper's tables and figures, with the paper's own figures beside ours.

Goes on where it was if it is interrupted; what several of them need is measured once.

\b
""" + "\n".join(f"{name:15}{words}" for name, words in {**WHAT, "all": "everything"}.items())
EXPERIMENTS = Path(__file__).parents[2] / "experiments"


def script(what: str) -> ModuleType:
    """experiments/<what>.py; the scripts import each other by name, so their folder must be on the path."""
    path = EXPERIMENTS / f"{what.replace('-', '_')}.py"
    if not path.is_file():
        raise LaraError(
            f"reproduction needs the source checkout, with its folder experiments/ (no {path.name} in {EXPERIMENTS})."
        )
    if str(EXPERIMENTS) not in sys.path:
        sys.path.insert(0, str(EXPERIMENTS))
    return importlib.import_module(path.stem)


@click.command(help=HELP)
@click.argument("what", type=click.Choice([*WHAT, "all"]), metavar="WHAT")
@click.option("--quick", is_flag=True, help="Short training, 1 seed, 40 targets: under an hour, and lower figures.")
@click.option("--seeds", type=click.IntRange(min=1), help="How often everything is repeated. [5; quick: 1]")
@click.option("--targets", type=click.IntRange(min=1), help="Test targets a data set, at most. [200; quick: 40]")
@click.option("--dataset", "names", type=DatasetName(), multiple=True, help="These instead of the paper's.")
@click.option("--value", type=click.Choice(VALUES[:3]), default="logit", show_default=True,
              help="The number explained (the authors' code: log-odds).")  # fmt: skip
@click.option("--data-dir", type=FOLDER, help="Folder with original data (else DGL_LARA_DATA, else the cache).")
@click.option("--out", type=FOLDER, help="Folder of the results. Default: experiments/results.")
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
    device: str,
) -> None:
    chosen = list(WHAT) if what == "all" else [what]
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
    )
    scripts = {name: script(name) for name in chosen}

    from dgl_lara.memory import reuse_freed_memory

    reuse_freed_memory()
    for module in scripts.values():
        for path in module.run(settings):
            click.echo(f"written: {path}")
