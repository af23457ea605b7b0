"""MUTAG as the paper means it: TU Mutagenicity, 4,337 molecules, class 0 = mutagen.

Bond types (single, double, triple) are edge data, if their file is present. The ground truth is the bonds inside NO2
and NH2 groups, from the authors' `edge_gt` file or derived from the molecules (a test checks that both agree).
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

from dgl_lara.datasets import BOND, BONDS, Options
from dgl_lara.datasets.cache import checksum, locate
from dgl_lara.datasets.dataset import Dataset, split_by_fraction
from dgl_lara.datasets.validate import validate_dataset
from dgl_lara.errors import LaraError

ATOMS = ("C", "O", "Cl", "H", "N", "F", "Br", "S", "P", "I", "Na", "K", "Li", "Ca")
CLASSES = ("mutagen", "no mutagen")
OXYGEN, HYDROGEN, NITROGEN = ATOMS.index("O"), ATOMS.index("H"), ATOMS.index("N")
URL = "https://www.chrsmrrs.com/graphkerneldatasets/Mutagenicity.zip"
BONDS_CHECKSUM = "ecb5684947d92b59a6e9ac04e23c479dc216b3a2f73c48328fa684caf54ba48b"
CHECKSUM = "ca814069b1090e1cb12703be145716c8473d09f64e794b8227ec37e5eb0d88c0"


def build(name: str, options: Options) -> Dataset:
    return _read(locate(name, options.data_dir, URL, "Mutagenicity") / "Mutagenicity")


def _column(path: Path) -> np.ndarray:
    try:
        return pd.read_csv(path, header=None, dtype=np.int64).to_numpy()
    except (ValueError, OverflowError, OSError) as error:  # pandas' own errors are ValueErrors
        raise LaraError("dataset.not_numbers", path=path, cause=error) from error


def _read(folder: Path) -> Dataset:
    bonds, graph_of_node, labels, atoms = (
        _column(folder / f"Mutagenicity_{part}.txt") for part in ("A", "graph_indicator", "graph_labels", "node_labels")
    )
    if checksum(bonds, graph_of_node, labels, atoms) != CHECKSUM:
        raise LaraError("dataset.not_published", name="TU Mutagenicity", folder=folder)
    truth_file = folder / "Mutagenicity_edge_gt.txt"
    truth = _column(truth_file).flatten() if truth_file.exists() else None
    if truth is not None and len(truth) != len(bonds):
        raise LaraError("mutag.edge_truth", path=truth_file, expected=len(bonds), got=len(truth))
    types_file = folder / "Mutagenicity_edge_labels.txt"
    bond_types = _column(types_file).flatten() if types_file.exists() else None
    if bond_types is not None and checksum(bond_types) != BONDS_CHECKSUM:
        raise LaraError("mutag.bond_types", path=types_file)
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
        bond_types=bond_types,
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
    bond_types: np.ndarray | None = None,
) -> Dataset:
    """Build one batched graph of molecules with one-hot atoms.

    Args:
        name: Of the data set.
        bonds: (num_edges, 2) in both directions.
        atoms: (num_nodes,) indices into ATOMS.
        sizes: Number of atoms of each molecule.
        labels: Of the molecules.
        truth: (num_edges,) the true bonds, None to derive those inside NO2 and NH2 groups.
        splits: Train, val and test molecules.
        source: Origin, for people.
        key: Parameters of the data set.
        bond_types: (num_edges,) indices into BONDS, stored as edge data.
    """
    src, dst = torch.as_tensor(bonds.T.copy())
    counts = torch.as_tensor(sizes)
    graph = dgl.graph((src, dst), num_nodes=len(atoms))
    graph_of_node = torch.repeat_interleave(torch.arange(len(counts)), counts)
    graph.set_batch_num_nodes(counts)
    graph.set_batch_num_edges(torch.bincount(graph_of_node[src], minlength=len(counts)))
    if bond_types is not None:
        graph.edata[BOND] = torch.nn.functional.one_hot(torch.as_tensor(bond_types), len(BONDS)).float()
    edge_truth = group_bonds(bonds, atoms) if truth is None else truth.astype(bool)
    motif = np.full(len(atoms), -1)
    groups = nx.Graph(bonds[edge_truth].tolist())
    for number, members in enumerate(sorted(nx.connected_components(groups), key=min)):
        motif[list(members)] = number
    train, val, test = splits
    return validate_dataset(
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
            category_names=ATOMS,
            checked_edge_data=True,
        )
    )


def group_bonds(bonds: np.ndarray, atoms: np.ndarray) -> np.ndarray:
    """Return (num_edges,) bool, whether a bond is inside an NO2 or NH2 group.

    Such a group is a nitrogen with three neighbours: two oxygens or two hydrogens, and the rest of the molecule. A
    hydroxylamine, whose third neighbour is an oxygen, does not count.
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
