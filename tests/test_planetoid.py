"""Cora, Citeseer, PubMed: as an independent reader sees them, and read from pickles without trusting them."""

import os
import pickle
import shutil

import dgl
import pytest
import torch
from codes import raises

from dgl_lara.datasets import DATASETS, Options, load
from dgl_lara.datasets.planetoid import _unpickle
from dgl_lara.errors import LaraError


@pytest.mark.parametrize("name", ["cora", "citeseer", "pubmed"])
def test_equals_what_pyg_reads(real_data, tmp_path, name):
    pyg = pytest.importorskip("torch_geometric.datasets", reason="needs PyTorch Geometric")
    if not (real_data / "planetoid").is_dir():
        pytest.skip("needs planetoid/raw in the data folder")
    raw = tmp_path / name.capitalize() / "raw"
    raw.mkdir(parents=True)
    for file in DATASETS[name].files:
        shutil.copy(real_data / file, raw)
    theirs, ours = pyg.Planetoid(str(tmp_path), name.capitalize())[0], load(name)
    entry = DATASETS[name]
    assert (ours.graph.num_nodes(), ours.graph.num_edges()) == (entry.nodes, entry.edges)
    assert (ours.num_classes, ours.features.shape[1]) == (entry.labels, entry.features)
    simple = dgl.remove_self_loop(ours.graph)  # PyG drops the papers that cite themselves, DGL keeps them, so do we
    torch.testing.assert_close(torch.stack(simple.edges()).unique(dim=1), theirs.edge_index.unique(dim=1))
    total = theirs.x.sum(1, keepdim=True).clamp(min=1e-12)
    torch.testing.assert_close(ours.features, torch.where(total > 1e-9, theirs.x / total, theirs.x))
    torch.testing.assert_close(ours.labels, theirs.y)
    for part in ("train", "val", "test"):
        torch.testing.assert_close(ours.split(part), theirs[f"{part}_mask"].nonzero().flatten())


def test_classes_go_by_the_names_that_their_sizes_tell(real_data):
    """In the original Cora 818 papers are on neural networks, 180 on rule learning; Citeseer has 701 on databases."""
    if not (real_data / "planetoid").is_dir():
        pytest.skip("needs planetoid/raw in the data folder")
    for name, sizes in (
        ("cora", {"neural networks": 818, "genetic algorithms": 418, "theory": 351, "rule learning": 180}),
        (
            "citeseer",
            {"databases": 701, "information retrieval": 668, "agents": 596, "human-computer interaction": 508},
        ),
        ("pubmed", {"experimental diabetes": 4103, "type 2 diabetes": 7875}),
    ):
        dataset = load(name)
        called = dict(zip(dataset.names["classes"], dataset.labels.bincount().tolist(), strict=True))
        assert len(called) == dataset.num_classes and sizes.items() <= called.items()


def test_pickles_of_other_objects_raise(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "done"),)

    (tmp_path / "ind.cora.x").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(pickle.UnpicklingError, match="mkdir"):
        _unpickle(tmp_path / "ind.cora.x")
    assert not (tmp_path / "done").exists()


@pytest.mark.parametrize("part", ["allx", "tx"])
def test_changed_features_raise(real_data, fresh_cache, part):
    """Move one word of one paper to another column."""
    if not (real_data / "planetoid").is_dir():
        pytest.skip("needs planetoid/raw in the data folder")
    folder = fresh_cache / "planetoid" / "raw"
    folder.mkdir(parents=True)
    for file in DATASETS["cora"].files:
        shutil.copy(real_data / file, folder)
    assert load("cora", Options(data_dir=fresh_cache)).features.shape == (2708, 1433)
    path = folder / f"ind.cora.{part}"
    words = _unpickle(path)
    stored, first = words.indices.tobytes(), words.indptr[5]
    words.indices[first] = next(word for word in range(1433) if word not in words[5].indices)
    assert path.read_bytes().count(stored) == 1
    path.write_bytes(path.read_bytes().replace(stored, words.indices.tobytes()))
    with raises("dataset.not_published", LaraError, name="cora"):
        load("cora", Options(data_dir=fresh_cache))


def test_changed_or_truncated_files(real_data, fresh_cache):
    if not (real_data / "planetoid").is_dir():
        pytest.skip("needs planetoid/raw in the data folder")
    folder = fresh_cache / "planetoid" / "raw"
    folder.mkdir(parents=True)
    for file in DATASETS["cora"].files:
        shutil.copy(real_data / file, folder)
    swapped = folder / "ind.cora.test.index"
    lines = swapped.read_text().split()
    swapped.write_text("\n".join([lines[3], *lines[1:3], lines[0], *lines[4:]]))
    with raises("dataset.not_published", LaraError, name="cora"):
        load("cora", Options(data_dir=fresh_cache))
    graph = folder / "ind.cora.graph"
    graph.write_bytes(graph.read_bytes()[:1000])
    with raises("dataset.unreadable", LaraError, name="cora"):
        load("cora", Options(data_dir=fresh_cache))
