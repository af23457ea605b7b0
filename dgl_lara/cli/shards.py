"""`dgl-lara shards`: whether all shards of a folder are there, and all of them in one file."""

from __future__ import annotations

from pathlib import Path

import click

from dgl_lara.cli.console import echo
from dgl_lara.cli.options import FOLDER, NEW_FILE


@click.command("shards")
@click.argument("folder", type=FOLDER)
@click.option("--out", type=NEW_FILE, help="Put all of them into this .parquet, .csv or .jsonl file.")
def shards(folder: Path, out: Path | None) -> None:
    """Say which shards of FOLDER are missing (exit code 1), or check all of them and join them to a file."""
    from dgl_lara.shards.shard_folder import ShardFolder

    found = ShardFolder(folder)
    if out:
        echo(f"{found.join(out):,} rows in {out}")
    else:
        manifest = found.manifest()
        echo(f"all {len(manifest.shards)} shards are there: {manifest.targets:,} explanations, {manifest.rows:,} rows")
