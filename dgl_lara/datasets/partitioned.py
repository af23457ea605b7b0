"""A folder of graph partitions as a data set, whose graph is never loaded completely."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dgl_lara._util.distributed import get_process_group
from dgl_lara.datasets import Options
from dgl_lara.errors import InputError
from dgl_lara.graphs.mapped import MappedGraph
from dgl_lara.graphs.remote import RemoteGraph


class PartitionedDataset:
    """The part of the interface of `Dataset` that needs no complete graph."""

    task = "node"
    motif = edge_truth = pairs = target_type = None
    device = torch.device("cpu")

    def __init__(self, folder: Path, options: Options) -> None:
        if options.undirected or options.target_type or options.pairs or options.nodes:
            raise InputError("partitioned.options", folder=folder)
        group = get_process_group()  # each of several processes opens a partition of its own
        self.graph_source = MappedGraph(folder) if group.count == 1 else RemoteGraph(folder, group)
        meta = self.graph_source.meta
        self.name, self.key, self.num_classes = meta.name, {"parts": meta.fingerprint, **meta.key}, meta.classes
        self.source = f"{meta.source}; {len(meta.parts)} part{'s' * (len(meta.parts) > 1)} on disk"
        self.fingerprint = meta.fingerprint
        self.num_targets = self.num_nodes = meta.nodes
        self.features = torch.empty(0, meta.columns)  # for the number of columns
        self.display_names: dict[str, Any] = {}
        self.names: dict[str, Any] = {}
        self.lara_arguments: dict[str, Any] = {}

    @property
    def graph(self) -> Any:
        """Raise InputError, because the graph is never loaded completely."""
        raise InputError("partition.full_graph")

    @cached_property
    def train(self) -> Tensor:
        return self.graph_source.split("train")

    @cached_property
    def val(self) -> Tensor:
        return self.graph_source.split("val")

    @cached_property
    def test(self) -> Tensor:
        return self.graph_source.split("test")

    def split(self, name: str) -> Tensor:
        """Return the nodes of "train", "val", "test" or "all"."""
        return torch.arange(self.num_targets) if name == "all" else getattr(self, name)

    def targets(self, indices: Tensor) -> Tensor:
        """Return the nodes as `LARA` takes them."""
        return indices

    def to(self, device: torch.device | str) -> PartitionedDataset:
        """Return the data set. Raise InputError unless the device is the CPU."""
        if torch.device(device).type != "cpu":
            raise InputError("partitioned.device")
        return self
