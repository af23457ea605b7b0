"""Summaries: sums by hand, typical explanations, pictures, the command."""

import dgl
import numpy as np
import pandas as pd
import pytest
import torch
from codes import raises, refused, run, succeeds
from games import PooledGCN, gcn_game, random_graph
from test_explanation import exact_explanations
from test_pictures import texts
from test_player_kinds import small_game

from dgl_lara import Edges, Features
from dgl_lara.explanation.plot.summary import spread
from dgl_lara.explanation.summary import medoids
from dgl_lara.game.game import Game
from dgl_lara.game.inputs import normalize_inputs
from dgl_lara.game.link_task import LinkTask


def table_of(summary, by):
    (found,) = [table for table in summary.groups if table["by"].iloc[0] == by]
    return found.set_index("item")


def by_hand(frame, key, targets):
    """Return the mean positive and negative sums from the table of all scores."""
    grouped = frame.assign(key=key).groupby("key").score
    return grouped.agg(lambda s: s.clip(lower=0).sum() / targets), grouped.agg(
        lambda s: -s.clip(upper=0).sum() / targets
    )


def test_nodes_by_hop_and_by_class():
    game = gcn_game()
    explanations = exact_explanations(game, list(range(12)))
    frame, summary = explanations.to_frame(), explanations.summary()
    positive, negative = by_hand(frame, frame.hop, 12)
    hops = table_of(summary, "hop")
    assert hops.index.tolist() == ["itself", "1 hop", "2 hops"]
    np.testing.assert_allclose(hops["for"], positive, rtol=1e-5)
    np.testing.assert_allclose(hops["against"], negative, rtol=1e-5, atol=1e-7)
    assert hops.share.sum() == pytest.approx(1) and hops.players.sum() == pytest.approx(len(frame) / 12)
    others = frame[frame.hop > 0]
    classes = game.explained_class.numpy()
    positive, _ = by_hand(others, classes[others.player], 12)
    found = table_of(summary, "predicted class")
    assert len(found) > 1 and found["for"].to_dict() == pytest.approx(
        {str(k): v for k, v in positive.items()}, rel=1e-5
    )
    same = classes[others.player] == others.explained_class
    agreeing = table_of(summary, "class, the same or not")
    assert agreeing.loc["the explained class", "for"] == pytest.approx(by_hand(others, same, 12)[0][True], rel=1e-5)


def test_one_class_alone():
    explanations = exact_explanations(gcn_game(), list(range(12)))
    requested = int(explanations.explained_class[0])
    summary = explanations.summary(requested)
    frame = explanations.to_frame()
    mine = frame[frame.explained_class == requested]
    assert 0 < summary.targets == mine.target.nunique() < 12 and summary.explained_class == str(requested)
    hops = table_of(summary, "hop")
    np.testing.assert_allclose(hops["for"], by_hand(mine, mine.hop, summary.targets)[0], rtol=1e-5)
    assert "class, the same or not" not in {table["by"].iloc[0] for table in summary.groups}
    with raises("summary.no_such_class", got=9):
        explanations.summary(9)


@pytest.mark.parametrize("directed", [False, True])
def test_edges_by_the_classes_of_their_ends(directed):
    game = small_game(Edges(directed), seed=7)
    explanations = exact_explanations(game, list(range(12)))
    frame, classes = explanations.to_frame(), game.explained_class.numpy()
    ends = np.stack([classes[frame.u], classes[frame.v]], axis=1)
    ends = ends if directed else np.sort(ends, axis=1)
    key = [f"{a}{'→' if directed else '–'}{b}" for a, b in ends]
    found = table_of(explanations.summary(), "predicted class of both ends")
    assert len(found) > 1 and found["for"].to_dict() == pytest.approx(by_hand(frame, key, 12)[0].to_dict(), rel=1e-5)
    assert table_of(explanations.summary(), "hop").index.tolist() == ["1 hop", "2 hops"]


def test_features_and_their_points():
    game = small_game(Features())
    explanations = exact_explanations(game, list(range(12))).named(columns=["age", "job", "town"])
    summary = explanations.summary()
    scores = explanations.scores.view(12, 3).numpy()
    table = table_of(summary, "feature")
    strength = np.abs(scores).mean(0)
    assert table.index.tolist() == [["age", "job", "town"][place] for place in np.argsort(-strength)]
    first = int(np.argmax(strength))
    assert summary.swarm[0].name == table.index[0]
    np.testing.assert_allclose(summary.swarm[0].score, scores[:, first])
    np.testing.assert_allclose(summary.swarm[0].value, game.features[:, first])


def graph_explanations(players="nodes"):
    batch = dgl.batch([random_graph(size, 2 * size, size) for size in (5, 7, 6)])
    features = torch.randn(18, 3, generator=torch.Generator().manual_seed(2)) / 5
    game = Game.create(PooledGCN(), batch, features, "graph", players=players)
    return exact_explanations(game, [0, 1, 2])


def test_graphs_by_labels_of_nodes():
    labels = list("CNO" * 6)
    explanations = graph_explanations().named(labels=labels)
    frame = explanations.to_frame()
    found = table_of(explanations.summary(), "label")
    expected = by_hand(frame, np.array(labels)[frame.player], 3)[0]
    assert found["for"].to_dict() == pytest.approx(expected.to_dict(), rel=1e-5)
    assert len(graph_explanations().summary().groups) == 1  # no labels: all nodes together


def test_features_of_graphs_are_coloured_by_their_means():
    summary = graph_explanations("features").summary()
    player = int(summary.groups[0].index[0])
    x = torch.randn(18, 3, generator=torch.Generator().manual_seed(2)) / 5
    expected = [part[:, player].mean() for part in x.split([5, 7, 6])]
    np.testing.assert_allclose(summary.swarm[0].value, expected, rtol=1e-5)


# --- graphs of several types, and links


def typed_game(players="nodes"):
    """Authors write papers, papers cite papers. Types and relations make a difference."""
    u, v = torch.randint(6, (2, 14), generator=torch.Generator().manual_seed(4))
    cites = random_graph(6, 5, 3).edges()
    edges = {
        ("author", "writes", "paper"): (u, v),
        ("paper", "by", "author"): (v, u),
        ("paper", "cites", "paper"): cites,
    }
    graph = dgl.to_simple(dgl.heterograph(edges, num_nodes_dict={"author": 6, "paper": 6}), return_counts=None)
    x = {kind: torch.rand(6, 2, generator=torch.Generator().manual_seed(n)) for n, kind in enumerate(graph.ntypes)}
    weight = {relation: 1.5 - place for place, relation in enumerate(graph.canonical_etypes)}

    def f(graph, h):
        for _ in range(2):
            new = dict(h)
            for relation in graph.canonical_etypes:
                start, _, end = relation
                new[end] = new[end] + weight[relation] * dgl.ops.copy_u_mean(graph[relation], h[start])
            h = {kind: rows.tanh() for kind, rows in new.items()}
        return h["author"]

    given = normalize_inputs(f, graph, x, target_type="author")
    return Game.create(given.f, given.graph, given.features, given.task, hops=2, players=players)


def test_nodes_of_several_types_by_type():
    game = typed_game()
    explanations = exact_explanations(game, list(range(6)))
    frame, summary = explanations.to_frame(), explanations.summary()
    kinds = np.where(explanations.players.player < 6, "author", "paper")
    others = ~explanations.is_target.numpy()
    found = table_of(summary, "type")
    positive, negative = by_hand(frame[others], kinds[others], 6)
    assert found["for"].to_dict() == pytest.approx(positive.to_dict(), rel=1e-5)
    assert found["against"].to_dict() == pytest.approx(negative.to_dict(), rel=1e-5, abs=1e-7)
    assert found.share.sum() == pytest.approx(1) and found.share.min() > 0.01
    assert [table["by"].iloc[0] for table in summary.groups] == ["hop", "type"]  # f gives papers no class


@pytest.mark.parametrize("directed", [False, True])
def test_edges_of_several_types_by_relation(directed, tmp_path):
    game = typed_game(Edges(directed))
    explanations = exact_explanations(game, [0, 1, 2])
    source, destination = game.player_set.endpoints(explanations.players.player)

    def relation(one, other):
        if one >= 6 and other >= 6:
            return "cites"
        return ("writes" if one < 6 else "by") if directed else "writes + by"

    key = [relation(int(one), int(other)) for one, other in zip(source, destination, strict=True)]
    summary = explanations.summary()
    found, expected = table_of(summary, "relation"), by_hand(explanations.to_frame(), key, 3)[0].to_dict()
    assert len(expected) == (3 if directed else 2)
    assert found["for"].to_dict() == pytest.approx(expected, rel=1e-5, abs=1e-7)
    summary.save(tmp_path / "a.svg")
    assert set(expected) <= set(texts(tmp_path / "a.svg"))


def test_relations_with_one_name_include_their_types():
    graph = dgl.heterograph({("a", "to", "b"): ([0], [0]), ("b", "to", "a"): ([0], [0]), ("b", "is", "b"): ([0], [0])})
    types = normalize_inputs(gcn_game, graph, {"a": torch.ones(1, 1), "b": torch.ones(1, 1)}, target_type="a").types
    assert types and sorted(types.relation_names) == ["a to b", "b to a", "is"]


@pytest.mark.parametrize("value", ["output", "probability"])
def test_links_have_two_ends_and_no_classes(value):
    game = gcn_game()
    model, graph, x = game.f, game.graph, game.features

    def score(graph, x, u, v):
        z = model(graph, x)
        return (z[u] * z[v]) if value == "probability" else (z[u] * z[v]).sum(1)

    pairs = torch.tensor([[0, 3], [2, 5], [4, 9]])
    links = Game.create(score, graph, x, LinkTask(pairs), hops=2, value=value)
    explanations = exact_explanations(links, [0, 1, 2])
    summary = explanations.summary()
    assert [table["by"].iloc[0] for table in summary.groups] == ["hop"]
    assert table_of(summary, "hop").index[0] == "both ends"
    frame = explanations.to_frame()
    np.testing.assert_allclose(table_of(summary, "hop")["for"], by_hand(frame, frame.hop, 3)[0], rtol=1e-5, atol=1e-7)
    assert ("class" in summary.title) == (value == "probability") and summary.title.startswith("3 links")


def test_medoids_are_the_middles_of_the_clouds():
    points = np.concatenate([np.linspace(-1, 1, 21), 100 + np.linspace(-1, 1, 11), [500.0]])
    chosen, share = medoids(np.abs(points[:, None] - points[None]), 3)
    assert points[chosen].tolist() == pytest.approx([0, 100, 500]) and share.tolist() == [21 / 33, 11 / 33, 1 / 33]
    assert len(medoids(np.zeros((5, 5)), 3)[0]) == 1  # all alike: one stands for all


def test_typical_explanations_are_places_of_the_batch():
    explanations = exact_explanations(gcn_game(), [3, 5, 7, 9])
    typical = explanations.summary().typical
    assert [explanations[place].target for place in typical["row"]] == typical.target.tolist()
    assert typical.share.sum() == pytest.approx(1)


def test_points_with_equal_scores_are_separated():
    offsets = spread(np.array([0.5] * 9 + [-0.5]))
    assert len(set(offsets[:9])) == 9 and offsets[9] == 0 and np.abs(offsets).max() < 0.5


@pytest.mark.long
def test_tables_and_pictures(tmp_path):
    for players in ("nodes", Edges(), Features()):
        summary = exact_explanations(small_game(players), [1, 2, 3]).summary()
        summary.save(tmp_path / "a.csv")
        table = pd.read_csv(tmp_path / "a.csv")
        assert set(table.kind) == {summary.player_set} and (table.by == "typical").sum() == len(summary.typical)
        summary.save(tmp_path / "a.svg")
        found = texts(tmp_path / "a.svg")
        assert {str(item) for item in summary.groups[0]["item"]} <= set(found)
        assert summary._repr_html_().startswith("<svg ")
    with raises("explanation.file_ending"):
        summary.save(tmp_path / "a.txt")


@pytest.mark.long
def test_the_command(quick_runs, tmp_path):
    run_words = ["summary", "--run", quick_runs["ba-shapes"]]
    result = succeeds(*run_words, "--class", 1, "--split", "test", "--out", tmp_path / "a.csv")
    assert "class 1 (logit)" in result.output and "typical, " in result.output
    for group in ("hop", "predicted class"):  # shares by class are without the node itself
        assert f" by {group}" in result.output
    table = pd.read_csv(tmp_path / "a.csv")
    assert "itself" in set(table["item"])
    refused(run(*run_words, "--class", 77), "classes.unknown")
    refused(run(*run_words, "--out", "a.txt"), "option.ending")
