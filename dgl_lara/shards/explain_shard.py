"""One shard of a job, explained by any process."""

from __future__ import annotations

import hashlib
from typing import Any

from dgl_lara._util.environment import versions
from dgl_lara.runs.explain_job import ExplainJob
from dgl_lara.shards.shard_folder import Shard, ShardFolder


def explain_shard(job: ExplainJob, shard: Shard, folder: ShardFolder) -> dict[str, Any]:
    """Explain one shard unless its file is there, and return its record.

    Args:
        job: Job with the targets of all shards.
        shard: Which of them to explain.
        folder: Where files and records are.
    """
    targets, metadata = shard.cut(job.targets), _metadata(job, shard.of, folder.ending)
    folder.agree(metadata)
    record = folder.record(shard)
    if record is None:
        rows = job.to_file(targets, folder.file(shard))
        folder.agree(metadata)
        record = folder.done(shard, len(targets), rows)
    folder.complete()
    return record


def _metadata(job: ExplainJob, num_shards: int, ending: str) -> dict[str, Any]:
    """Return what all shards must have in common, on whatever machine they are explained."""
    order = hashlib.sha256(job.targets.cpu().numpy().tobytes()).hexdigest()[:16]
    count = {"targets": len(job.targets), "order": order, "top": job.request.top, "shards": num_shards}
    libraries = {f"version of {name}": version for name, version in versions().items()}
    return {**job.metadata, **count, "files": ending, **libraries}
