"""Texts of the room `graphs` and of work on partitioned graphs."""

MESSAGES = {
    "partition.another_graph": "A partitioned graph cannot be combined with another one. Leave out --graph.",
    "partition.batch_size": "batch_size must be at least 1 for a partitioned graph (got 0, all targets at once).",
    "partition.changed": "{path} is not as it was written. Partition the graph again.",
    "partition.damaged": "{path} is missing, truncated or damaged ({cause}). Partition the graph again.",
    "partition.exists": "{folder} already contains a partitioned graph. Choose another --out.",
    "partition.explain_processes": (
        "Processes that hold one part each can only train. Explain in one process, or in shards."
    ),
    "partition.full_graph": (
        "A partitioned graph is never loaded as a whole, which this needs. Training and explaining to a file do not."
    ),
    "partition.hops": "hops must be a whole number for a partitioned graph (got {got!r}). Set it (--hops).",
    "partition.meta": "{path} is not a valid description of a partitioned graph ({cause}).",
    "partition.missing": "{folder} is not a partitioned graph (it has no {meta}). Make one with: dgl-lara partition",
    "partition.objective": (
        "objective must not keep a table for a partitioned graph (got {got!r}). Use --objective balanced."
    ),
    "partition.players": "players must be nodes for a partitioned graph (got {got}). Leave out --players.",
    "partition.processes": (
        "The graph has {parts} parts, so there must be {parts} processes or one (got {got}). "
        "Set --processes, or torchrun --nproc-per-node."
    ),
    "partition.refinement": "refine and verify need single targets of a partitioned graph. Use them with --node.",
    "partition.shared_pairs": "shared_pairs must be 0 for a partitioned graph (got {got}). Leave out --shared-pairs.",
    "partition.validation": "validation targets must be named for a partitioned graph: fit(targets, validation).",
    "rows.unreadable": "{path} cannot be read ({cause}). Remove it to compute it again.",
    "partition.index": "index must be banzhaf on a partitioned graph (got {got}).",
}
