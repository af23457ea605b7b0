"""Graphs of several node and edge types: f is given the typed graph back, and everything else is as ever."""

from itertools import pairwise
from typing import Any

import dgl
import pytest
import torch
from codes import raises

from dgl_lara import LARA, Edges, Features
from dgl_lara._util.randomness import generator
from dgl_lara.attribution.exact import all_coalitions, exact
from dgl_lara.attribution.monte_carlo import least_squares
from dgl_lara.blackbox.hetero import HeteroAdapter
from dgl_lara.errors import ModelError
from dgl_lara.explainer.inputs import encoder_graph, explainer_inputs
from dgl_lara.explainer.probe import paths_to_targets, probe_outputs
from dgl_lara.game.game import Game
from dgl_lara.game.inputs import normalize_inputs
from dgl_lara.inference.layerwise import embed_layerwise
from dgl_lara.inference.scorer import Scorer, embed_all
from dgl_lara.training.coalitions import evaluate_coalitions
from dgl_lara.training.config import TrainingConfig
from dgl_lara.training.loop import new_explainer
from dgl_lara.training.objective import Step
from dgl_lara.training.subgraphs import FullGraph, NeighborSubgraphs

SIZES = {"user": 6, "item": 9, "tag": 4}
WIDTHS = {"user": 3, "item": 2, "tag": 1}
RELATIONS = [
    ("user", "buys", "item"), ("item", "bought-by", "user"), ("item", "has", "tag"), ("tag", "of", "item"),
    ("user", "knows", "user"), ("tag", "names", "user"),
]  # fmt: skip
SMALL = TrainingConfig(hidden=16, dim=5, masks=4, steps=30)
wrong: Any = 7


def shop(times=1, edges=10, seed=0, order=RELATIONS, sizes=SIZES):
    """Some relations carry something, and not the same; one has no edge at all."""
    count = {kind: times * size for kind, size in sizes.items()}
    made = {}
    for place, (start, name, end) in enumerate(RELATIONS):
        drawn, many = generator(seed * 10 + place), 0 if name == "names" else times * edges
        ends = [torch.randint(count[kind], (many,), generator=drawn) for kind in (start, end)]
        made[start, name, end] = tuple(ends)
    graph = dgl.heterograph({relation: made[relation] for relation in order}, num_nodes_dict=count)
    for name in ("buys", "names"):
        graph.edges[name].data["amount"] = 0.5 + torch.rand(graph.num_edges(name), generator=generator(seed))
    graph.edges["has"].data["since"] = torch.arange(graph.num_edges("has")) % 5
    return graph


def features(graph):
    """The first column says who it is."""
    x = {kind: torch.rand(graph.num_nodes(kind), WIDTHS[kind], generator=generator(8)) for kind in graph.ntypes}
    for rows in x.values():
        rows[:, 0] = torch.arange(len(rows)) / 10
    return x


def table(graph, x):
    """What f is given: features by type, and every edge by relation with all that it carries."""
    edges = {}
    for relation in graph.canonical_etypes:
        src, dst = graph.edges(etype=relation)
        data = graph.edges[relation].data
        rows = [src, dst, x[relation[0]][src, 0], x[relation[2]][dst, 0], *(data[name] for name in sorted(data))]
        edges[relation] = sorted(data), sorted(zip(*(row.tolist() for row in rows), strict=True))
    return {kind: rows.tolist() for kind, rows in x.items()}, edges


class Net(torch.nn.Module):
    """Two layers, weights for each type and relation; logits of items, or of all types."""

    def __init__(self, every=False, watched=False, classes=3):
        super().__init__()
        self.every, self.watched, self.given = every, watched, []
        drawn = generator(5)
        widths = [WIDTHS, dict.fromkeys(SIZES, 4), dict.fromkeys(SIZES, classes)]
        self.own = [
            {kind: torch.randn(a[kind], b[kind], generator=drawn) for kind in SIZES} for a, b in pairwise(widths)
        ]
        self.across = [
            {name: torch.randn(a[start], b[end], generator=drawn) for start, name, end in RELATIONS}
            for a, b in pairwise(widths)
        ]

    def forward(self, graph, x):
        if self.watched:
            self.given.append(table(graph, x))
        h = x
        for layer, (own, across) in enumerate(zip(self.own, self.across, strict=True)):
            after = {kind: rows @ own[kind] for kind, rows in h.items()}
            for start, name, end in graph.canonical_etypes:
                part, sent = graph[start, name, end], h[start] @ across[name]
                data = graph.edges[start, name, end].data
                weight = data.get("amount", torch.ones(part.num_edges())) + data.get("since", torch.zeros(1)) / 5
                src, dst = part.edges()
                total = torch.zeros(len(after[end]), sent.shape[1]).index_add(
                    0, dst.long(), sent[src.long()] * weight[:, None]
                )
                after[end] = after[end] + total / 3
            h = {kind: rows.relu() for kind, rows in after.items()} if not layer else after
        return h if self.every else h["item"]


def made(f=None, graph=None, hops=2, **more):
    """A game and the user's own graph."""
    graph = shop() if graph is None else graph
    given = normalize_inputs(f or Net(), graph, features(graph), target_type="item")
    return Game.create(given.f, given.graph, given.features, given.task, hops=hops, **more), graph


def by_type(game, nodes):
    """{type: own numbers} of nodes that are numbered through."""
    names, own = game.f.types.locate(nodes)
    return {kind: own[[name == kind for name in names]] for kind in SIZES}


def expected(graph, parts):
    x = features(graph)
    cut = []
    for nodes in parts:
        part = dgl.node_subgraph(graph, nodes, store_ids=False)
        for kind in SIZES:
            part.nodes[kind].data["x"] = x[kind][nodes[kind]]
        cut.append(part)
    many = dgl.batch(cut)
    return table(many, {kind: many.nodes[kind].data["x"] for kind in graph.ntypes})


def masks(count, players, seed=2):
    return torch.rand(count, players, generator=generator(seed)) < 0.6


# --- what f is given


@pytest.mark.parametrize("idtype", [torch.int32, torch.int64], ids=str)
def test_node_subgraphs_equal_those_of_dgl(idtype):
    game, graph = made(Net(watched=True), shop().astype(idtype))
    keep = masks(5, 19)
    kind = game.f.types.type_of(torch.arange(19))
    keep[1, kind == game.f.types.type_index("tag")] = False  # a type of which nobody is left
    keep[2, kind == game.f.types.type_index("user")] = False
    keep[3] = False
    keep[3, 4] = True  # one item, and no edge
    game.shared_values(keep)
    parts = [by_type(game, mask.nonzero().flatten()) for mask in keep]
    assert game.f.model.given[-1] == expected(graph.long(), parts)
    assert game.f.model.given[0] == expected(graph.long(), [{kind: torch.arange(size) for kind, size in SIZES.items()}])


@torch.no_grad()
def test_values_are_fs_own_under_the_users_numbers():
    game, graph = made()
    x, keep = features(graph), masks(4, 19)
    torch.testing.assert_close(game.full_values[:9], Net()(graph, x))
    assert game.num_targets == 9
    for mask, values in zip(keep, game.shared_values(keep), strict=True):
        nodes = by_type(game, mask.nonzero().flatten())
        output = Net()(dgl.node_subgraph(graph, nodes), {kind: x[kind][nodes[kind]] for kind in x})
        there = torch.isin(torch.arange(9), nodes["item"])
        torch.testing.assert_close(values[:9][there], output)
        assert (values[:9][~there] == game.null_values).all() and (~there).any()


def test_nodes_taken_out_of_ego_graphs():
    game, graph = made(Net(watched=True), shop(3))
    players = game.players(torch.tensor([7, 2, 20]))
    keep, parts = masks(4, len(players.player)), []
    game.values_per_target(players, keep)
    for mask in keep:
        for target, mine in zip(players.targets, players.slices, strict=True):
            gone = by_type(game, players.player[mine][~mask[mine]])
            around = dgl.khop_in_subgraph(graph, {"item": target}, k=game.context_hops)[0].ndata[dgl.NID]
            parts.append({kind: (ids := around[kind].sort().values)[~torch.isin(ids, gone[kind])] for kind in SIZES})
    assert game.f.model.given[-1] == expected(graph, parts)


def test_players_are_nodes_of_any_type():
    game, graph = made(graph=shop(3))
    found = by_type(game, game.players(torch.tensor([4])).player)
    around = dgl.khop_in_subgraph(graph, {"item": 4}, k=2)[0].ndata[dgl.NID]
    for kind in SIZES:
        assert found[kind].tolist() == sorted(around[kind].tolist())
    assert sum(len(ids) > 0 for ids in found.values()) > 1


def test_edges_taken_out():
    game, graph = made(Net(watched=True), players=Edges(directed=True))
    keep = masks(2, game.num_players)
    game.shared_values(keep)
    player = game.player_set.player_of_edges(*game.graph.edges())
    _, edges = game.f.model.given[-1]
    for place, relation in enumerate(graph.canonical_etypes):
        mine = game.f.types.relation_of(torch.arange(game.graph.num_edges())) == place
        stays = keep[:, player.clamp(min=0)] | (player < 0)
        assert len(edges[relation][1]) == int(stays[:, mine].sum())
    values = game.shared_values(torch.ones(1, game.num_players, dtype=torch.bool))[0]
    torch.testing.assert_close(values, game.full_values[:9])


def test_a_node_alone_and_nothing_at_all():
    game, graph = made(Net(watched=True))
    explainer_inputs(game, "rich")
    lonely, edges = game.f.model.given[-2]  # the last call is that of `heard`
    assert lonely == {kind: rows.tolist() for kind, rows in features(graph).items()}
    loops = {relation: sum(a == b for a, b, *_ in rows) for relation, (_, rows) in edges.items()}
    assert {relation: len(rows) for relation, (_, rows) in edges.items()} == loops  # own loops stay
    nothing = dgl.heterograph(
        {relation: ([], []) for relation in RELATIONS}, num_nodes_dict={**dict.fromkeys(SIZES, 0), "item": 1}
    )
    zeros = {kind: torch.zeros(nothing.num_nodes(kind), WIDTHS[kind]) for kind in SIZES}
    torch.testing.assert_close(game.null_logits, Net()(nothing, zeros)[0])


def test_logits_of_one_type_or_of_all():
    one, every = made(Net())[0], made(Net(every=True))[0]
    keep = masks(3, 19)
    assert torch.equal(one.shared_values(keep)[:, :9], every.shared_values(keep)[:, :9])
    output = Net(every=True)(shop(), features(shop()))
    for kind in SIZES:  # what f says of the others is for g to see
        start = int(every.f.types.node_offsets[every.f.types.type_index(kind)])
        torch.testing.assert_close(every.full_logits[start : start + SIZES[kind]], output[kind])
    assert (one.full_logits[9:] == 0).all()


def test_the_part_has_its_types_in_the_users_order():
    """A model may go by places, as `dgl.to_homogeneous` does."""
    graph, seen = shop(), []

    def f(part, x):
        seen.append((part.ntypes, part.canonical_etypes))
        return Net()(part, x)

    game, _ = made(f, graph)
    game.shared_values(masks(2, 19))
    assert all(order == (graph.ntypes, graph.canonical_etypes) for order in seen)
    assert list(game.f.types.node_types) != graph.ntypes or game.f.target_types == ("item",)


@torch.no_grad()
def test_enumeration_by_hand():
    graph = shop(edges=6, seed=4)
    game, x, f = made(graph=graph)[0], features(graph), Net()
    target = int(game.players(torch.arange(9)).counts.argmax())
    players = game.players(torch.tensor([target]))
    keep, chosen = all_coalitions(len(players.player)), game.explained_class[target]
    values = []
    for mask in keep:
        stays = torch.ones(19, dtype=torch.bool)
        stays[players.player[~mask]] = False
        nodes = by_type(game, stays.nonzero().flatten())
        output = f(dgl.node_subgraph(graph, nodes), {kind: x[kind][nodes[kind]] for kind in x})
        values.append((output[nodes["item"] == target][0] if stays[target] else game.null_logits)[chosen])
    every = torch.stack(values)
    phi = torch.stack([every[side].mean() - every[~side].mean() for side in keep.T])
    assert phi.std() > 0.01 and 4 < len(phi) < 16
    torch.testing.assert_close(exact(game, players), phi, atol=1e-5, rtol=1e-4)


# --- g


@pytest.mark.parametrize("players", ["nodes", Edges(), Edges(directed=True)], ids=str)
def test_walks_lists_and_the_compiled_walk(players):
    game, _ = made(graph=shop(8), players=players)
    seen, targets = encoder_graph(game, "rich"), torch.tensor([1, 5, 30])
    g = new_explainer(game, SMALL, seen.inputs, torch.arange(72))
    coalitions = evaluate_coalitions(game, FullGraph(game, seen).batch(targets), 4, generator(3))
    steps = [Step(game, g, coalitions, form(game, seen).embed(g, targets)) for form in (FullGraph, NeighborSubgraphs)]
    pairs = steps[0]._by_pairs()
    assert pairs.std() > 1e-3
    for step in steps:
        torch.testing.assert_close(step.predicted_responses(), pairs, atol=1e-4, rtol=1e-3)
    g.requires_grad_(False)
    embeddings = embed_all(g, game, "rich")
    few = torch.cat([Scorer(g, game, embeddings).explain(some).scores for some in torch.arange(72).split(9)])
    many = Scorer(g, game, embeddings).explain(torch.arange(72))
    torch.testing.assert_close(many.scores, few, atol=1e-4, rtol=1e-3)


def test_g_sees_types_and_relations():
    game, graph = made()
    blocks = game.input_blocks
    assert [block.shape[1] for block in blocks] == [3, 2, 1, 3, 6, 6 + 1 + 16 + 1, 24]
    kinds = torch.tensor([0] * 9 + [1] * 4 + [2] * 6)
    assert game.f.types.node_types == ("item", "tag", "user")
    assert torch.equal(blocks[0].argmax(1), kinds)
    torch.testing.assert_close(blocks[3][13:], features(graph)["user"])
    assert (blocks[3][:13] == 0).all()
    place = graph.canonical_etypes.index(("user", "buys", "item"))
    torch.testing.assert_close(blocks[4][:9, place].expm1().round().long(), graph.in_degrees(etype="buys"))


@torch.no_grad()
def test_what_f_makes_of_nodes_of_other_types():
    """By DGL's own means: an item without features, and one edge to it; or two, with one more node between. What f says
    of anybody says nothing of them."""

    class Opinionated(Net):
        def forward(self, graph, x):
            return super().forward(graph, x) + torch.tensor([1.0, -2.0, 0.5])

    game, graph = made(Opinionated(), shop(2))
    rows, types = probe_outputs(game), game.f.types
    hop, _ = paths_to_targets(game.graph, graph.num_nodes("item"), game.hops)
    assert (rows[hop <= 0] == 0).all() and (hop == 1).sum() > 9 and (hop == 2).any()

    def nobody_hears(graph, x, relation, number, source):
        """The graph with one more node at the end of a copy of this edge, which leaves `source`."""
        data = {name: rows[number : number + 1] for name, rows in graph.edges[relation].data.items()} or None
        kind = relation[2]
        graph = dgl.add_edges(dgl.add_nodes(graph, 1, ntype=kind), [source], [len(x[kind])], data, relation)
        return graph, x | {kind: torch.cat([x[kind], torch.zeros(1, WIDTHS[kind])])}

    for node in (hop > 0).nonzero().flatten().tolist():
        whole, x, at, source = graph, features(graph), node, int(types.local_ids(torch.tensor([node])))
        while hop[at]:
            leaving = game.graph.out_edges(at, form="all")
            edge = next(i for i in range(len(leaving[1])) if hop[leaving[1][i]] == hop[at] - 1)
            number = leaving[2][edge : edge + 1]
            place = int(types.relation_of(number))
            relation, at = types.relations[place], int(leaving[1][edge])
            whole, x = nobody_hears(whole, x, relation, int(number - types.edge_offsets[place]), source)
            source = len(x[relation[2]]) - 1
        torch.testing.assert_close(rows[node], Net()(whole, x)[-1], atol=1e-5, rtol=1e-4)
    some = torch.tensor([3, 19, 27, 30])
    torch.testing.assert_close(probe_outputs(game, some), rows[some], atol=1e-5, rtol=1e-4)


@pytest.fixture(scope="module")
def trained():
    graph, config = shop(8), TrainingConfig(hidden=32, dim=8, masks=4, steps=150)
    return LARA(Net(), graph, features(graph), hops=2, target_type="item", config=config).fit(range(72))


def test_fit_explain_correct_refine_verify(trained):
    targets = [3, 5, 7, 9]
    plain, better = trained.explain(targets, corrected=False), trained.explain(targets)
    assert better.source == ["corrected"] * 4
    phi = least_squares(trained.game, better.players, 1500, generator(5)).phi
    errors = [float((one.scores - phi).square().sum() / phi.square().sum()) for one in (plain, better)]
    assert errors[1] < min(errors[0], 0.1)
    refined = trained.refine(plain, 60).explanations
    assert (refined.scores - phi).square().sum() < (plain.scores - phi).square().sum()
    assert not trained.verify(better).worse_than_random.all()
    assert trained.refine_until(plain, 0.99).pairs.max() > 0


def test_saved_and_loaded(trained, tmp_path):
    trained.save(tmp_path / "lara.pt")
    graph = shop(8)
    again = LARA.load(tmp_path / "lara.pt", Net(), graph, features(graph), target_type="item")
    near = again.explain([3, 7], corrected=False)
    assert not again.is_embedded and again._game is None
    again.embed(), trained.embed()
    for corrected in (True, False):
        one, other = (lara.explain([3, 7], corrected=corrected) for lara in (again, trained))
        torch.testing.assert_close(one.scores, other.scores, atol=1e-5, rtol=1e-4)
        assert one.source == other.source
    torch.testing.assert_close(near.scores, other.scores, atol=1e-5, rtol=1e-4)


def test_top_and_bulk(trained):
    found = trained.explain(range(72), corrected=False)
    best = trained.top(range(72), 3)
    first = found.rank() < 3
    real = best.player >= 0
    torch.testing.assert_close(
        torch.from_numpy(best.score[real]).sort().values, found.scores[first].sort().values, atol=1e-5, rtol=1e-3
    )
    with raises("targets.range", most=71, got=72):
        trained.explain([72])


def test_layer_by_layer(trained):
    whole = trained.embed()
    layered = embed_layerwise(trained.explainer_, trained.game, trained.config_.inputs, size=11)
    torch.testing.assert_close(layered.source, whole.source, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(layered.target, whole.target, atol=1e-5, rtol=1e-4)


def test_batches_elsewhere():
    """The model gets batches on a device of its own, here the same one."""
    graph, config = shop(8), TrainingConfig(hidden=16, dim=5, masks=4, steps=5, batch_size=8)
    where = (Net(every=True), graph, features(graph))
    here, there = (
        LARA(*where, hops=2, target_type="item", config=config, compute_device=device).fit(range(72))
        for device in (None, torch.device("cpu"))
    )
    assert isinstance(there.game.f, HeteroAdapter)
    scores = here.explain([3, 5], corrected=False).scores
    torch.testing.assert_close(there.explain([3, 5], corrected=False).scores, scores, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("idtype", [torch.int32, torch.int64], ids=str)
def test_the_order_of_types_and_relations_changes_nothing(trained, idtype):
    """Nor whether numbers of nodes are short or long."""
    sizes = dict(reversed(SIZES.items()))
    graph = shop(8, order=list(reversed(RELATIONS)), sizes=sizes).astype(idtype)
    expected = trained.explain(range(40), corrected=False).scores
    scores = trained.explain_on(graph, features(graph), range(40)).scores
    torch.testing.assert_close(scores, expected, atol=1e-5, rtol=1e-4)


def test_names_and_types_of_players(trained):
    types = trained.types
    names = types.node_names({"tag": [f"t{n}" for n in range(32)]})
    assert names[70:74] == ["", "", "t0", "t1"]
    assert types.node_labels(torch.tensor([71, 72]), names) == ["item 71", "tag 0 (t0)"]
    assert types.node_labels(torch.tensor([71, 72])) == ["item 71", "tag 0"]
    names, own = types.locate(torch.tensor([0, 71, 72, 104]))
    assert names == ["item", "item", "tag", "user"] and own.tolist() == [0, 71, 0, 0]


# --- mistakes


def lara(change=None, graph=None, f=None, **more):
    graph = shop() if graph is None else graph
    x: Any = features(graph)
    x = x if change is None else change(x)
    return LARA(f or Net(), graph, x, **{"hops": 2, "target_type": "item", **more}).game


def answers(what):
    return lambda graph, x: what(Net(every=True)(graph, x))


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: lara(lambda x: {k: v for k, v in x.items() if k != "tag"}), "features.missing_type"),
        (lambda: lara(lambda x: {**x, "shop": x["tag"]}), "features.unknown_type"),
        (lambda: lara(lambda x: {**x, "tag": x["tag"][:3]}), "features.rows_by_type"),
        (lambda: lara(lambda x: {**x, "tag": x["tag"][:, 0]}), "features.rows_by_type"),
        (lambda: lara(lambda x: {**x, "tag": "words"}), "features.not_a_tensor"),
        (lambda: lara(lambda x: x["item"]), "features.not_by_type"),
        (lambda: lara(lambda x: None), "features.missing_type"),
        (lambda: lara(task="graph"), "graph.types_of_batch"),
        (lambda: lara(players="features"), "players.features_of_types"),
        (lambda: lara(players=Features()), "players.features_of_types"),
        (lambda: lara(target_type=None), "target_type.missing"),
        (lambda: lara(target_type="shop"), "target_type.unknown"),
        (lambda: lara(target_type=wrong), "target_type.unknown"),
        (lambda: LARA(Net(), dgl.rand_graph(5, 9), torch.ones(5, 2), target_type="item"), "graph.one_type"),
        (lambda: lara(relation="buys"), "pairs.task"),
    ],
)  # fmt: skip
def test_mistakes_raise_codes(make, code):
    with raises(code):
        make()


@pytest.mark.parametrize(
    ("f", "code"),
    [
        (answers(lambda h: {"user": h["user"]}), "model.output_types"),
        (answers(lambda h: h["user"]), "model.rows"),
        (answers(lambda h: [h["item"]]), "model.rows"),
        (answers(lambda h: h["nobody"]), "model.missing_key"),
    ],
)
def test_models_with_other_outputs(f, code):
    with raises(code, ModelError):
        lara(f=f)


def test_features_kept_in_the_graph():
    graph = shop()
    for kind, rows in features(graph).items():
        graph.nodes[kind].data["feat"] = rows
    torch.testing.assert_close(LARA(Net(), graph, target_type="item", hops=2).game.full_values, lara().full_values)


def test_features_are_given_as_they_are():
    """A model in double precision gets doubles, as on graphs of one type; arrays of doubles become floats."""
    graph, seen = shop(), []

    def f(part, x):
        seen.append({kind: rows.dtype for kind, rows in x.items()})
        return Net()(part, {kind: rows.float() for kind, rows in x.items()})

    x: Any = features(graph)
    x["tag"], x["user"] = x["tag"].double(), x["user"].double().numpy()
    normalize_inputs(f, graph, x, target_type="item")
    LARA(f, graph, x, hops=2, target_type="item").game  # noqa: B018
    assert seen[-1] == {"item": torch.float32, "tag": torch.float64, "user": torch.float32}
