"""MUTAG as the paper means it: TU Mutagenicity, 4,337 molecules, class 0 = mutagen.

The kind of each bond (single, double, triple) is edge data, where the file that says it is present.
Ground truth: the bonds inside NO2 and NH2 groups, from the authors' `edge_gt` file where it is present, otherwise
derived from the molecules by the same rule (a test checks that both agree on every bond).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import dgl
import networkx as nx
import numpy as np
import pandas as pd
import torch
from torch import Tensor

from dgl_lara.datasets import BOND, BONDS, DATASETS, Options
from dgl_lara.datasets.cache import cache_dir, checksum, fetch, find_files, how_to_get
from dgl_lara.datasets.dataset import Dataset, checked, split_by_fraction
from dgl_lara.errors import LaraError

ATOMS = ("C", "O", "Cl", "H", "N", "F", "Br", "S", "P", "I", "Na", "K", "Li", "Ca")
CLASSES = ("mutagen", "no mutagen")
OXYGEN, HYDROGEN, NITROGEN = ATOMS.index("O"), ATOMS.index("H"), ATOMS.index("N")
URL = "https://www.chrsmrrs.com/graphkerneldatasets/Mutagenicity.zip"
BONDS_CHECKSUM = "ecb5684947d92b59a6e9ac04e23c479dc216b3a2f73c48328fa684caf54ba48b"
CHECKSUM = "ca814069b1090e1cb12703be145716c8473d09f64e794b8227ec37e5eb0d88c0"


def build(name: str, options: Options) -> Dataset:
    files = DATASETS[name].files
    folder = find_files(files, options.data_dir)
    if folder is None:
        folder = cache_dir()
        fetch(URL, folder / "Mutagenicity", files, how_to_get(name, files, DATASETS[name].stand_in))
    return _read(folder / "Mutagenicity")


def _column(path: Path) -> np.ndarray:
    try:
        return pd.read_csv(path, header=None, dtype=np.int64).to_numpy()
    except (ValueError, OverflowError, OSError) as error:  # pandas' own errors are ValueErrors
        raise LaraError(f"{path} is not a table of whole numbers ({error}).") from error


def _read(folder: Path) -> Dataset:
    bonds, graph_of_node, labels, atoms = (
        _column(folder / f"Mutagenicity_{part}.txt") for part in ("A", "graph_indicator", "graph_labels", "node_labels")
    )
    if checksum(bonds, graph_of_node, labels, atoms) != CHECKSUM:
        raise LaraError(
            f"the files in {folder} are not TU Mutagenicity as published (truncated or changed: {len(bonds)} of "
            f"266894 edges, {len(atoms)} of 131488 nodes); remove the folder and run again to download it."
        )
    truth_file = folder / "Mutagenicity_edge_gt.txt"
    truth = _column(truth_file).flatten() if truth_file.exists() else None
    if truth is not None and len(truth) != len(bonds):
        raise LaraError(f"{truth_file} must have one row an edge, {len(bonds)} (got {len(truth)}).")
    kinds_file = folder / "Mutagenicity_edge_labels.txt"
    kinds = _column(kinds_file).flatten() if kinds_file.exists() else None
    if kinds is not None and checksum(kinds) != BONDS_CHECKSUM:
        raise LaraError(
            f"{kinds_file} does not hold the bonds of TU Mutagenicity as published ({len(kinds)} of {len(bonds)} "
            "rows); put the original there, or remove it to go on without kinds of bonds."
        )
    order = torch.as_tensor(np.random.RandomState(42).permutation(len(labels)))  # noqa: NPY002 (the authors' split)
    molecules = assemble_molecules(
        "mutag",
        bonds=bonds - 1,
        atoms=atoms.flatten(),
        sizes=np.bincount(graph_of_node.flatten() - 1),
        labels=labels.flatten(),
        truth=truth,
        splits=split_by_fraction(order),
        source="TU Mutagenicity" + (", truth from edge_gt" if truth is not None else ", truth derived"),
        key={"dataset": "mutag"},
        kinds=kinds,
    )
    return replace(molecules, display_names={"classes": CLASSES})


def assemble_molecules(
    name: str,
    bonds: np.ndarray,
    atoms: np.ndarray,
    sizes: np.ndarray,
    labels: np.ndarray,
    truth: np.ndarray | None,
    splits: tuple[Tensor, Tensor, Tensor],
    source: str,
    key: dict,
    kinds: np.ndarray | None = None,
) -> Dataset:
    """Molecules as one batched graph with one-hot atoms; `truth` marks bonds, None: derive the NO2/NH2 groups.

    `kinds` of bonds, where they are known, are edge data, which models may read or leave.
    """
    src, dst = torch.as_tensor(bonds.T.copy())
    counts = torch.as_tensor(sizes)
    graph = dgl.graph((src, dst), num_nodes=len(atoms))
    graph_of_node = torch.repeat_interleave(torch.arange(len(counts)), counts)
    graph.set_batch_num_nodes(counts)
    graph.set_batch_num_edges(torch.bincount(graph_of_node[src], minlength=len(counts)))
    if kinds is not None:
        graph.edata[BOND] = torch.nn.functional.one_hot(torch.as_tensor(kinds), len(BONDS)).float()
    edge_truth = group_bonds(bonds, atoms) if truth is None else truth.astype(bool)
    motif = np.full(len(atoms), -1)
    groups = nx.Graph(bonds[edge_truth].tolist())
    for number, members in enumerate(sorted(nx.connected_components(groups), key=min)):
        motif[list(members)] = number
    train, val, test = splits
    return checked(
        Dataset(
            name=name,
            task="graph",
            graph=graph,
            features=torch.nn.functional.one_hot(torch.as_tensor(atoms), len(ATOMS)).float(),
            labels=torch.as_tensor(labels),
            train=train,
            val=val,
            test=test,
            num_classes=2,
            source=source,
            key=key,
            motif=torch.as_tensor(motif),
            edge_truth=torch.as_tensor(edge_truth),
            node_names=ATOMS,
            checked_edge_data=True,
        )
    )


def group_bonds(bonds: np.ndarray, atoms: np.ndarray) -> np.ndarray:
    """(num_edges,) bool: the bond is one of the two inside an NO2 or NH2 group.

    Such a group is a nitrogen with three neighbours: two oxygens, or two hydrogens, and the rest of the molecule
    (hydroxylamines, where the third is an oxygen, do not count).
    """
    src, dst = bonds.T
    count = len(atoms)
    neighbours = np.bincount(src, minlength=count)
    oxygens = np.bincount(src, weights=atoms[dst] == OXYGEN, minlength=count)
    hydrogens = np.bincount(src, weights=atoms[dst] == HYDROGEN, minlength=count)
    centre = (atoms == NITROGEN) & (neighbours == 3)
    nitro, amino = centre & (oxygens == 2), centre & (hydrogens == 2) & (oxygens == 0)

    def inside(nitrogen: np.ndarray, other: np.ndarray) -> np.ndarray:
        return (nitro[nitrogen] & (atoms[other] == OXYGEN)) | (amino[nitrogen] & (atoms[other] == HYDROGEN))

    return inside(src, dst) | inside(dst, src)
