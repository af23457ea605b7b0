"""`molecules`: a generated stand-in for MUTAG. Class 0 if and only if an NO2 or NH2 group is on a carbon ring.

Every molecule has a ring of six carbons, a carbon chain and small substituents. In class 1, half of the molecules have
the group on the chain and half have none, so the number of nitrogens does not decide the class.
"""

from __future__ import annotations

import numpy as np

from dgl_lara.datasets import Options
from dgl_lara.datasets.cache import Arrays, cached
from dgl_lara.datasets.dataset import Dataset, random_split
from dgl_lara.datasets.mutagenicity import ATOMS, HYDROGEN, NITROGEN, OXYGEN, assemble_molecules, group_bonds

CARBON = ATOMS.index("C")
SUBSTITUENTS = [ATOMS.index(atom) for atom in ("O", "Cl", "F", "Br", "S", "N")]
NUM_GRAPHS = 1000


def build(name: str, options: Options) -> Dataset:
    parameters = {"dataset": name, "seed": options.seed, "graphs": NUM_GRAPHS, "version": 1}
    arrays = cached(name, parameters, lambda: _generate(np.random.default_rng(options.seed)))
    return assemble_molecules(
        name,
        bonds=arrays["bonds"],
        atoms=arrays["atoms"],
        sizes=arrays["sizes"],
        labels=arrays["labels"],
        truth=arrays["truth"],
        splits=random_split(NUM_GRAPHS, options.seed),
        source=f"generated stand-in for mutag, seed {options.seed}",
        key=parameters,
    )


def _generate(rng: np.random.Generator) -> Arrays:
    bonds, atoms, sizes, truth = [], [], [], []
    labels = rng.integers(2, size=NUM_GRAPHS)
    first = 0
    for label in labels:
        one_way, molecule_atoms = _molecule(rng, on_ring=label == 0)
        both = np.concatenate([one_way, one_way[:, ::-1]])
        truth.append(group_bonds(both, molecule_atoms) & (label == 0))  # groups off the ring do not count
        bonds.append(both + first)
        atoms.append(molecule_atoms)
        sizes.append(len(molecule_atoms))
        first += len(molecule_atoms)
    return {
        "bonds": np.concatenate(bonds),
        "atoms": np.concatenate(atoms),
        "sizes": np.array(sizes),
        "labels": labels,
        "truth": np.concatenate(truth),
    }


def _molecule(rng: np.random.Generator, on_ring: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return bonds (one direction each) and atoms of one molecule."""
    atoms = [CARBON] * 6
    bonds = [(i, (i + 1) % 6) for i in range(6)]
    ring_atoms = list(rng.permutation(6))

    def add(atom: int, to: int) -> int:
        atoms.append(atom)
        bonds.append((to, len(atoms) - 1))
        return len(atoms) - 1

    def add_group(to: int) -> None:
        nitrogen = add(NITROGEN, to)
        leaf = OXYGEN if rng.random() < 0.5 else HYDROGEN
        add(leaf, nitrogen)
        add(leaf, nitrogen)

    chain = [int(ring_atoms.pop())]
    for _ in range(int(rng.integers(3, 9))):
        chain.append(add(CARBON, chain[-1]))
    if on_ring:
        add_group(int(ring_atoms.pop()))
    elif rng.random() < 0.5:
        add_group(chain[-1])
    for _ in range(int(rng.integers(0, 3))):
        substituent = int(rng.choice(SUBSTITUENTS))
        add(substituent, int(ring_atoms.pop()) if rng.random() < 0.5 else int(rng.choice(chain[1:-1])))
    for carbon in ring_atoms:
        add(HYDROGEN, int(carbon))
    for carbon in chain[1:]:
        add(HYDROGEN, carbon)
    return np.array(bonds), np.array(atoms)
