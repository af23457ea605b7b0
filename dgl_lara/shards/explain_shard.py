"""One shard of a job, explained by any process."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from dgl_lara._util.environment import versions

if TYPE_CHECKING:
    from dgl_lara.runs.explain_job import ExplainJob
    from dgl_lara.shards.shard_folder import Shard, ShardFolder, ShardRecord


def explain_shard(job: ExplainJob, shard: Shard, folder: ShardFolder) -> ShardRecord:
    """Explain one shard of a job unless it is complete, and return its record."""
    targets, metadata = shard.select(job.targets), _metadata(job, shard.total, folder.ending)
    folder.check_request(metadata)
    record = folder.find_record(shard)
    if record is None:
        rows = job.to_file(targets, folder.file(shard))
        folder.check_request(metadata)
        record = folder.add_record(shard, len(targets), rows)
    folder.write_manifest()
    return record


def _metadata(job: ExplainJob, total: int, ending: str) -> dict[str, Any]:
    """Return what all shards must have in common, on whatever machine they are explained."""
    order = hashlib.sha256(job.targets.cpu().numpy().tobytes()).hexdigest()[:16]
    counts = {"targets": len(job.targets), "order": order, "top": job.request.top, "shards": total}
    libraries = {f"{name} version": version for name, version in versions().items()}
    return {**job.metadata, **counts, "files": ending, **libraries}
