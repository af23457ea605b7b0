"""A folder of parts as a data set: everything but the graph, which is never whole."""

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
    """What commands that need no whole graph ask of a `Dataset`."""

    task = "node"
    motif = edge_truth = pairs = target_type = None
    device = torch.device("cpu")

    def __init__(self, folder: Path, options: Options) -> None:
        if options.undirected or options.target_type or options.pairs or options.nodes:
            raise InputError(f"{folder} is a graph in parts, which is taken as it is: --dataset or --graph alone.")
        ranks = get_process_group()  # of several processes each opens its own part
        self.graph_source = MappedGraph(folder) if ranks.count == 1 else RemoteGraph(folder, ranks)
        meta = self.graph_source.meta
        self.name, self.key, self.num_classes = meta.name, {"parts": meta.fingerprint, **meta.key}, meta.classes
        self.source = f"{meta.source}; {len(meta.parts)} part{'s' * (len(meta.parts) > 1)} on disk"
        self.fingerprint = meta.fingerprint
        self.num_targets = self.num_nodes = meta.nodes
        self.features = torch.empty(0, meta.columns)  # nobody's: how many there are is asked for
        self.display_names: dict[str, Any] = {}
        self.names: dict[str, Any] = {}
        self.lara_arguments: dict[str, Any] = {}

    @property
    def graph(self) -> Any:
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
        return torch.arange(self.num_targets) if name == "all" else getattr(self, name)

    def targets(self, numbers: Tensor) -> Tensor:
        return numbers

    def to(self, device: torch.device | str) -> PartitionedDataset:
        if torch.device(device).type != "cpu":
            raise InputError("a graph in parts is worked on by the CPU; add --device cpu.")
        return self
