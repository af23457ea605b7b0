"""Command `dgl-lara datasets`. List the data sets."""

from __future__ import annotations

from pathlib import Path

import click

from dgl_lara.cli.console import echo, width
from dgl_lara.cli.options import NonEmptyPath
from dgl_lara.datasets import DATASETS


@click.command()
@click.option(
    "--data-dir", type=NonEmptyPath(exists=True, file_okay=False, path_type=Path), help="Folder with original data."
)
def datasets(data_dir: Path | None) -> None:
    """List the data sets with size, ground truth, origin, and whether the files are present."""
    from dgl_lara._util.tables import text_blocks
    from dgl_lara.datasets.cache import find_files

    def present(name: str) -> str:
        entry = DATASETS[name]
        found = find_files(entry.files, data_dir) if entry.files else None
        if entry.generated:
            return "yes, and the original" if found else "yes"
        return "yes" if found else "no (download)" if entry.download else "no"

    header = ["name", "task", "graphs", "nodes", "edges", "labels", "features", "ground truth", "origin", "present"]
    rows = [
        [name, e.task, e.graphs, e.nodes, e.edges, e.labels, e.features, e.truth, e.origin, present(name)]
        for name, e in DATASETS.items()
    ]
    echo(text_blocks(header, rows, width()))
    echo("\nYour own graph: --dataset file.npz (src, dst, x, y and optional masks) or a DGL file.bin.")
