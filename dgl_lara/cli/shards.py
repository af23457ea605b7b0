"""Command `dgl-lara shards`. Check the shards of a folder and join them."""

from __future__ import annotations

from pathlib import Path

import click

from dgl_lara.cli.console import echo
from dgl_lara.cli.options import FOLDER, NEW_FILE


@click.command("shards")
@click.argument("folder", type=FOLDER)
@click.option("--out", type=NEW_FILE, help="Join all shards into this .parquet, .csv or .jsonl file.")
def shards(folder: Path, out: Path | None) -> None:
    """Check that all shards of FOLDER are complete (else exit code 1). With --out, join them."""
    from dgl_lara.shards.shard_folder import ShardFolder

    found = ShardFolder(folder)
    if out:
        echo(f"{found.join(out):,} rows in {out}")
    else:
        manifest = found.manifest()
        echo(f"all {len(manifest.shards)} shards are there: {manifest.targets:,} explanations, {manifest.rows:,} rows")
