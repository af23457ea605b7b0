"""Pictures and pages of edges, features and crowds, and the switch between player sets."""

import json
import re

import dgl
import numpy as np
import pytest
import torch
from browser import ask, needs_browser
from codes import raises
from games import PooledGCN, gcn_game, random_graph
from test_explanation import exact_explanations
from test_pictures import scene_of, texts
from test_player_kinds import small_game

from dgl_lara import Edges, Features
from dgl_lara.explanation.plot.figure import draw
from dgl_lara.explanation.plot.scene import MARKED_NODES, compose
from dgl_lara.explanation.view import bars_of
from dgl_lara.explanation.view import scene_of as scene_of_explanation
from dgl_lara.game.game import Game


def one_of(players, **more):
    game = small_game(players, **more)
    return exact_explanations(game, [int(game.graph.in_degrees().argmax())])[0]


def views_of(page):
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    return json.loads(text)


# --- edges ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("directed", [False, True])
def test_edges_are_drawn_by_their_scores(directed):
    one = one_of(Edges(directed))
    scene, nodes = scene_of_explanation(one, 40), one.nodes.tolist()
    player_set = one.game.player_set
    assert scene.score is None and scene.edge_score is not None and scene.edge_player is not None
    assert scene.edge_score.std() > 0.01
    drawn = 0
    for (u, v), way, place, score in zip(
        scene.edges.tolist(), scene.one_way, scene.edge_player.tolist(), scene.edge_score, strict=True
    ):
        pair = torch.tensor([nodes[u]]), torch.tensor([nodes[v]])
        if place >= 0:
            assert int(player_set.player_of_edges(*pair)) == int(one.players[place])
            assert score == pytest.approx(float(one.scores[place]))
            drawn += 1
        assert way == directed
    assert drawn == len(one)  # every player once


def test_an_important_edge_is_drawn_with_its_ends_in_a_crowd():
    """A star of 200 nodes with an important edge behind node 150."""
    pairs = [(0, node) for node in range(1, 200)] + [(150, 200)]
    edges = np.array([*pairs, *[(b, a) for a, b in pairs]])
    player = np.tile(np.arange(200), 2)
    score = np.full(200, 0.01)
    score[199] = -3
    hop = np.array([0] + [1] * 199 + [2])
    scene = compose([str(n) for n in range(201)], None, score, hop, None, edges, 20, edge_player=player)
    assert {0, 150, 200} <= set(scene.index) and len(scene.index) == 20
    assert scene.edge_score is not None and scene.edge_score.min() == -3 and scene.max_score == 3
    assert scene.rest.startswith(f"{200 - len(scene.edges)} further ")


def test_tables_and_graphs_of_edges(tmp_path):
    one = one_of(Edges())
    graph, content = one.to_networkx(), one.to_dict()
    scored = {
        edge: values["score"] for *edge, values in graph.edges(data=True) if "score" in values for edge in [tuple(edge)]
    }
    best = content["players"][0]
    assert best["rank"] == 1 and scored[best["u"], best["v"]] == pytest.approx(float(one.scores.max()))
    assert len({frozenset(edge) for edge in scored}) == len(one)
    assert not any("score" in values for _, values in graph.nodes(data=True))
    one.save(tmp_path / "a.graphml")
    one.save(tmp_path / "a.json")
    assert json.loads((tmp_path / "a.json").read_text())["kind"] == "edges"


def test_node_labels_are_no_labels_of_edges():
    one = one_of(Edges())
    named = exact_explanations(one.game, [one.target]).named(labels=[f"n{node}" for node in range(12)])[0]
    assert "label" not in named.to_frame() and all(name.startswith("n") for name in named.player_names())


# --- features ---------------------------------------------------------------------------------------------------


def test_features_are_bars(tmp_path):
    one = exact_explanations(small_game(Features()), [3]).named(columns=["age", "job", "town"])[0]
    bars = bars_of(one, 2)
    assert bars.score.tolist() == sorted(bars.score, reverse=True) and len(bars.index) == 2
    assert bars.rest.startswith("1 further ")
    assert bars.details == [f"{float(one.game.features[3, place]):.3g}" for place in bars.index]
    one.save(tmp_path / "a.svg")
    found = " ".join(texts(tmp_path / "a.svg"))
    assert "age" in found and "town" in found and one.meaning in found
    with raises("explanation.not_in_graph"):
        one.save(tmp_path / "a.graphml")


def test_groups_show_their_number_of_columns():
    one = exact_explanations(small_game(Features(groups={"one": [0], "both": [1, 2]})), [3])[0]
    details = dict(zip(bars_of(one, 9).names, bars_of(one, 9).details, strict=True))
    assert details["both"] == "2 columns"


def test_features_of_a_graph_show_mean_values():
    batch = dgl.batch([random_graph(size, 2 * size, size) for size in (5, 7)])
    features = torch.randn(12, 3, generator=torch.Generator().manual_seed(2))
    one = exact_explanations(Game.create(PooledGCN(), batch, features, "graph", players="features"), [1])[0]
    details = dict(zip(bars_of(one, 9).names, bars_of(one, 9).details, strict=True))
    assert details["x2"] == f"{float(features[5:, 2].mean()):.3g}"


# --- several kinds on one page ----------------------------------------------------------------------------------


def three():
    games = [small_game(kind, seed=4) for kind in ("nodes", Edges(), Features())]
    target = int(games[0].graph.in_degrees().argmax())
    return [exact_explanations(game, [target])[0] for game in games]


def test_a_page_has_every_player_set():
    nodes, edges, features = three()
    views = views_of(nodes.to_html(others=[edges, features]))
    assert [view["shape"] for view in views] == ["nodes", "edges", "bars"]
    assert [view["count"] for view in views] == [len(nodes), len(edges), len(features)]
    assert views[1]["title"] == edges.in_words() and views[2]["keep"][0] == pytest.approx(features.output, abs=1e-5)
    best = max(views[1]["players"], key=lambda player: player["score"])
    assert best["rank"] == 1 and best["name"] == edges.player_names()[int(edges.scores.argmax())]
    assert views_of(edges.to_html())[0] == views[1]
    other = exact_explanations(gcn_game(), [1 if nodes.target != 1 else 2])[0]
    with raises("explanation.other_target"):
        nodes.to_html(others=[other])


@pytest.mark.browser
@needs_browser[1]
def test_browser_switches_between_player_sets(tmp_path):
    nodes, edges, features = three()
    script = """
      const look = () => ({title: document.querySelector("h1").textContent, shape: view.getAttribute("class"),
        players: nodes.length, bars: view.querySelectorAll("rect").length,
        points: view.querySelectorAll(".point").length,
        widths: nodes.map(n => +(n.querySelector("path.edge")?.style.strokeWidth ?? 0)),
        gone: nodes.filter(n => n.classList.contains("gone")).length, pressed: [...$("kinds").children].map(b =>
          b.getAttribute("aria-pressed") === "true")});
      const views = [look()];
      for (const place of [1, 2]) {
        $("kinds").children[place].click();
        views.push(look());
        slider.value = last; slider.dispatchEvent(new Event("input"));
        views[place].end = look().gone;
      }
      return views;
    """
    first, second, third = ask(nodes.to_html(others=[edges, features]), script, tmp_path)
    assert [view["title"] for view in (first, second, third)] == [one.in_words() for one in (nodes, edges, features)]
    assert first["players"] == len(nodes) and second["points"] == len(edges.nodes) and third["bars"] == len(features)
    scores = [player["score"] for player in views_of(edges.to_html())[0]["players"]]
    assert np.corrcoef(np.abs(scores), second["widths"])[0, 1] > 0.99
    assert second["gone"] == 0 and second["end"] == len(edges) and third["end"] == len(features)
    assert [view["pressed"].index(True) for view in (first, second, third)] == [0, 1, 2]


@pytest.mark.browser
@needs_browser[1]
def test_browser_has_no_switch_for_one_player_set(tmp_path):
    height = ask(three()[0].to_html(), "return $('kinds').offsetHeight", tmp_path)
    assert height == 0


def test_a_notebook_shows_picture_and_table():
    for one in three():
        shown = one._repr_html_()
        assert shown.startswith("<svg ") and "<table" in shown
        assert one.player_names()[int(one.scores.argmax())] in shown[shown.index("<table") :]


# --- crowds and frames ------------------------------------------------------------------------------------------


def crowd():
    """A hub with 60 neighbours that are also connected with each other."""
    pairs = [(0, node) for node in range(1, 61)] + [(node, node + 7) for node in range(1, 54)]
    score = [0.0] + [0.01 * node for node in range(1, 61)]
    return scene_of(score, pairs, [0] + [1] * 60, max_nodes=60)


def test_edges_between_neighbours_of_a_hub_are_faint():
    scene = crowd()
    among = (scene.edges != scene.target).all(axis=1)
    assert among.sum() > 40 and scene.is_faint.tolist() == among.tolist()
    assert not scene_of([3, 1, -2], [(0, 1), (1, 2)], [0, 1, 2]).is_faint.any()


def test_only_the_strongest_of_a_crowd_are_marked():
    scene = crowd()
    marked = [mark for mark in scene.marks if mark]
    assert len(marked) == MARKED_NODES + 1 and {"0", "60", "59"} <= set(marked) and "2" not in marked


def test_long_names_are_not_cropped():
    labels = ["a long name indeed"] * 7
    scene = scene_of([3, 1, 1, 1, 1, 1, 1], [(0, n) for n in range(1, 7)], [0] + [1] * 6, labels=labels)
    figure = draw(scene, "", "1", "logit", "A note.")
    figure.canvas.draw()
    axis = figure.axes[0]
    frame = axis.get_window_extent()
    boxes = [text.get_window_extent() for text in axis.texts]
    assert len(boxes) == 6 + 1  # "1 hop". The legend names the target
    assert "a long name i…" in figure.legends[0].get_texts()[0].get_text()
    assert all(frame.x0 - 1 <= box.x0 and box.x1 <= frame.x1 + 1 for box in boxes)
    assert all(frame.y0 - 1 <= box.y0 and box.y1 <= frame.y1 + 1 for box in boxes)
