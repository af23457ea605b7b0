"""MUTAG (TU Mutagenicity) and its generated stand-in `molecules`."""

import shutil

import networkx as nx
import numpy as np
import pytest
import torch
from codes import raises

from dgl_lara.datasets import Options, load
from dgl_lara.datasets.mutagenicity import ATOMS, group_bonds
from dgl_lara.errors import LaraError


def group_edges(molecule, kinds):
    """By a walk over the molecule: the bonds N-O or N-H of each NO2 and NH2, with the atom each group hangs on."""
    found = []
    for nitrogen in molecule:
        around = [kinds[other] for other in molecule[nitrogen]]
        for leaf in ("O", "H"):
            if kinds[nitrogen] == "N" and len(around) == 3 and around.count(leaf) == 2:
                leaves = [other for other in molecule[nitrogen] if kinds[other] == leaf]
                (anchor,) = set(molecule[nitrogen]) - set(leaves)
                if kinds[anchor] != "O":
                    found.append((anchor, {frozenset((nitrogen, other)) for other in leaves}))
    return found


def as_networkx(dataset):
    """Every molecule of the set, with its atoms' names."""
    src, dst = (end.tolist() for end in dataset.graph.edges())
    everything = nx.Graph(list(zip(src, dst, strict=True)))
    kinds = [ATOMS[place] for place in dataset.features.argmax(dim=1).tolist()]
    first = 0
    for size in dataset.graph.batch_num_nodes().tolist():
        yield everything.subgraph(range(first, first + size)), kinds
        first += size


def test_class_of_a_stand_in_molecule_is_the_group_on_its_ring():
    dataset = load("molecules")
    off_ring = 0
    for label, (molecule, kinds) in zip(dataset.labels.tolist(), as_networkx(dataset), strict=True):
        (ring,) = nx.cycle_basis(molecule)
        assert len(ring) == 6
        assert all(kinds[atom] == "C" for atom in ring)
        anchors = [anchor for anchor, _ in group_edges(molecule, kinds)]
        assert (label == 0) == any(anchor in ring for anchor in anchors)
        off_ring += bool(anchors) and label == 1
    shares = dataset.labels.bincount() / 1000
    assert shares.min() > 0.4
    assert off_ring > 100  # otherwise counting nitrogens would decide the class


def test_truth_of_the_stand_in_is_the_deciding_group():
    dataset = load("molecules")
    src, dst = dataset.graph.edges()
    marked = {frozenset(pair) for pair in torch.stack([src, dst], dim=1)[dataset.edge_truth].tolist()}
    expected = set()
    for label, (molecule, kinds) in zip(dataset.labels.tolist(), as_networkx(dataset), strict=True):
        groups = group_edges(molecule, kinds)
        if label == 0:
            assert len(groups) == 1
            expected |= groups[0][1]
    assert marked == expected
    assert int(dataset.edge_truth.sum()) == 2 * len(expected)  # both directions
    assert int((dataset.motif >= 0).sum()) == 3 * int((dataset.labels == 0).sum())


def test_another_seed_gives_other_molecules():
    first, other = load("molecules", Options(seed=0)), load("molecules", Options(seed=1))
    assert not torch.equal(first.labels, other.labels)


def test_hydroxylamine_is_no_group():
    atoms = np.array([ATOMS.index(atom) for atom in ("O", "N", "H", "H", "C")])
    one_way = np.array([(1, 0), (1, 2), (1, 3), (0, 4)])
    assert not group_bonds(np.concatenate([one_way, one_way[:, ::-1]]), atoms).any()


def test_mutag_figures(real_data):
    dataset = load("mutag")
    assert (dataset.graph.batch_size, dataset.graph.num_nodes(), dataset.graph.num_edges()) == (4337, 131_488, 266_894)
    assert dataset.features.shape == (131_488, 14)
    assert (dataset.features.sum(dim=1) == 1).all()
    assert (dataset.features.sum(dim=0) > 0).all()
    assert dataset.labels.bincount().tolist() == [2401, 1936]
    assert int(dataset.edge_truth.sum()) == 7352
    src, dst = dataset.graph.edges()
    assert torch.equal(dataset.graph_of_node[src], dataset.graph_of_node[dst])
    together = torch.cat([dataset.train, dataset.val, dataset.test]).sort().values
    assert torch.equal(together, torch.arange(4337))


@pytest.fixture
def mutag_copy(real_data, tmp_path):
    shutil.copytree(real_data / "Mutagenicity", tmp_path / "Mutagenicity", copy_function=shutil.copyfile)
    (tmp_path / "Mutagenicity").chmod(0o755)
    return tmp_path


def test_derived_groups_equal_the_authors_file(real_data, mutag_copy):
    marked = load("mutag")
    (mutag_copy / "Mutagenicity" / "Mutagenicity_edge_gt.txt").unlink()
    derived = load("mutag", Options(data_dir=mutag_copy))
    assert marked.source.endswith("edge_gt") and derived.source.endswith("derived")
    assert torch.equal(marked.edge_truth, derived.edge_truth)


def test_truncated_or_changed_files_raise(mutag_copy):
    bonds = mutag_copy / "Mutagenicity" / "Mutagenicity_A.txt"
    whole = bonds.read_text()
    lines = whole.splitlines(keepends=True)

    for text, code in (
        ("".join(lines[:1000]), "dataset.not_published"),
        ("".join([lines[1], lines[0], *lines[2:]]), "dataset.not_published"),
        ("".join(lines[:10]) + "twelve, 3\n", "dataset.not_numbers"),
        ("", "dataset.not_numbers"),
    ):
        bonds.write_text(text)
        with raises(code, LaraError) as caught:
            load("mutag", Options(data_dir=mutag_copy))
        assert "\n" not in str(caught.value)


def test_truth_file_of_another_length_raises(mutag_copy):
    (mutag_copy / "Mutagenicity" / "Mutagenicity_edge_gt.txt").write_text("0\n1\n")
    with raises("mutag.edge_truth", LaraError, expected=266894, got=2):
        load("mutag", Options(data_dir=mutag_copy))


def test_mutag_cannot_be_generated():
    with raises("dataset.not_generated", LaraError, hint=" Use molecules."):
        load("mutag", Options(source="generated"))


# --- bonds ------------------------------------------------------------------------------------------------------


def test_bonds_are_edge_data_and_change_nothing_else(real_data, mutag_copy):
    dataset = load("mutag")
    bonds = dataset.graph.edata["bond"]
    kinds = np.loadtxt(real_data / "Mutagenicity" / "Mutagenicity_edge_labels.txt", dtype=int)
    assert torch.equal(bonds.argmax(dim=1), torch.as_tensor(kinds)) and (bonds.sum(dim=1) == 1).all()
    assert bonds.sum(dim=0).tolist() == [221_000, 45_674, 220]
    src, dst = dataset.graph.edges()
    assert torch.equal(bonds[dataset.graph.edge_ids(dst, src)], bonds)  # alike in both directions
    (mutag_copy / "Mutagenicity" / "Mutagenicity_edge_labels.txt").unlink()
    without = load("mutag", Options(data_dir=mutag_copy))
    assert not without.graph.edata
    assert (without.key, without.fingerprint) == (dataset.key, dataset.fingerprint)
    assert dataset.fingerprint == "b3bc60c6ac469fe9"


def test_other_bonds_raise(mutag_copy):
    (mutag_copy / "Mutagenicity" / "Mutagenicity_edge_labels.txt").write_text("0\n1\n")
    with raises("mutag.bond_types", LaraError):
        load("mutag", Options(data_dir=mutag_copy))
