"""DBLP and MovieLens, and the validation of heterogeneous data sets and pairs."""

import html
import shutil
from dataclasses import replace

import dgl
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from codes import raises
from test_hetero_gnns import films, papers

from dgl_lara.datasets import DATASETS, Options, load
from dgl_lara.datasets.svd_features import svd_features
from dgl_lara.datasets.validate import validate_dataset
from dgl_lara.errors import InputError, LaraError

PLACES = {"dblp": "dblp_four_area", "movielens": "ml-100k"}


@pytest.mark.parametrize("name", PLACES)
def test_registered_figures(name, real_data):
    dataset, entry = load(name), DATASETS[name]
    assert (dataset.graph.num_nodes(), dataset.graph.num_edges()) == (entry.nodes, entry.edges)
    assert (dataset.task, dataset.num_classes) == (entry.task, entry.labels)
    assert load(name).fingerprint == dataset.fingerprint
    other = load(name, Options(seed=1))
    assert other.key != dataset.key and not torch.equal(other.train, dataset.train)


def test_dblp_equals_its_files(real_data):
    dataset, folder = load("dblp"), real_data / "dblp_four_area"

    def lines(name):
        return [line.split("\t") for line in (folder / name).read_text(encoding="gbk").splitlines()]

    areas = {number: int(area) for number, area, _ in lines("author_label.txt")}
    names = dict(lines("author.txt"))
    titles = dict(lines("paper.txt"))
    own = dataset.display_names["nodes"]
    assert (len(own["author"]), len(own["paper"]), len(own["term"]), len(own["venue"])) == (4057, 14328, 8898, 20)
    assert dict(zip(own["author"], dataset.labels.tolist(), strict=True)) == {
        names[number].strip(): area for number, area in areas.items()
    }
    written = sorted(
        (names[author].strip(), titles[paper]) for paper, author in lines("paper_author.txt") if author in areas
    )
    src, dst = dataset.graph.edges(etype="writes")
    found = sorted((own["author"][u], own["paper"][v]) for u, v in zip(src.tolist(), dst.tolist(), strict=True))
    unescaped = [(author, html.unescape(title).strip()) for author, title in written]
    assert len(found) == 19_645 and found == sorted(unescaped)
    han = own["author"].index("Jiawei Han")
    assert dataset.display_names["classes"][dataset.labels[han]] == "data mining"
    assert dataset.features["author"][han].tolist() == pytest.approx([1, float(np.log(int((src == han).sum())))])
    for forth, back in (("written by", "writes"), ("contains", "occurs in"), ("published at", "publishes")):
        for end, other in zip(dataset.graph.edges(etype=forth), reversed(dataset.graph.edges(etype=back)), strict=True):
            assert torch.equal(end, other)
    assert torch.equal(dataset.features["venue"], torch.eye(20))


def test_movielens_equals_its_files(real_data):
    dataset, folder = load("movielens"), real_data / "ml-100k"
    base, held = (np.loadtxt(folder / name, dtype=int) for name in ("ua.base", "ua.test"))
    src, dst = dataset.graph.edges(etype="rates")
    found = np.column_stack([src + 1, dst + 1, dataset.graph.edges["rates"].data["rating"]]).astype(int)
    assert np.array_equal(found, base[:, :3])
    assert torch.equal(dataset.graph.edges["rated by"].data["rating"], dataset.graph.edges["rates"].data["rating"])
    assert np.array_equal(dataset.pairs.numpy() + 1, held[held[:, 2] >= 4][:, :2])
    users = [set(dataset.pairs[part, 0].tolist()) for part in (dataset.train, dataset.val, dataset.test)]
    assert not (users[0] & users[1] or users[0] & users[2] or users[1] & users[2])
    names = dataset.display_names["nodes"]
    assert (names["user"][6], names["film"][0], names["film"][542]) == (
        "57, M, administrator",
        "Toy Story (1995)",
        "Misérables, Les (1995)",
    )
    assert dataset.features["film"][0, :19].nonzero().flatten().tolist() == [3, 4, 5]  # animation, children's, comedy
    assert dataset.features["user"].shape == (943, 1 + 2 + 21)


@pytest.mark.parametrize("name", PLACES)
def test_changed_files_raise(name, real_data, tmp_path, monkeypatch):
    folder = tmp_path / PLACES[name]
    shutil.copytree(real_data / PLACES[name], folder, copy_function=shutil.copyfile)
    folder.chmod(0o755)
    monkeypatch.delenv("DGL_LARA_DATA")
    changed = folder / ("paper_author.txt" if name == "dblp" else "ua.base")
    whole = changed.read_text()

    for text in ("\n".join(whole.splitlines()[:1000]), whole.replace("\t", " ", 1), whole.replace("9", "8", 1), ""):
        changed.write_text(text)
        with raises("dataset.not_published", LaraError) as caught:
            load(name, Options(data_dir=tmp_path))
        assert "\n" not in str(caught.value)
    changed.write_text(whole.replace("\n", "\r\n"), newline="")  # other line ends do not matter
    assert load(name, Options(data_dir=tmp_path)).num_targets == (4057 if name == "dblp" else 5469)
    changed.unlink()
    with raises("dataset.not_found", LaraError):
        load(name, Options(data_dir=tmp_path))


def test_svd_features():
    rng = np.random.default_rng(0)
    table = sp.csr_matrix(rng.random((50, 3)) @ rng.random((3, 20)))
    found = svd_features(table, 3).double().numpy()
    explained = table.toarray() @ np.linalg.pinv(found.T) @ found.T
    np.testing.assert_allclose(explained, table.toarray(), atol=1e-3)
    np.testing.assert_allclose(found.std(axis=0), 1, atol=1e-4)
    assert (found[np.abs(found).argmax(axis=0), np.arange(3)] > 0).all()
    mixed = rng.permutation(50)  # the order of the rows changes nothing
    np.testing.assert_array_equal(found, svd_features(table[mixed], 3).double().numpy())


# --- parts that do not fit --------------------------------------------------------------------------------------


def refused(dataset, changes, code, **fields):
    with raises(code, InputError, **fields) as caught:
        validate_dataset(replace(dataset, **changes))
    assert "\n" not in str(caught.value)


def test_features_by_type():
    dataset = papers()
    x = dataset.features
    without = {name: x[name] for name in ("author", "paper")}
    refused(dataset, {"features": without}, "data.feature_types", got="author, paper")
    refused(dataset, {"features": {**x, "song": x["venue"]}}, "data.feature_types")
    refused(dataset, {"features": {**x, "paper": x["author"]}}, "data.features_shape", of=" of type 'paper'", rows=140)
    refused(dataset, {"features": x["author"]}, "data.features_type", got="Tensor")
    refused(dataset, {"target_type": None}, "data.target_type", types="author, paper, venue")
    refused(dataset, {"target_type": "song"}, "data.target_type", got="song")
    refused(dataset, {"target_type": "paper"}, "data.labels_count", expected=140, got=(90,))
    plain = load("ba-shapes")
    refused(plain, {"features": {"_N": plain.features}}, "data.features_type", expected="a tensor", got="dict")


def test_invalid_pairs():
    dataset = films()
    outside = dataset.pairs.clone()
    outside[3, 1] = 40
    refused(dataset, {"pairs": outside}, "data.pairs_range", type="film", most=39, column=1, pair=3)
    refused(dataset, {"pairs": -dataset.pairs - 1}, "data.pairs_range", type="user", most=59, column=0)
    refused(dataset, {"pairs": dataset.pairs[:, :1]}, "data.pairs_shape")
    for relation in (None, ("user", "hears", "song")):
        refused(dataset, {"relation": relation}, "data.relation", got=relation)
    refused(dataset, {"pairs": dataset.pairs[:-1]}, "data.labels_count")


def test_pairs_of_a_homogeneous_graph():
    plain = load("ba-shapes")
    count = 30
    pairs, part = torch.arange(2 * count).view(count, 2), torch.arange(count).split(10)
    changes = {"task": "link", "labels": torch.zeros(count).long(), "num_classes": 1, "pairs": pairs}
    links = validate_dataset(replace(plain, **changes, train=part[0], val=part[1], test=part[2]))
    assert links.num_targets == count and links.fingerprint != replace(links, pairs=pairs.flip(1)).fingerprint
    outside = {"pairs": pairs + pairs.new_tensor([640, 641])}
    refused(links, outside, "data.pairs_range", type="node", most=699, column=1, pair=29, got=[698, 700])


@pytest.mark.parametrize("make", [papers, films])
def test_fingerprint_and_device(make):
    dataset = make()
    moved = dataset.to("cpu")
    assert moved.fingerprint == dataset.fingerprint == make().fingerprint != make(seed=1).fingerprint
    assert moved.device == torch.device("cpu") and set(moved.features) == set(dataset.features)
    kind = dataset.graph.ntypes[-1]
    features = {**dataset.features, kind: dataset.features[kind] + 1}
    assert replace(dataset, features=features).fingerprint != dataset.fingerprint
    relation = dataset.graph.canonical_etypes[0]
    fewer = dgl.remove_edges(dataset.graph, torch.tensor([0]), etype=relation)
    assert replace(dataset, graph=fewer).fingerprint != dataset.fingerprint
