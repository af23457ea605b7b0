"""Explanations: one of a batch, tables, graphs, files, and sentences with figures of the model."""

import importlib
import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import dgl
import networkx as nx
import pandas as pd
import pytest
import torch
from click.testing import CliRunner
from codes import raises, refused
from games import PooledGCN, SmallGCN, gcn_game, random_graph, star_game
from processes import command

import dgl_lara
from dgl_lara import LARA, Explanation, Explanations, explain
from dgl_lara.attribution.exact import exact
from dgl_lara.cli import main
from dgl_lara.datasets.dataset import Dataset
from dgl_lara.explanation.sentence import (
    ALONE,
    CARRIED,
    CONTRADICTED,
    INDEPENDENT,
    OPPOSED,
    SentenceInput,
    build_sentence,
    number,
)
from dgl_lara.explanation.trust import how_sure
from dgl_lara.game.game import Game
from dgl_lara.game.tasks import NODE
from dgl_lara.runs.open import open_run
from dgl_lara.training.config import TrainingConfig

QUICK = TrainingConfig(hidden=16, dim=5, masks=4, steps=20)


def exact_explanations(game, targets):
    players = game.players(torch.tensor(targets))
    return Explanations(players, exact(game, players), game.explained_class[players.targets], game.task, "exact", game)


@pytest.fixture
def star():
    """Target 0 with value relu(sum of its neighbours 1, 2, 3 - 2)."""
    return exact_explanations(star_game(), [0])[0]


# --- one of a batch ---------------------------------------------------------------------------------------------


def test_index_and_iteration_agree_with_the_batch():
    batch = exact_explanations(gcn_game(), [5, 2, 7])
    frame = batch.to_frame()
    assert [one.target for one in batch] == [5, 2, 7] and batch[-1].target == 7
    for one in batch:
        mine = frame[frame.target == one.target].sort_values("rank")
        assert one.to_frame().player.tolist() == mine.player.tolist()
        assert one.to_frame().score.tolist() == mine.score.tolist()
        assert one.explained_class == mine.explained_class.iloc[0]
    with pytest.raises(IndexError):
        batch[3]
    with pytest.raises(TypeError):
        batch[0.5]
    mask = torch.tensor([True, False, True])
    assert [one.target for one in batch.select(mask)] == [5, 7]
    torch.testing.assert_close(batch.select(mask).scores, torch.cat([batch[0].scores, batch[2].scores]))


def test_one_call_trains_and_explains():
    graph, features = random_graph(40, 60, 0), torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    one = explain(SmallGCN(), graph, features, [3], hops=2, config=QUICK)[0]
    again = LARA(SmallGCN(), graph, features, hops=2, config=QUICK).fit(range(40)).explain([3])[0]
    assert isinstance(one, Explanation) and one.target == 3
    torch.testing.assert_close(one.scores, again.scores)
    assert {"LARA", "explain", "Explanation", "Explanations"} <= set(dgl_lara.__all__)


def test_top_is_best_first(star):
    top = star.top(3)
    assert top.player.tolist() == [0, 3, 2] and top["rank"].tolist() == [1, 2, 3] and top.hop.tolist() == [0, 1, 1]
    assert top.score.tolist()[1:] == pytest.approx([1.125, 0.625])  # half of DESIGN's: the target plays too


# --- outputs of the model ---------------------------------------------------------------------------------------


def test_curves_are_outputs_of_the_model(star):
    kept, removed = star.curves([0, 1, 2, 3])
    assert kept == pytest.approx([0, 1, 3, 4])  # relu(sum - 2) of {}, {3}, {3, 2}, {3, 2, 1}
    assert removed == pytest.approx([4, 1, 0, 0])
    assert star.output == pytest.approx(4)


def test_curves_of_a_graph_remove_real_nodes():
    graph = dgl.batch([random_graph(6, 9, seed) for seed in (1, 2)])
    features = torch.randn(12, 3, generator=torch.Generator().manual_seed(3))
    model = PooledGCN()
    one = exact_explanations(Game.create(model, graph, features, task="graph", hops=2), [1])[0]
    best = one.top(2).player
    left = torch.tensor([node for node in range(6, 12) if node not in set(best)])
    alone = dgl.node_subgraph(graph, left)
    alone.set_batch_num_nodes(torch.tensor([4]))
    alone.set_batch_num_edges(torch.tensor([alone.num_edges()]))
    expected = model(alone, features[left])[0, one.explained_class].detach()
    assert one.curves([2])[1] == pytest.approx([float(expected)], rel=1e-5)


# --- graphs and files -------------------------------------------------------------------------------------------


def test_subgraph_carries_scores_and_numbers():
    game = gcn_game()
    one = exact_explanations(game, [5])[0]
    graph = one.subgraph()
    ids = graph.ndata[dgl.NID]
    assert ids.tolist() == one.players.tolist()
    assert ids[graph.ndata["target"]].tolist() == [5] and graph.ndata["hop"][graph.ndata["target"]].tolist() == [0]
    torch.testing.assert_close(graph.ndata["score"], one.scores)
    src, dst = graph.edges()
    assert len(src) > 0 and game.graph.has_edges_between(ids[src], ids[dst]).all()
    assert not game.graph.ndata  # the explained graph does not change


def test_networkx_and_json_agree():
    one = exact_explanations(gcn_game(), [5])[0]
    graph, content = one.to_networkx(), json.loads(one.to_json())
    assert graph.number_of_edges() == one.subgraph().num_edges() == len(content["edges"])
    assert graph.nodes[5]["target"] is True and sum(graph.nodes[node]["target"] for node in graph) == 1
    best = content["players"][0]
    assert graph.nodes[best["node"]]["rank"] == best["rank"] == 1
    assert content["explained_class"] == content["predicted_class"] == one.explained_class
    assert content["output"] == pytest.approx(one.output) and content["value"] == "logit"


def test_every_file_reads_back(tmp_path):
    one = exact_explanations(gcn_game(), [5])[0]
    for ending in (".csv", ".json", ".graphml"):
        one.save(tmp_path / f"e{ending}")
    pd.testing.assert_frame_equal(
        pd.read_csv(tmp_path / "e.csv"), one._file_frame(), check_dtype=False, check_exact=False, rtol=1e-5
    )
    assert json.loads((tmp_path / "e.json").read_text()) == one.to_dict()
    graph = nx.read_graphml(tmp_path / "e.graphml", node_type=int)
    assert dict(graph.nodes(data=True)) == dict(one.to_networkx().nodes(data=True))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["e.csv", "e.graphml", "e.json"]


def test_files_have_classes_with_their_names(quick_runs, own_folders, tmp_path):
    """A contrast differs from the explanation of a class."""
    lara = open_run(quick_runs["ba-shapes"]).trained()
    found = lara.explain([512, 600], [(2, 1), (2, 1)]).named(classes=["base", "top", "middle", "bottom"])
    one = found[0]
    for ending in (".csv", ".json", ".graphml"):
        one.save(tmp_path / f"e{ending}")
    content, frame = json.loads((tmp_path / "e.json").read_text()), pd.read_csv(tmp_path / "e.csv")
    assert content["value"] == "logit difference" and content["sentence"] == one.in_words()
    classes = {"explained_class_name": "middle", "rather_than_name": "top"}
    assert classes.items() <= content.items()
    for held in (content, nx.read_graphml(tmp_path / "e.graphml").graph):
        assert (held["explained_class"], held["rather_than"]) == (2, 1)
    for held in (frame, found.to_frame()):
        assert set(held.explained_class) == {2} and set(held.rather_than) == {1}
    assert set(frame.target) == {512} and frame.player.tolist() == one.to_frame().player.tolist()
    alone, beyond = lara.explain([512]), {"rather_than", "explained_class_name"}
    assert not beyond & {*alone.to_frame(), *alone[0].to_dict()}


def test_atoms_have_the_same_names_in_files_and_sentences(opened, tmp_path):
    (one,) = opened("molecules", 7)
    one.save(tmp_path / "e.csv")
    frame, players = pd.read_csv(tmp_path / "e.csv"), json.loads(one.to_json())["players"]
    called = dict(zip(one.players.tolist(), one.player_names(), strict=True))
    assert {player: called[player] for player in frame.player} == dict(zip(frame.player, frame.label, strict=True))
    assert {one["node"]: one["label"] for one in players} == called


def test_unknown_ending_and_missing_game(tmp_path):
    one = exact_explanations(gcn_game(), [5])
    with raises("explanation.file_ending", got="e.txt"):
        one[0].save(tmp_path / "e.txt")
    orphan = Explanations(one.players, one.scores, one.explained_class, NODE, "hand")[0]
    assert len(orphan.top(2)) == 2
    with raises("explanations.no_game"):
        orphan.in_words()


# --- in words ---------------------------------------------------------------------------------------------------


def facts(score, own=0.0, **changes):
    """Facts about a target whose value falls by the score of each removed player."""
    defaults = {
        "subject": "Node 7",
        "explained_class": "2",
        "predicted_class": "2",
        "value": "logit",
        "output": 4.2,
        "null": 0.1,
        "noun": "neighbour",
        "within": " within 3 hops",
        "names": [str(10 + i) for i in range(len(score))],
        "roles": ["its 1-hop neighbour"] * len(score),
        "score": score,
        "own": own,
        "without": lambda removed: 4.2 - sum(score[i] for i in removed),
    }
    return SentenceInput(**{**defaults, **changes})


def after(**values):
    """Return what the model gives without at most five players, and without all: after(top=2.89, all=2.1)."""
    return lambda removed: values["top" if len(removed) <= 5 else "all"]


MANY = [0.12, 0.1, 0.09, *([0.02] * 165)]  # three with .31 together, all 3.61
LIKED = {
    "clauses": ["which they liked", "who liked it"],
    "recommended_to": "user 3",
    "value": "score",
    "noun": "player",
}
CONTRAST = {"rather_than": "1", "value": "logit difference"}


@pytest.mark.parametrize(
    ("given", "outcome", "named", "removed"),
    [
        (facts([2, 1.9, 0.5, 0.1]), CARRIED, [0, 1], []),  # half of the support, and what is similar
        (facts([2, 1.9, 0.5, 0.4, 0.3, 0.2, -3]), CARRIED, [0, 1, 6], [0, 1, 2, 3, 4]),  # a stronger opponent
        (facts([2, 1.8, -1.9]), CARRIED, [0, 1, 2], [0, 1]),
        (facts([2, 1.8, -1.7]), CARRIED, [0, 1], [0, 1]),  # a weaker opponent
        (facts([1, 0.88, -0.1]), CARRIED, [0], [0, 1]),  # the second is not similar
        (facts([1] * 8), CARRIED, [0, 1, 2], [0, 1, 2, 3, 4]),
        (facts([2, -1, *[-3] * 5]), CARRIED, [0, 6, 5, 4], []),  # equal opponents
        (facts([1, 0.01, 0.009, -0.1]), CARRIED, [0], [0, 1]),  # the third is faint
        (facts([0.005, 0.004, 0.004, -0.01], own=7.3, without=after(top=2)), CARRIED, [], [0, 1, 2]),
        (facts([0.005, -0.4], own=7.3, without=after(top=2)), CARRIED, [1], []),
        (facts(MANY, own=3.35, output=2.97, without=after(top=2.89, all=1.2)), CARRIED, [], [0, 1, 2, 3, 4]),
        (facts([1, 0.5], explained_class="3"), CARRIED, [0], []),
        (facts([-0.1, -0.2]), OPPOSED, [1, 0], []),
        (facts([-0.009, -2]), OPPOSED, [1], []),
        (facts(MANY, own=1, without=after(top=4.1, all=6)), OPPOSED, [], [0, 1, 2, 3, 4]),
        (facts([0, 0, 0]), INDEPENDENT, [], []),
        (facts(MANY, own=3.35, output=2.97, without=after(top=2.89, all=2.9)), INDEPENDENT, [], []),
        (facts([1] * 9, without=after(top=4.2, all=4.2)), INDEPENDENT, [], []),
        (facts([-1, -2], without=after(top=4.3)), INDEPENDENT, [], []),
        (facts([1, 0.5], explained_class="0", without=after(top=4.201)), INDEPENDENT, [], []),
        (facts([1, 0.9, 0.8, -1], without=after(top=9)), CONTRADICTED, [0, 1], [0, 1, 2]),
        (facts([-1, -2], own=9, without=after(top=3)), CONTRADICTED, [1, 0], []),
        (facts([-1, -2, -3], without=after(top=3)), CONTRADICTED, [2, 1, 0], []),
        (facts([]), ALONE, [], []),
        (facts([float("nan")]), ALONE, [], []),
    ],
)  # fmt: skip
def test_a_sentence_has_an_outcome_and_names_players(given, outcome, named, removed):
    found = build_sentence(given)
    assert (found.outcome, list(found.named), list(found.removed)) == (outcome, named, removed)
    assert all(given.names[player] in found.text for player in named)


GOLDEN = {
    "carried by two": facts([2, 1.9, 0.5, 0.1], roles=["its 1-hop neighbour", "its 2-hop neighbour"] * 2),
    "carried by itself first": facts([1, 0.5, 0, 0], own=3),
    "itself is named last": facts([2, 1.9, 1.8], own=1.8, without=after(top=1)),
    "itself does not count below null": facts([1, 0], own=3, null=5.0),
    "equal scores": facts([3, *[1] * 7], noun="atom", roles=["atom"] * 8, subject="Graph 7"),
    "despite": facts([1, -1.1438, -1.144, -1.1442], own=-9),
    "carried by all together": facts(MANY, own=3.35, output=2.97, without=after(top=2.89, all=1.2)),
    "another class": facts([1, 0], explained_class="3"),
    "a contrast": facts([1, 0], explained_class="2", **CONTRAST),
    "a contrast of other classes": facts([1, 0.5], explained_class="0", without=after(top=4.1), **CONTRAST),
    "hardly depends": facts(MANY, own=3.35, output=2.97, without=after(top=2.89, all=2.9)),
    "contradicted": facts([1, 0.9, 0.8, 0.7, 0.6, 0.5], own=9, without=after(top=5)),
    "contradicted opponents": facts([-1, -2], explained_class="rare", without=after(top=3)),
    "opposed": facts([-0.1, -0.2], own=1),
    "alone": facts([]),
    "a recommendation": facts([1, 0.5], subject="Film 7", **LIKED),
    "an output": facts([1, 0.9], has_classes=False, value="output", subject="Graph 7"),
}


def test_full_sentences():
    text = "".join(f"{name}: {build_sentence(given).text}\n" for name, given in GOLDEN.items())
    assert text == (Path(__file__).parent / "golden" / "sentences.txt").read_text()


def test_numbers_do_not_hide_small_values():
    assert [number(value) for value in (4.196, -0.3, 0, 0.0042)] == ["4.20", "-0.30", "0.00", "4.2e-03"]


def test_confidence_is_never_certain():
    texts = [how_sure(True, share, "neighbour") for share in (0.994, 0.996, 1.0)]
    assert " 99%" in texts[0] and all("over 99%" in text for text in texts[1:])
    assert len({how_sure(True, share, "atom") for share in (None, 0.18, float("nan"))}) == 2
    assert "only 18%" in how_sure(False, 0.18, "atom") and "only" not in how_sure(False, 0.6, "atom")


def test_files_have_source_and_confidence(opened, tmp_path):
    found = opened("ba-shapes", 512)
    known = {"source": found.source[0], "confidence": found.confidence.item()}
    assert known["source"] == "corrected" and 0 < known["confidence"] < 1
    for ending in (".csv", ".json", ".graphml"):
        found[0].save(tmp_path / f"e{ending}")
    frame, content = pd.read_csv(tmp_path / "e.csv"), json.loads((tmp_path / "e.json").read_text())
    assert set(frame.source) == {known["source"]} and frame.columns.tolist()[-2:] == ["source", "confidence"]
    assert frame.confidence.to_numpy() == pytest.approx(known["confidence"])
    for held in (content, nx.read_graphml(tmp_path / "e.graphml").graph):
        assert held["source"] == known["source"] and held["confidence"] == pytest.approx(known["confidence"])


def test_unknown_confidence_is_left_out():
    found = exact_explanations(gcn_game(), [5])
    alone = replace(found, variance=torch.full_like(found.scores, torch.nan), corrected=torch.tensor([False]))[0]
    assert "source" not in found[0].to_dict() and "NaN" not in alone.to_json()
    assert alone.to_dict()["source"] == "amortised" and "confidence" not in alone.to_dict()


def test_figures_in_sentences_are_the_models():
    """Repeat the removal by hand for every node of a small graph."""
    game, checked = gcn_game(), 0
    for one in exact_explanations(game, list(range(12))):
        frame = one.to_frame()
        best = frame[(frame.player != one.target) & (frame.score > 0)].player[:5].tolist()
        if best and one.sentence.outcome in (CARRIED, CONTRADICTED):
            left = torch.tensor([node for node in range(12) if node not in best])
            logits = game.f(dgl.node_subgraph(game.graph, left), game.features[left])
            after = logits[left.tolist().index(one.target), one.explained_class].item()
            figures = [float(figure) for figure in re.findall(r"-?\d+\.\d+", one.in_words())]
            assert figures[-2:] == pytest.approx([one.output, after], abs=0.006)
            checked += 1
    assert checked >= 5


def test_a_real_run_has_a_sentence(opened):
    assert re.match(r"Node 512 is class \d .*(lowers|raises|leaves) its logit", opened("ba-shapes", 512)[0].in_words())


def test_atoms_are_called_by_symbol_and_place(opened):
    one = opened("molecules", 4)[0]
    assert re.match(r"Graph 4 is class [01].* atoms? [A-Z][a-z]?\d+", one.in_words())
    first = int(one.players[0])
    symbols = one.batch.names.labels
    assert first > 0 and one.player_names()[0] == f"{symbols[first]}0"


def test_own_labels(star):
    named = star.batch.named(labels=["me", "Ann", "Bob", "Cy"])[0]
    assert "me (0)" in named.in_words() and "Cy (3)" in named.in_words()
    assert named.top(2).label.tolist() == ["me", "Cy"]
    with raises("names.count", name="labels", got=3, count=4):
        star.batch.named(labels=["me", "Ann", "Bob"])
    with raises("names.count", name="classes", got=1, count=2):
        star.batch.named(classes=["good"])


def test_long_names_are_shortened_in_sentences(star, monkeypatch):
    """Files and lists of names have the full name."""
    long = "A very long title of a film that nobody would ever want to read in full (1997)"
    named = star.batch.named(labels=["me", "Ann", "Bob", long])[0]
    assert f" {long[:39]}… (3)" in named.in_words()
    assert f"{long} (3)" in named.player_names() and long in named.to_frame().label.tolist() and long in named.to_json()
    explain_single = importlib.import_module("dgl_lara.cli.explain_single")
    monkeypatch.setattr(explain_single, "width", lambda: 60)
    lines = explain_single._table(named, 10).splitlines()
    assert "…" in "".join(lines) and max(map(len, lines)) <= 60 and len(lines[1].split("  ")[0]) > 30


def test_class_names_are_used_everywhere(star, tmp_path):
    named = star.batch.named(classes=["a fraud", "fine"])[0]
    assert "class a fraud " in named.in_words()
    assert '"class":"a fraud"' in named.to_html() and "class a fraud" in named.to_html()
    named.save(tmp_path / "a.svg")
    assert "a fraud (logit)" in (tmp_path / "a.svg").read_text()


def test_classes_of_players_are_predictions():
    game = gcn_game()
    one = exact_explanations(game, [5])[0]
    assert one.player_classes() == game.full_logits[one.players].argmax(1).tolist()
    assert len(set(one.player_classes())) > 1


# --- the command ------------------------------------------------------------------------------------------------


def run(*words):
    return CliRunner().invoke(main, ["explain", *map(str, words)])


def test_command_explains_one_node(quick_runs, opened, tmp_path):
    picture, out = tmp_path / "n.svg", tmp_path / "n.json"
    result = run("--run", quick_runs["ba-shapes"], "--node", 512, "--picture", picture, "--out", out, "--top", 3)
    assert result.exit_code == 0, result.output
    one = opened("ba-shapes", 512)[0]
    lines = result.stdout.splitlines()
    assert lines[0] == one.in_words()
    assert lines[1] == one.how_sure()
    lines = lines[1:]
    assert lines[2].split() == ["node", "hop", "score", "rank", "class"]
    frame = one.top(len(one))
    against = frame[frame.score < 0].tail(3)  # the strongest that speak against the class are shown too
    against = against[against["rank"] > 3]
    shown, between = [*one.top(3).player, *against.player], len(one) - 3 - len(against)
    assert lines.pop(4 + 3).split() == [f"({between}", "more)"]
    assert len(against) and [line.split()[0] for line in lines[4 : 4 + len(shown)]] == list(map(str, shown))
    classes = dict(zip(one.players.tolist(), map(str, one.player_classes()), strict=True))
    assert [line.split()[-1] for line in lines[4 : 4 + len(shown)]] == [classes[player] for player in shown]
    below = [one.removed_in_words] if one.removed else []
    below.append(one.meaning)
    assert lines[4 + len(shown) :][: len(below)] == below
    assert lines[-1] == f"written: {picture}, {out}" and lines[-2] == ""
    assert picture.read_text().startswith("<?xml") and json.loads(out.read_text())["target"] == 512


def test_command_explains_several_nodes_each_with_files_of_its_own(quick_runs, opened, tmp_path):
    words = ["--run", quick_runs["ba-shapes"], "--node", 512, "--node", 5, "--node", 512, "--top", 1]
    pictures = ["--picture", tmp_path / "n.svg", "--picture", tmp_path / "n.html"]
    result = run(*words, *pictures, "--out", tmp_path / "n.csv", "--out", tmp_path / "n.json")
    assert result.exit_code == 0, result.output
    printed = [line for line in result.stdout.splitlines() if line.startswith("Node ")]
    assert printed == [one.in_words() for one in opened("ba-shapes", 512, 5)]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"n-{node}.{ending}" for node in (5, 512) for ending in ("csv", "html", "json", "svg")
    ]
    assert result.stdout.count(opened("ba-shapes", 512)[0].meaning) == 1


def test_command_names_its_run(quick_runs, tmp_path, monkeypatch, notices):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(quick_runs["ba-shapes"], "runs/mine")
    assert run("--node", 5).exit_code == 0 and notices.has("run.newest", folder=Path("runs/mine"))
    assert "runs/mine" not in run("--node", 5, "--run", "runs/mine").stderr
    assert "runs/mine" in run("--node", 5, "--run", "runs/mine", "-v").stderr


@pytest.mark.long
def test_a_closed_pipe_does_not_stop_the_picture(quick_runs, tmp_path):
    """Read the first line of a real process, then close the pipe."""
    picture = tmp_path / "n.svg"
    process = command("explain", "--run", quick_runs["ba-shapes"], "--node", 512, "--top", "all", "--picture", picture)
    first = os.read(process.stdout.fileno(), 20)
    process.stdout.close()
    assert first.startswith(b"Node 512 is class")
    assert process.wait() == 0 and "Traceback" not in process.stderr.read() and picture.exists()


def test_command_explains_another_class(quick_runs, opened):
    predicted = opened("ba-shapes", 512)[0].explained_class
    requested = (predicted + 1) % 4
    sentence = run("--run", quick_runs["ba-shapes"], "--node", 512, "--class", requested).stdout.splitlines()[0]
    assert f"class {predicted}" in sentence and re.search(rf"class[ -]{requested}\b", sentence)


def test_classes_can_be_given_by_name(quick_runs, monkeypatch):
    monkeypatch.setattr(Dataset, "names", property(lambda self: {"classes": ["road", "roof", "wall", "floor"]}))
    words = ["--run", quick_runs["ba-shapes"], "--node", 512]
    by_name = run(*words, "--class", "Roof", "--rather-than", "floor")
    by_number = run(*words, "--class", 1, "--rather-than", 3)
    assert by_name.exit_code == 0 and re.search("roof.*floor", by_name.stdout)
    assert by_name.stdout == by_number.stdout
    wrong = [run(*words, *option) for option in (["--class", "rof"], ["--class", 1, "--rather-than", "rof"])]
    wrong.append(CliRunner().invoke(main, ["summary", "--run", str(quick_runs["ba-shapes"]), "--class", "rof"]))
    for result, option in zip(wrong, ("--class", "--rather-than", "--class"), strict=True):
        refused(result, "classes.unknown")
        assert not result.stdout and option in result.stderr and "'roof'" in result.stderr


def test_command_explains_one_graph(quick_runs, tmp_path):
    result = run("--run", quick_runs["molecules"], "--graph", 7, "--picture", tmp_path / "g.html")
    assert result.exit_code == 0, result.output
    assert result.output.startswith("Graph 7 ")
    assert ["atom", "score", "rank"] in [line.split() for line in result.output.splitlines()]
    assert "<!doctype html>" in (tmp_path / "g.html").read_text()


@pytest.mark.parametrize(
    ("name", "words", "code"),
    [
        ("ba-shapes", ["--node", 700], "explain.target"),
        ("ba-shapes", ["--node", 3, "--class", 4], "classes.unknown"),
        ("ba-shapes", ["--node", 3, "--class", "roof"], "classes.unknown"),
        ("ba-shapes", ["--node", 3, "--picture", "a.gif"], "option.ending"),
        ("ba-shapes", ["--node", 3, "--out", "a.parquet"], "option.ending"),
        ("ba-shapes", ["--graph", 3], "explain.other_task"),
        ("molecules", ["--node", 3], "explain.other_task"),
        ("ba-shapes", [], "options.missing"),
        ("ba-shapes", ["--node", 3, "--all"], "options.exclusive"),
        ("ba-shapes", ["--nodes", "n.txt", "--split", "test"], "options.exclusive"),
        ("ba-shapes", ["--node", 3, "--pairs", "n.txt"], "options.exclusive"),
        ("ba-shapes", ["--all", "--out", "a.xlsx"], "option.ending"),
        ("ba-shapes", ["--all", "--picture", "a.png", "--out", "a.csv"], "options.requires"),
        ("ba-shapes", ["--split", "test", "--class", "ant", "--out", "a.csv"], "classes.unknown"),
        ("ba-shapes", ["--all"], "explain.one_out"),
        ("ba-shapes", ["--all", "--out", "a.csv", "--out", "b.csv"], "explain.one_out"),
        ("ba-shapes", ["--node", 3, "--out", "a.csv", "--out", "a.jsonl"], "option.ending"),
    ],
)
def test_command_refuses_with_a_code(quick_runs, name, words, code):
    result = run("--run", quick_runs[name], *words)
    refused(result, code)
    assert result.stdout == ""
