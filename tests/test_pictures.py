"""Pictures: which players are drawn, where, and that the file is reproducible."""

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from itertools import combinations

import networkx as nx
import numpy as np
import pytest
import torch
from games import gcn_game
from test_explanation import exact_explanations

from dgl_lara.explanation.plot.figure import COLOURS, draw
from dgl_lara.explanation.plot.layout import crossings, forces, rings
from dgl_lara.explanation.plot.scene import FULLY_MARKED_NODES, MARKED_NODES, compose
from dgl_lara.explanation.sentence import ALONE
from dgl_lara.explanation.view import scene_of as scene_of_explanation
from dgl_lara.game.tasks import GRAPH, NODE


def both(pairs):
    return np.array([*pairs, *[(b, a) for a, b in pairs]])


def scene_of(score, pairs, hop, max_nodes=40, **more):
    arguments = {"labels": None, "truth": None, **more}
    return compose(
        [str(i) for i in range(len(score))], score=np.array(score, float), hop=None if hop is None else np.array(hop),
        edges=both(pairs), max_nodes=max_nodes, **arguments,
    )  # fmt: skip


# --- layout -----------------------------------------------------------------------------------------------------


def test_crossings_counts():
    square = np.array([[0, 0], [1, 1], [0, 1], [1, 0.0]])
    assert crossings(square, np.array([[0, 1], [2, 3]])) == 1
    assert crossings(square, np.array([[0, 2], [1, 3]])) == 0
    assert crossings(square, np.array([[0, 1], [1, 2]])) == 0  # a common end does not count


def test_rings_keep_hops_apart_and_nodes_from_touching():
    graph = nx.random_labeled_tree(60, seed=4)
    hop = np.array([nx.shortest_path_length(graph, 0, node) for node in range(60)])
    position = rings(hop, np.array(graph.edges))
    distance = np.linalg.norm(position, axis=1)
    assert distance[0] == 0
    for ring in range(1, hop.max() + 1):
        assert distance[hop == ring].min() > distance[hop == ring - 1].max() + 0.9
    gaps = np.linalg.norm(position[:, None] - position[None], axis=2) + 10 * np.eye(60)
    assert gaps.min() > 0.6
    assert (position == rings(hop, np.array(graph.edges))).all()


def test_a_tree_is_drawn_without_crossings():
    graph = nx.balanced_tree(3, 2)
    order = np.random.default_rng(0).permutation(13)  # numbers do not follow the tree
    place = np.argsort(order)
    edges = place[np.array(graph.edges)]
    hop = np.empty(13, int)
    hop[place] = [nx.shortest_path_length(graph, 0, node) for node in range(13)]
    assert crossings(rings(hop, edges), edges) == 0


def test_the_first_order_keeps_connected_nodes_together(monkeypatch):
    """A wheel with a shuffled rim."""
    monkeypatch.setattr("dgl_lara.explanation.plot.layout.MAX_TRIALS", 0)
    rim = [1, 4, 2, 6, 3, 5, 7]
    edges = np.array([(0, node) for node in rim] + list(zip(rim, [*rim[1:], rim[0]], strict=True)))
    assert crossings(rings(np.array([0] + [1] * 7), edges), edges) == 0


@pytest.mark.parametrize(("first", "heirs"), [(10, 3), (71, 0), (100, 0)])
def test_neighbours_on_a_crowded_ring_do_not_touch(first, heirs):
    """Nodes with and without outer neighbours, and rings with several rows."""
    edges = [(0, node) for node in range(1, first + 1)]
    edges += [(node, first + 1 + place) for place, node in enumerate(np.repeat(np.arange(1, first - 2), heirs))]
    hop = np.array([0] + [1] * first + [2] * (len(edges) - first))
    position = rings(hop, np.array(edges))
    gaps = np.linalg.norm(position[:, None] - position[None], axis=2) + 10 * np.eye(len(hop))
    assert gaps.min() > 0.6


def test_first_and_last_node_of_a_full_ring_do_not_touch():
    for seed in range(8):
        parent = np.random.default_rng(seed).integers(1, 10, 30)
        edges = np.array([(0, node) for node in range(1, 10)] + list(zip(parent, range(10, 40), strict=True)))
        position = rings(np.array([0] + [1] * 9 + [2] * 30), edges)
        assert (np.linalg.norm(position[:, None] - position[None], axis=2) + 10 * np.eye(40)).min() > 0.6


def test_the_search_saves_crossings(monkeypatch):
    found = []
    for trials in (0, 250):
        monkeypatch.setattr("dgl_lara.explanation.plot.layout.MAX_TRIALS", trials)
        total = 0
        for seed in range(4):
            graph = nx.connected_watts_strogatz_graph(24, 4, 0.3, seed=seed)
            edges = np.array(graph.edges)
            hop = np.array([nx.shortest_path_length(graph, 0, node) for node in range(24)])
            total += crossings(rings(hop, edges), edges)
        found.append(total)
    assert found[1] < found[0]


def test_forces_untangle_rings_and_separate_parts():
    anthracene = nx.Graph([(i, (i + 1) % 14) for i in range(14)] + [(1, 12), (3, 10), (5, 8)])
    anthracene.add_edge(20, 21)
    graph = nx.convert_node_labels_to_integers(anthracene)
    edges = np.array(graph.edges)
    position = forces(16, edges)
    assert crossings(position, edges) == 0
    length = np.linalg.norm(position[edges[:, 0]] - position[edges[:, 1]], axis=1)
    assert length.min() > 0.5 and length.max() < 1.6
    assert np.ptp(position[:14, 0]) > np.ptp(position[:14, 1])  # lies on its long side
    distance = np.linalg.norm(position[14:, None] - position[None, :14], axis=2)
    assert distance.min() > 1


def test_tangled_layouts_start_again(monkeypatch):
    """Rings of six that share bonds, with branches."""
    drawn, graph = np.random.default_rng(2), nx.cycle_graph(6)
    while (new := len(graph)) < 24:
        if drawn.random() < 0.4:
            u, v = list(graph.edges)[drawn.integers(graph.number_of_edges())]
            nx.add_path(graph, [u, *range(new, new + 4), v])
        else:
            graph.add_edge(int(drawn.integers(new)), new)
    edges = np.array(graph.edges)
    assert crossings(forces(new, edges), edges) == 0
    monkeypatch.setattr("dgl_lara.explanation.plot.layout.NUM_RANDOM_STARTS", 0)
    assert crossings(forces(new, edges), edges) > 0


def test_many_parts_form_rows():
    position = forces(30, np.zeros((0, 2), int))
    assert len(np.unique(position[:, 0])) < 12 and len(np.unique(position[:, 1])) > 2
    assert (np.linalg.norm(position[:, None] - position[None], axis=2) + 9 * np.eye(30)).min() > 1


def test_molecules_with_rdkit():
    pytest.importorskip("rdkit", reason="rdkit is not installed: molecules are laid out by forces")
    ring = np.array([(i, (i + 1) % 6) for i in range(6)])
    position = forces(6, ring, ["C"] * 6)
    assert np.linalg.norm(position, axis=1) == pytest.approx(np.ones(6), abs=0.02)


# --- who is drawn -----------------------------------------------------------------------------------------------


def test_small_neighbourhoods_are_drawn_in_full():
    scene = scene_of([3, 1, -2], [(0, 1), (1, 2)], [0, 1, 2])
    assert scene.names == ["0", "1", "2"] and scene.rest == "" and scene.target == 0
    assert scene.max_score == 2  # not the target's own 3
    assert scene.edges.tolist() == [[0, 1], [1, 2]] and not scene.one_way.any()


def test_strong_players_are_drawn_with_their_path_to_the_target():
    """The strongest of 300 players is two hops away, behind a weak one."""
    pairs = [(0, node) for node in range(1, 200)] + [(node - 100, node) for node in range(200, 300)]
    score = [5.0] + [0.01 + node / 1e6 for node in range(1, 300)]
    score[250] = -4.0
    scene = scene_of(score, pairs, [0] + [1] * 199 + [2] * 100, max_nodes=20)
    assert len(scene.index) == 20 and {0, 150, 250} <= set(scene.index)
    assert scene.rest.startswith("280 further ") and "+0.01" in scene.rest
    graph = nx.Graph(scene.edges.tolist())
    assert nx.is_connected(graph) and len(graph) == 20


@pytest.mark.long
def test_graphs_are_drawn_in_full_up_to_a_size():
    ring = [(node, (node + 1) % 300) for node in range(300)]
    assert len(scene_of(np.ones(100), ring[:99], None, max_nodes=20).index) == 100
    assert len(scene_of(np.arange(300), ring, None, max_nodes=20).index) == 150


def test_one_way_edges():
    scene = compose(["0", "1", "2"], None, np.ones(3), np.array([0, 1, 1]), None, np.array([[1, 0], [2, 0], [0, 2]]), 9)
    found = {tuple(edge): way for edge, way in zip(scene.edges.tolist(), scene.one_way.tolist(), strict=True)}
    assert found == {(1, 0): True, (0, 2): False}


def test_molecule_or_not():
    assert GRAPH.is_molecule(["C", "Cl", "H"]) and not GRAPH.is_molecule(["C", "Ann"])
    assert not NODE.is_molecule(["C", "Cl", "H"])
    scene = scene_of([1, 2], [(0, 1)], None, labels=["C", "O"], molecule=True, named=[1])
    assert scene.marks == ["C", "1"]  # named atoms are numbered


# --- what is drawn ----------------------------------------------------------------------------------------------


def test_colours_are_centred_and_distinct_without_red_and_green():
    low, middle, high = (np.array(COLOURS(x)[:3]) for x in (0.0, 0.5, 1.0))
    assert middle.min() > 0.95
    assert low[2] - low[0] > 0.4 and high[0] - high[2] > 0.4  # blue against, orange for


def texts(path):
    return [element.text or "" for element in ET.parse(path).iter() if element.tag.endswith("}text")]


def test_svg_has_every_player_and_the_sentence(tmp_path):
    one = exact_explanations(gcn_game(), [5])[0]
    one.save(tmp_path / "a.svg")
    found = texts(tmp_path / "a.svg")
    assert set(map(str, one.players.tolist())) <= set(found)
    joined, note = " ".join(found), one.meaning
    assert one.in_words()[:30] in joined and "target, " in joined and note in joined
    assert "ground truth" not in joined
    one.save(tmp_path / "b.svg")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_ground_truth_is_outlined(tmp_path):
    one, green = exact_explanations(gcn_game(), [5]), []
    others = one.players.player[one.players.player != 5]
    for count in (1, 2, 3):
        motif = torch.full((12,), -1)
        motif[5] = motif[others[: count - 1]] = 3
        motif[others[-1]] = 4  # another motif than the target's
        one.named(motif=motif)[0].save(tmp_path / "a.svg")
        assert "ground truth" in texts(tmp_path / "a.svg")
        green.append((tmp_path / "a.svg").read_text().lower().count("stroke: #009e73"))
    assert np.diff(green).tolist() == [1, 1] and len(others) > 3


def test_hop_lines_stay_within_the_picture():
    """Full circles if nodes are all around, else the part with nodes."""
    hop = np.array([0, 1, 1, 2])
    scene = scene_of([3, 1, 1, 1], [(0, 1), (0, 2), (1, 3)], hop)
    (low, high), lines = scene.bounds, scene.hop_lines
    assert len(lines) == 2 and all((line >= low).all() and (line <= high).all() for line in lines)
    alone = lines[1]  # one node: a short stretch through it
    assert np.linalg.norm(np.diff(alone, axis=0), axis=1).sum() == pytest.approx(1.3, abs=0.01)
    assert np.linalg.norm(alone - scene.position[3], axis=1).min() < 0.05
    bulging = replace(
        scene_of([3, 1, 1], [(0, 1), (0, 2)], [0, 1, 1]), position=np.array([[0, 0], [2, 0.1], [-2, 0.1]])
    )
    assert bulging.hop_lines[0].max(axis=0)[1] == pytest.approx(2, abs=0.01) and 2 <= bulging.bounds[1][1] < 2.2
    wheel = scene_of([1] * 9, [(0, node) for node in range(1, 9)], np.array([0] + [1] * 8))
    np.testing.assert_allclose(wheel.hop_lines[0][0], wheel.hop_lines[0][-1], atol=1e-9)


def test_hop_labels_do_not_cover_nodes():
    around = list(range(1, 14))
    for pairs, hop in (
        ([(0, 1), (1, 2), (2, 3)], [0, 1, 2, 3]),
        ([(0, node) for node in around], [0] + [1] * 13),  # a full ring
        ([*((0, node) for node in around), (5, 14)], [0] + [1] * 13 + [2]),
    ):
        scene = scene_of([1] * len(hop), pairs, hop)
        assert [words for _, words in scene.hop_labels] == ["1 hop", "2 hops", "3 hops"][: max(hop)]
        for ring, (place, _) in enumerate(scene.hop_labels, start=1):
            assert np.linalg.norm(scene.position - place, axis=1).min() > 0.45
            own = np.linalg.norm(scene.position[scene.hop == ring], axis=1).max()
            assert own - 0.01 <= np.linalg.norm(place) < own + 0.6  # on its line, or before the next one
    assert scene_of([1, 1], [(0, 1)], None).hop_labels == []


def test_named_players_are_always_drawn_and_marked():
    count = 90
    score = [3, *np.linspace(1, -5, count - 1)]
    pairs, hop = [(0, node) for node in range(1, count)], [0] + [1] * (count - 1)
    assert 15 not in scene_of(score, pairs, hop).index
    scene = scene_of(score, pairs, hop, named=[15])
    assert len(scene.index) == 40 and "15" in scene.marks


def test_removed_players_are_listed_below_the_picture(opened, tmp_path):
    one = opened("ba-shapes", 0)[0]
    one.save(tmp_path / "a.svg")
    below = f": {', '.join(one.removed)}."
    assert len(one.removed) == 5 and below in " ".join(texts(tmp_path / "a.svg"))
    assert {*one.removed} <= {*texts(tmp_path / "a.svg")} and below in one.to_html()


def test_named_and_removed_atoms_have_numbers(opened, tmp_path):
    one = opened("molecules", 4)[0]
    named = [one.player_names()[place] for place in one.sentence.named]
    assert named and all(name in one.in_words() for name in named)
    assert one.removed and not {*one.removed} <= {*named}
    named += one.removed
    one.save(tmp_path / "a.svg")
    found = texts(tmp_path / "a.svg")
    assert set(named) <= set(found) and "C" in found  # the others are plain symbols
    assert not [text for text in found if re.fullmatch(r"[A-Z][a-z]?\d+", text) and text not in named]


def test_players_of_another_class_are_dashed(tmp_path):
    one = exact_explanations(gcn_game(), [5])[0]
    others = sum(label != one.explained_class for label in one.player_classes())
    one.save(tmp_path / "a.svg")
    assert 0 < others < len(one)
    assert (tmp_path / "a.svg").read_text().count("stroke-dasharray") == others + 1  # and the legend's
    (label,) = [text for text in texts(tmp_path / "a.svg") if text.startswith("dashed: ")]
    assert label.endswith(f" {one.explained_class}")


def test_the_legend_of_a_contrast(tmp_path):
    """Nodes that are not of the explained class are dashed."""
    batch = exact_explanations(gcn_game(), [5])
    requested = int(batch.explained_class[0])
    one = replace(batch, rather_than=(batch.explained_class + 1) % batch.game.num_classes)[0]
    one.save(tmp_path / "a.svg")
    (label,) = [text for text in texts(tmp_path / "a.svg") if text.startswith("dashed: ")]
    assert label.endswith(f" {requested}")
    assert f'"class_name":"{requested}"' in one.to_html()


@pytest.mark.parametrize("players", [3, 9, 36])
def test_labels_are_neither_cropped_nor_on_each_other(players):
    names = [f"PERSON No {1000 + row}" for row in range(players)]
    scene = scene_of([1] * players, [(0, row) for row in range(1, players)], [0] + [1] * (players - 1), labels=names)
    figure = draw(scene, "A sentence.", "red", "logit", "A note.")
    page = figure.bbox
    colours = figure.axes[1].get_window_extent()
    boxes = [text.get_window_extent() for text in figure.axes[0].texts]
    marked = players if players <= FULLY_MARKED_NODES else MARKED_NODES
    assert len(boxes) == marked - 1 + 1  # the legend names the target; "1 hop"
    assert figure.legends[0].get_texts()[0].get_text().startswith(f"target {names[0]},")
    assert all(box.x0 >= page.x0 and box.y0 >= page.y0 and box.y1 <= page.y1 for box in boxes)
    assert all(box.x1 <= colours.x0 for box in boxes)
    assert not [pair for pair in combinations(boxes, 2) if pair[0].overlaps(pair[1])]


def test_a_picture_is_cropped_to_its_content():
    """All nodes are on one side of the target."""
    scene = scene_of([1] * 4, [(0, 1), (1, 2), (2, 3)], [0, 1, 2, 3])
    (low, high), (x, y) = scene.bounds, scene.position.T
    assert max(np.ptp(x), np.ptp(y)) == pytest.approx(3)
    assert ((high - low) < (np.ptp(x) + 1.7, np.ptp(y) + 1.7)).all()


def test_a_long_legend_is_not_cropped():
    types = ["a node type with a long name", "another node type", "a third type"]
    scene = scene_of([1, 1, 1], [(0, 1), (1, 2)], [0, 1, 2], node_types=types, truth=np.ones(3, bool))
    figure = draw(scene, "A sentence.", "red", "logit", "A note.")
    figure.canvas.draw()
    assert figure.legends[0].get_window_extent().x1 <= figure.bbox.x1


@pytest.mark.long
def test_real_pictures_of_every_size(opened, tmp_path):
    """A hub with hundreds of players, a node of a motif, a molecule."""
    for place, one in enumerate([*opened("ba-shapes", 0, 512), *opened("molecules", 4)]):
        one.save(tmp_path / f"{place}.png")
        assert (tmp_path / f"{place}.png").read_bytes().startswith(b"\x89PNG")
    hub = opened("ba-shapes", 0)[0]
    assert len(hub) > 300 and len(scene_of_explanation(hub, 40).index) == 40
    assert scene_of_explanation(hub, 40).rest


def test_an_isolated_target_can_be_drawn(tmp_path):
    game = gcn_game(nodes=30, edges=8)
    lonely = int((game.graph.in_degrees() == 0).nonzero()[0])
    one = exact_explanations(game, [lonely])[0]
    one.save(tmp_path / "a.svg")
    assert one.sentence.outcome == ALONE and one.in_words() in " ".join(texts(tmp_path / "a.svg"))
