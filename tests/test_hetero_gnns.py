"""R-GCN, HGT and the recommender: dense references, removal, order, receptive field, training and checkpoints."""

from dataclasses import replace

import dgl
import numpy as np
import pytest
import torch
from codes import raises
from test_gnns import store

from dgl_lara import LARA
from dgl_lara.datasets import load
from dgl_lara.datasets.dataset import Dataset
from dgl_lara.datasets.validate import validate_dataset
from dgl_lara.errors import InputError
from dgl_lara.explanation.recommendation import ITEM_CLAUSES, USER_CLAUSES, recommendation_clauses
from dgl_lara.gnns import HETERO, OTHER_RECIPES, RECIPES, RECOMMENDERS, Recipe, recipe_for
from dgl_lara.gnns.checkpoint import load_gnn, save_gnn
from dgl_lara.gnns.ranking import in_top, pair_scores, popularity, ranking_quality
from dgl_lara.gnns.registry import new_model
from dgl_lara.gnns.training import accuracy, get_gnn, train_gnn
from dgl_lara.training.config import TrainingConfig

SIZES = {"author": 9, "paper": 14, "venue": 3}
WRITES, PUBLISHES = ("author", "writes", "paper"), ("venue", "publishes", "paper")
BACK = {WRITES: ("paper", "written by", "author"), PUBLISHES: ("paper", "published.at", "venue")}  # a dot is a name too


def papers(seed=0):
    """Authors whose class is that of their venues, which alone have informative features."""
    draw = torch.Generator().manual_seed(seed)
    sizes = {kind: 10 * size if kind != "venue" else size for kind, size in SIZES.items()}
    edges = {}
    for relation, back in BACK.items():
        count = 200 if relation == WRITES else sizes["paper"]
        src = torch.randint(sizes[relation[0]], (count,), generator=draw)
        dst = torch.arange(count) % sizes["paper"]
        edges[relation], edges[back] = (src, dst), (dst, src)
    graph = dgl.heterograph(edges, sizes)
    venue = torch.empty(sizes["paper"], dtype=torch.long)
    venue[edges[PUBLISHES][1]] = edges[PUBLISHES][0]
    counts = torch.zeros(sizes["author"], 3).index_put_(
        (edges[WRITES][0], venue[edges[WRITES][1]]), torch.ones(200), accumulate=True
    )
    order = torch.randperm(sizes["author"], generator=draw)
    return validate_dataset(
        Dataset(
            name="papers",
            task="node",
            graph=graph,
            features={
                "author": torch.ones(sizes["author"], 1),
                "paper": torch.rand(sizes["paper"], 2, generator=draw),
                "venue": torch.eye(3),
            },
            labels=counts.argmax(dim=1),
            train=order[:60],
            val=order[60:75],
            test=order[75:],
            num_classes=3,
            source="made in the test",
            key={"dataset": "papers", "seed": seed},
            target_type="author",
        )
    )


def films(seed=0):
    """Users like the films of their own half."""
    rng = np.random.default_rng(seed)
    users, items = 60, 40
    user, film = np.divmod(rng.choice(users * items, 700, replace=False), items)
    stars = torch.as_tensor(np.where(user % 2 == film % 2, 5, 1)).float()
    base, held = slice(0, 600), slice(600, 700)
    user, film = torch.as_tensor(user), torch.as_tensor(film)
    rates, rated_by = ("user", "rates", "film"), ("film", "rated by", "user")
    graph = dgl.heterograph(
        {rates: (user[base], film[base]), rated_by: (film[base], user[base])}, {"user": users, "film": items}
    )
    for relation in (rates, rated_by):
        graph.edges[relation].data["rating"] = stars[base]
    pairs = torch.stack([user[held], film[held]], dim=1)[stars[held] == 5]
    order = torch.arange(len(pairs))
    features = {"user": torch.ones(users, 2), "film": torch.as_tensor(rng.random((items, 3))).float()}
    features["film"][:, 0] = torch.arange(items) % 2
    return validate_dataset(
        Dataset(
            name="films",
            task="link",
            graph=graph,
            features=features,
            labels=torch.zeros(len(pairs), dtype=torch.long),
            train=order[:20],
            val=order[20:30],
            test=order[30:],
            num_classes=1,
            source="made in the test",
            key={"dataset": "films", "seed": seed},
            pairs=pairs,
            relation=rates,
        )
    )


def a_model(architecture, **changes):
    dataset = films() if architecture in RECOMMENDERS else papers()
    return dataset, new_model(dataset, Recipe(architecture, hidden=8, layers=2, **changes), seed=0).eval()


def outputs(model, dataset, graph=None, features=None):
    """Return (rows, classes), for the recommender the scores of all pairs."""
    graph, features = graph or dataset.graph, features or dataset.features
    with torch.no_grad():
        if dataset.pairs is None:
            return model(graph, features)
        u, v = (torch.arange(graph.num_nodes(kind)) for kind in ("user", "film"))
        every = torch.cartesian_prod(u, v).view(-1, 2)
        return model(graph, features, *every.T).view(len(u), len(v))


BOTH = [*HETERO, *RECOMMENDERS]


@pytest.mark.parametrize("architecture", BOTH)
def test_output_is_deterministic_and_the_graph_unchanged(architecture):
    dataset, model = a_model(architecture, dropout=0.5)
    first = outputs(model, dataset)
    assert first.std() > 1e-3
    assert torch.equal(first, outputs(model, dataset))
    assert not any(dataset.graph.nodes[kind].data for kind in dataset.graph.ntypes)
    held = {name for relation in dataset.graph.canonical_etypes for name in dataset.graph.edges[relation].data}
    assert held == ({"rating"} if dataset.pairs is not None else set())
    assert model.num_hops == 2


@pytest.mark.parametrize("architecture", BOTH)
def test_order_of_the_nodes_does_not_matter(architecture):
    dataset, model = a_model(architecture)
    graph, draw = dataset.graph, torch.Generator().manual_seed(1)
    new = {kind: torch.randperm(graph.num_nodes(kind), generator=draw) for kind in graph.ntypes}  # of each, its new id
    edges, data = {}, {}
    for start, name, end in graph.canonical_etypes:
        src, dst = graph.edges(etype=(start, name, end))
        mixed = torch.randperm(len(src), generator=draw)
        edges[start, name, end] = (new[start][src][mixed], new[end][dst][mixed])
        stored = graph.edges[start, name, end].data
        data[start, name, end] = {key: stored[key][mixed] for key in stored}
    other = dgl.heterograph(edges, {kind: graph.num_nodes(kind) for kind in graph.ntypes})
    for relation, stored in data.items():
        other.edges[relation].data.update(stored)
    features = {kind: torch.empty_like(rows).index_copy_(0, new[kind], rows) for kind, rows in dataset.features.items()}
    expected, found = outputs(model, dataset), outputs(model, dataset, other, features)
    found = found[new["author"]] if dataset.pairs is None else found[new["user"]][:, new["film"]]
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


def remaining(dataset, keep):
    """The graph induced by the kept nodes of each type, with its features and edge data."""
    graph = dgl.node_subgraph(dataset.graph, keep, store_ids=False)
    return graph, {kind: rows[keep[kind]] for kind, rows in dataset.features.items()}


@pytest.mark.parametrize("architecture", BOTH)
def test_types_without_nodes_and_relations_without_edges(architecture):
    dataset, model = a_model(architecture)
    target, other = ("user", "film") if dataset.pairs is not None else ("author", "paper")
    every = {kind: torch.arange(dataset.graph.num_nodes(kind)) for kind in dataset.graph.ntypes}
    none = torch.arange(0)
    gone = outputs(model, dataset, *remaining(dataset, {**every, other: none}))
    assert len(gone) == len(every[target]) and gone.isfinite().all()
    if dataset.pairs is None:
        torch.testing.assert_close(gone, gone[:1].expand_as(gone))  # equal without neighbours
    assert len(outputs(model, dataset, *remaining(dataset, {**every, target: none}))) == 0
    edgeless = dataset.graph
    for relation in dataset.graph.canonical_etypes:
        edgeless = dgl.remove_edges(edgeless, torch.arange(edgeless.num_edges(relation)), etype=relation)
    alone = outputs(model, dataset, edgeless, dataset.features)
    assert alone.isfinite().all() and not torch.allclose(alone, outputs(model, dataset))
    null = outputs(model, dataset, edgeless, {kind: 0 * rows for kind, rows in dataset.features.items()})
    torch.testing.assert_close(null, null[:1].expand_as(null))


def test_rgcn_equals_dense_numpy():
    dataset, model = a_model("rgcn")
    weights = {name: part.detach().double().numpy() for name, part in model.state_dict().items()}
    relu = lambda rows: np.maximum(rows, 0)  # noqa: E731
    types, relations = dataset.graph.ntypes, dataset.graph.canonical_etypes

    def linear(name, rows):
        return rows @ weights[f"{name}.weight"].T + weights.get(f"{name}.bias", 0)

    h = {kind: relu(linear(f"inputs.{i}", dataset.features[kind].double().numpy())) for i, kind in enumerate(types)}
    for layer in range(2):
        new = {kind: linear(f"layers.{layer}.own.{i}", h[kind]) for i, kind in enumerate(types)}
        for i, (start, name, end) in enumerate(relations):
            table = np.zeros((len(h[end]), len(h[start])))
            src, dst = dataset.graph.edges(etype=(start, name, end))
            np.add.at(table, (dst.numpy(), src.numpy()), 1)
            mean = table / np.maximum(table.sum(axis=1, keepdims=True), 1)
            new[end] = new[end] + mean @ linear(f"layers.{layer}.passed.{i}", h[start])
        h = {kind: relu(rows) for kind, rows in new.items()}
    expected = linear("head", h["author"])
    torch.testing.assert_close(outputs(model, dataset), torch.as_tensor(expected).float(), atol=1e-5, rtol=1e-4)


def test_recommender_equals_dense_numpy():
    dataset, model = a_model("lightgcn")
    with torch.no_grad():
        model.mix.uniform_(0.5, 1.5)
        model.stars.uniform_(-1, 1)
    weights = {name: part.detach().double().numpy() for name, part in model.state_dict().items()}
    user, film = (ends.numpy() for ends in dataset.graph.edges(etype="rates"))
    stars = dataset.graph.edges["rates"].data["rating"].long().numpy() - 1
    there = np.zeros((60, 40))
    there[user, film] = 1
    scale = 1 / np.sqrt(np.maximum(there.sum(1, keepdims=True), 1) * np.maximum(there.sum(0, keepdims=True), 1))
    u, v = (
        dataset.features[kind].double().numpy() @ weights[f"inputs.{i}.weight"].T
        for i, kind in enumerate(("user", "film"))
    )
    mixed_u, mixed_v = weights["mix"][0, 0] * u, weights["mix"][1, 0] * v
    for layer in range(2):
        into = []
        for end in range(2):
            table = np.zeros((60, 40))
            table[user, film] = weights["stars"][layer, end][stars]
            into.append(table * scale)
        u, v = into[0] @ v, into[1].T @ u
        mixed_u, mixed_v = mixed_u + weights["mix"][0, layer + 1] * u, mixed_v + weights["mix"][1, layer + 1] * v
    expected = torch.as_tensor(mixed_u @ mixed_v.T).float()
    assert expected.std() > 1e-6
    torch.testing.assert_close(outputs(model, dataset), expected, atol=1e-6 * expected.abs().max().item(), rtol=1e-3)


def test_recommender_reads_ratings():
    dataset, model = a_model("lightgcn")
    before = outputs(model, dataset)
    dataset.graph.edges["rates"].data["rating"] = 6 - dataset.graph.edges["rates"].data["rating"]
    assert not torch.allclose(before, outputs(model, dataset))
    del dataset.graph.edges["rates"].data["rating"]
    with raises("recommender.no_rating", InputError, relation=dataset.relation):
        outputs(model, dataset)


@pytest.mark.parametrize("change", ["none", "none back", "six stars", "half a star", "others back", "another order"])
def test_invalid_ratings_raise(change):
    dataset, _ = a_model("lightgcn")
    graph = dataset.graph
    here, back = (graph.edges[relation].data for relation in (dataset.relation, "rated by"))
    stars = here["rating"].clone()
    if change == "six stars":
        stars[3] = 6
    if change == "half a star":
        stars[3] = 0.5
    here["rating"], back["rating"] = stars, stars.clone()
    if change == "others back":
        back["rating"][3] = 1 + stars[3] % 5
    if change == "another order":
        ends = {relation: graph.edges(etype=relation) for relation in graph.canonical_etypes}
        ends["film", "rated by", "user"] = tuple(end.flip(0) for end in ends["film", "rated by", "user"])
        dataset = replace(dataset, graph=dgl.heterograph(ends, {kind: graph.num_nodes(kind) for kind in graph.ntypes}))
        for relation in ("rates", "rated by"):
            dataset.graph.edges[relation].data["rating"] = torch.ones(len(stars))
    if change.startswith("none"):
        del (back if "back" in change else here)["rating"]
    with raises("gnn.no_ratings", InputError, stars=5):
        new_model(dataset, Recipe("lightgcn"), 0)


@pytest.mark.parametrize("architecture", HETERO)
def test_receptive_field_is_the_number_of_layers(architecture):
    """On author 0 - paper 0 - author 1 - paper 1, two hops count and three do not."""
    ends = torch.tensor([0, 1, 1]), torch.tensor([0, 0, 1])
    graph = dgl.heterograph({WRITES: ends, BACK[WRITES]: ends[::-1]}, {"author": 2, "paper": 2})
    features = {kind: torch.rand(2, 2, generator=torch.Generator().manual_seed(0)) for kind in graph.ntypes}
    order = torch.arange(2)
    dataset = Dataset("path", "node", graph, features, order, order, order, order, 2, "", target_type="author")
    model = new_model(dataset, Recipe(architecture, hidden=64, layers=2), 0).eval()
    for rows in features.values():
        rows.requires_grad_()
    model(graph, features)[0].square().sum().backward()
    seen = {kind: (rows.grad.abs().sum(dim=1) > 0).tolist() for kind, rows in features.items()}
    assert seen == {"author": [True, True], "paper": [True, False]}


# --- training and checkpoints -----------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("architecture", HETERO)
def test_hetero_training_depends_on_the_seed_alone(architecture):
    dataset, recipe = papers(), Recipe(architecture, hidden=16, layers=2, lr=0.01, epochs=60, patience=60)
    before = accuracy(new_model(dataset, recipe, 0), dataset)
    model, again, other = (train_gnn(dataset, recipe, seed) for seed in (0, 0, 1))
    assert accuracy(model, dataset)["train"] > before["train"] + 0.3
    for name, part in model.state_dict().items():
        assert torch.equal(part, again.state_dict()[name]), name
    assert not torch.equal(model.head.weight, other.head.weight)


@pytest.mark.long
def test_recommender_training_depends_on_the_seed_alone():
    dataset, recipe = films(), replace(RECIPES["movielens"], hidden=8, epochs=100)
    state = torch.random.get_rng_state()
    model, again, other = (train_gnn(dataset, recipe, seed) for seed in (0, 0, 1))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.equal(model.stars, again.stars) and not torch.equal(model.stars, other.stars)
    reached = ranking_quality(pair_scores(model, dataset), dataset.pairs, top=20)
    assert reached["recall@20"] > ranking_quality(popularity(dataset), dataset.pairs, top=20)["recall@20"] + 0.2
    assert accuracy(model, dataset)["test"] > 0.9


@pytest.mark.parametrize("architecture", BOTH)
def test_checkpoint_round_trip(architecture, tmp_path):
    dataset, model = a_model(architecture)
    save_gnn(model, tmp_path / "model.pt", {"seed": 3})
    loaded, details = load_gnn(tmp_path / "model.pt", dataset)
    assert (loaded.config, details) == (model.config, {"seed": 3})
    assert torch.equal(outputs(loaded, dataset), outputs(model, dataset))


@pytest.mark.parametrize("architecture", BOTH)
def test_trained_model_is_cached(architecture, fresh_cache):
    dataset = films() if architecture in RECOMMENDERS else papers()
    recipe = Recipe(architecture, hidden=8, layers=2, epochs=2)
    first, path, details = get_gnn(dataset, recipe, seed=0)
    written = path.stat().st_mtime_ns
    again, *_ = get_gnn(dataset, recipe, seed=0)
    assert path.stat().st_mtime_ns == written and {"train", "val", "test"} <= set(details)
    assert torch.equal(outputs(first, dataset), outputs(again, dataset))


def test_model_of_another_data_set_raises(tmp_path):
    (hetero, rgcn), (links, recommender) = a_model("rgcn"), a_model("lightgcn")
    path, wider = tmp_path / "model.pt", {**hetero.features, "paper": torch.ones(140, 5)}
    for model, dataset, code, fields in (
        (rgcn, load("ba-shapes"), "gnn.not_hetero", {"dataset": "ba-shapes"}),
        (rgcn, links, "gnn.not_hetero", {"dataset": "films"}),
        (recommender, hetero, "gnn.not_pairs", {"dataset": "papers"}),
        (rgcn, replace(hetero, target_type="paper"), "gnn.other_data", {"field": "target_type", "got": "author"}),
        (rgcn, replace(hetero, features=wider), "gnn.other_data", {"field": "in_dims"}),
    ):
        save_gnn(model, path, {})
        with raises(code, InputError, **fields):
            load_gnn(path, dataset)
    for dataset in (hetero, links):
        with raises("gnn.not_homogeneous", InputError):
            new_model(dataset, Recipe("gcn"), 0)


@pytest.mark.parametrize(
    ("architecture", "changes", "code", "problem"),
    [
        ("rgcn", {"in_dims": {"author": 0}}, "file.content", "in_dims.author must be a whole number of at least 1"),
        ("rgcn", {"in_dims": {"author": 1}}, "file.content", "in_dims"),
        ("rgcn", {"relations": ()}, "file.content", "relations"),
        ("rgcn", {"hidden": 6}, "file.content", "hidden"),
        ("rgcn", {"hidden": 16_000}, "gnn.weights", ""),
        ("hgt", {"dropout": 1.0}, "file.content", "dropout"),
        ("lightgcn", {"rates": ("user", "film")}, "file.content", "rates"),
        ("lightgcn", {"in_dims": {"film": 3, "user": 2}}, "file.content", "in_dims"),
    ],
)
def test_invalid_settings_of_a_file_raise(architecture, changes, code, problem, tmp_path):
    dataset, model = a_model(architecture)
    store(model, tmp_path / "model.pt", **changes)
    with raises(code) as caught:
        load_gnn(tmp_path / "model.pt", dataset)
    assert caught.value.fields.get("problem", "").startswith(problem) and "\n" not in str(caught.value)


def test_recipes():
    assert recipe_for("dblp", "node").architecture == "rgcn"
    usual = replace(RECIPES["dblp"], architecture="hgt")
    assert recipe_for("dblp", "node", "hgt") == OTHER_RECIPES["dblp", "hgt"] != usual
    assert recipe_for("mine", "node", heterogeneous=True).architecture == "rgcn"
    assert recipe_for("mine", "link", heterogeneous=True).architecture == "lightgcn"
    assert recipe_for("mine", "node").architecture == "gcn"
    assert recipe_for("mutag", "graph", "gin") == replace(RECIPES["mutag"], architecture="gin")


# --- ranking ----------------------------------------------------------------------------------------------------


def test_fewer_films_than_top_k():
    scores, pairs = torch.tensor([[3.0, 2.0, 1.0], [1.0, 2.0, 3.0]]), torch.tensor([[0, 0], [1, 0], [1, 2]])
    few, enough = (ranking_quality(scores, pairs, top=top) for top in (20, 3))
    assert list(few.values()) == list(enough.values())


def test_recall_and_ndcg_by_hand():
    scores = torch.tensor([[4.0, 3.0, 2.0, 1.0], [1.0, 2.0, 3.0, 4.0], [9.0, 8.0, 7.0, 6.0]])
    pairs = torch.tensor([[0, 1], [0, 3], [1, 3]])  # nothing of user 2, who does not count
    found = ranking_quality(scores, pairs, top=2)
    ideal, second = 1 + 1 / np.log2(3), 1 / np.log2(3)
    assert found == pytest.approx({"recall@2": (0.5 + 1) / 2, "ndcg@2": (second / ideal + 1) / 2})
    assert in_top(scores, pairs, top=2).tolist() == [True, False, True]


def test_recommendation_is_explained_by_ratings():
    dataset, model = a_model("lightgcn")
    quick = TrainingConfig(hidden=16, dim=8, masks=2, steps=20)
    lara = LARA(model, dataset.graph, dataset.features, "link", 2, config=quick, **dataset.lara_arguments)
    explanation = lara.fit(dataset.train, dataset.val).explain(dataset.test[:1])[0]
    u, v = dataset.pairs[dataset.test[0]].tolist()
    assert explanation.in_words().startswith(f"Film {v} is recommended to user {u} (score ")
    output = recommendation_clauses(lara.game, u, 60 + v, torch.arange(100))
    ends = zip(*(end.tolist() for end in dataset.graph.edges(etype="rates")), strict=True)
    stars = dict(zip(ends, (dataset.graph.edges["rates"].data["rating"] == 5).tolist(), strict=True))
    assert output[:60] == [USER_CLAUSES[stars.get((user, v))] for user in range(60)]
    assert output[60:] == [ITEM_CLAUSES[stars.get((u, film))] for film in range(40)]
    assert len(set(output)) == 6 and any(clause in explanation.in_words() for clause in output)


def test_rated_films_are_not_recommended():
    dataset, model = a_model("lightgcn")
    user, film = dataset.graph.edges(etype="rates")
    for scores in (pair_scores(model, dataset), popularity(dataset)):
        assert (scores[user, film] == -torch.inf).all()
        assert (scores > -torch.inf).sum() == 60 * 40 - 600
