"""Fidelity by hand on the star, AUC against counting, agreement against references whose noise is known."""

from types import SimpleNamespace

import dgl
import numpy as np
import pandas as pd
import pytest
import torch
from codes import raises
from games import PooledGCN, gcn_game, random_graph, star_game

from dgl_lara._util.timing import seconds
from dgl_lara.attribution.exact import exact
from dgl_lara.baselines.random import Random
from dgl_lara.baselines.sampled import Sampled
from dgl_lara.errors import message
from dgl_lara.explanation import Explanations
from dgl_lara.game.game import Game
from dgl_lara.game.tasks import GRAPH, NODE
from dgl_lara.game.values import ClassQuery
from dgl_lara.metrics import METRICS
from dgl_lara.metrics.agreement import agreement
from dgl_lara.metrics.auc import auc, roc_auc
from dgl_lara.metrics.common.label_flips import masked_predictions
from dgl_lara.metrics.common.metric import EvalCase
from dgl_lara.metrics.common.reference import reference
from dgl_lara.metrics.fidelity import fidelity, fidelity_per_target
from dgl_lara.metrics.throughput import speed
from dgl_lara.reports.eval_tables import print_table


def star_explanation(scores):
    game = star_game()
    players = game.players(torch.tensor([0]))
    return game, Explanations(players, torch.tensor(scores), game.explained_class[players.targets], NODE, "hand")


def test_fidelity_by_hand():
    """Players 0 (target), 1, 2, 3 with features -, 1, 2, 3; f = relu(sum - 2); full value 4; null 0.
    Scores 4 > 3 > 2 > 1 for players 0, 3, 2, 1. Sparsity .5 keeps the top 2 of 4: {0, 3}."""
    game, explanation = star_explanation([4.0, 1.0, 2.0, 3.0])
    plus, minus = fidelity_per_target(game, explanation, (0.5, 0.75))
    torch.testing.assert_close(plus, torch.tensor([[4.0], [4.0]]))  # the target is removed: 4 - null
    torch.testing.assert_close(minus, torch.tensor([[4.0 - 1.0], [4.0 - 0.0]]))  # {0, 3}: relu(3 - 2); {0}: relu(-2)
    plus, minus = fidelity_per_target(game, explanation, (0.3, 0.7), keep_target=True)
    # three neighbours: .3 keeps round(2.1) = 2 of them, {3, 2}; .7 keeps 1, {3}
    torch.testing.assert_close(plus, torch.tensor([[4.0 - 0.0], [4.0 - 1.0]]))
    torch.testing.assert_close(minus, torch.tensor([[4.0 - 3.0], [4.0 - 1.0]]))


def test_sparsity_keeps_at_least_one_and_refuses_nonsense():
    _, explanation = star_explanation([4.0, 1.0, 2.0, 3.0])
    assert explanation.important(0.99).tolist() == [True, False, False, False]
    assert explanation.important(0.0).all()
    with raises("sparsity.range", got=1.2):
        explanation.important(1.2)


def test_rank_is_within_each_target():
    game = gcn_game(nodes=20, edges=24, seed=1)
    explanation = Random(game).explain(torch.tensor([4, 9]))
    frame = explanation.to_frame()
    for _, mine in frame.groupby("target"):
        assert sorted(mine["rank"]) == list(range(1, len(mine) + 1))
        assert mine.sort_values("rank").score.is_monotonic_decreasing


def test_lonely_target_is_left_out_of_the_kept_definition():
    graph = dgl.graph(([1, 2], [0, 0]), num_nodes=4)
    game = Game.create(lambda g, x: torch.cat([x, -x], 1) + dgl.ops.copy_u_sum(g, x), graph, torch.ones(4, 1), hops=1)
    table = fidelity(game, Random(game).explain(torch.tensor([0, 3])))
    counts = dict(zip(table.definition, table.targets, strict=True))
    assert counts == {"paper": 2, "kept": 1}
    assert not table["fidelity+"].isna().any()


def test_exact_phi_beats_random_in_fidelity():
    """Theorem 1, in the large: ranking by phi gives a larger Delta Fidelity than ranking at random."""
    game = gcn_game(nodes=60, edges=70, seed=5)
    targets = torch.arange(60)[game.players(torch.arange(60)).counts < 13]
    players = game.players(targets)
    assert len(targets) > 20
    ranked = Explanations(players, exact(game, players), game.explained_class[targets], NODE, "exact")

    def deltas(explanations):
        table = fidelity(game, explanations)
        return table[table.sparsity == "average"].set_index("definition")["delta"]

    assert (deltas(ranked) > deltas(Random(game).explain(targets)) + 0.3).all()


def test_standard_error_of_fidelity():
    game = gcn_game(nodes=60, edges=70, seed=5)
    explanation = Random(game).explain(torch.arange(60))
    plus, _ = fidelity_per_target(game, explanation, (0.5,))
    row = fidelity(game, explanation, (0.5,)).iloc[0]
    assert row["fidelity+"] == pytest.approx(plus.mean().item(), abs=1e-5)
    assert row["fidelity+ error"] == pytest.approx(plus.std().item() / 60**0.5, abs=1e-5)


def test_agreement_with_exact_phi():
    game = gcn_game(seed=2)
    targets = torch.arange(12)[game.players(torch.arange(12)).counts <= 12]
    against = reference(game, targets, 500, seed=0)
    assert against.description == message("reference.exact")
    perfect = Explanations(against.players, against.estimate.phi, game.explained_class[targets], NODE, "perfect")
    assert agreement(perfect, against)["R2"] == 1
    backwards = Explanations(against.players, -against.estimate.phi, game.explained_class[targets], NODE, "backwards")
    assert agreement(backwards, against)["rank correlation"] == pytest.approx(-1)


def test_agreement_with_a_sampled_reference_states_its_noise(monkeypatch):
    game = gcn_game(seed=2)
    targets = torch.arange(12)
    players = game.players(targets)
    phi = exact(game, players)
    monkeypatch.setattr("dgl_lara.metrics.common.reference.MAX_EXACT_PLAYERS", 2)
    against = reference(game, targets, 200, seed=0)
    assert against.description == message("reference.estimated", pairs=200)
    truth = Explanations(players, phi, game.explained_class, NODE, "exact")
    result = agreement(truth, against)
    noise = (against.estimate.phi - phi).square().mean()
    assert against.estimate.error.square().mean() == pytest.approx(noise.item(), rel=0.5)
    assert result["R2 corrected"] == pytest.approx(1, abs=0.01)
    assert result["R2"] < result["R2 corrected"]
    assert result["noise ceiling"] == pytest.approx(result["R2"], abs=0.02)


def notes(metric, **columns):
    return {code.partition(".")[2] for code in METRICS[metric].notes(pd.DataFrame([columns]))}


def test_notes_on_agreement():
    nodes = {"reference": "estimated", "noise ceiling": 0.8, "R2 corrected": 0.9, "neighbours only": 0.7}
    nodes["rank correlation"] = 0.8
    graphs = {name: value for name, value in nodes.items() if name != "neighbours only"}
    assert notes("agreement", **nodes) == {"reference", "ceiling"}
    assert notes("agreement", **graphs) == {"reference", "ceiling_of_graphs"}
    assert notes("agreement", **{**nodes, "noise ceiling": 1.0}) == {"reference"}
    assert "above_one" in notes("agreement", **{**graphs, "R2 corrected": 1.2})
    far_apart = {"R2 corrected": 0.99, "rank correlation": 0.5}
    assert "order_is_noise" in notes("agreement", **{**graphs, **far_apart})
    assert max(map(len, METRICS["agreement"].note(pd.DataFrame([nodes])).splitlines())) <= 120


@pytest.mark.parametrize(("definition", "code"), [("kept", "note_kept"), ("paper", "note")])
def test_notes_on_fidelity(definition, code):
    assert notes("fidelity", definition=definition) == {code}


def test_graphs_have_no_neighbours_to_agree_on_alone():
    batch = dgl.batch([random_graph(5, 10, seed) for seed in (1, 2)])
    game = Game.create(PooledGCN(), batch, torch.randn(10, 3), "graph")
    against = reference(game, torch.tensor([0, 1]), 50, seed=0)
    found = Explanations(against.players, against.estimate.phi, game.explained_class, GRAPH, "perfect")
    table = METRICS["agreement"].table(EvalCase(game, torch.tensor([0, 1]), None, 50), found)
    assert "neighbours only" not in table and "R2, neighbours" not in METRICS["agreement"].values(table)
    assert METRICS["agreement"].values(table)["R2"] == 1


def test_roc_auc_is_the_share_of_right_orders():
    drawn = np.random.default_rng(0)
    truth, scores = drawn.random(50) < 0.4, drawn.integers(0, 8, 50).astype(float)
    wins = [(a > b) + 0.5 * (a == b) for a in scores[truth] for b in scores[~truth]]
    assert roc_auc(truth, scores) == pytest.approx(np.mean(wins))
    assert np.isnan(roc_auc(np.ones(3, bool), np.arange(3.0)))


def test_auc_looks_for_the_targets_own_motif_with_and_without_sign():
    graph = random_graph(12, 60, 0)
    game = Game.create(gcn_game().f, graph, torch.randn(12, 3), hops=2)
    motif = torch.tensor([0, 0, 0, 1, 1, 1, -1, -1, -1, -1, -1, -1])
    players = game.players(torch.tensor([0, 4, 8]))
    own = motif[players.player] == motif[players.targets][players.row]
    scores = torch.where(own, -2.0, 1.0)  # the motif speaks against the class, strongly
    result = auc(Explanations(players, scores, game.explained_class[players.targets], NODE, "hand"), motif)
    assert result["targets"] == 2  # node 8 is in no motif
    for sign, share in (("absolute", 1), ("signed", 0)):
        assert [result[f"{sign}, {mean}"] for mean in ("pooled", "per target")] == [share, share]


def test_auc_of_graphs():
    batch = dgl.batch([random_graph(5, 10, seed) for seed in (1, 2)])
    game = Game.create(PooledGCN(), batch, torch.randn(10, 3), "graph")
    motif = torch.tensor([0, 0, -1, -1, -1] + [-1] * 5)
    players = game.players(torch.tensor([0, 1]))
    scores = torch.tensor([5.0, 4, 3, 2, 1, 9, 9, 9, 9, 9])
    result = auc(Explanations(players, scores, game.explained_class, GRAPH, "hand"), motif)
    assert result["targets"] == 1 and result["signed, pooled"] == 1


def test_speed_measures_each_number_of_targets():
    requested = []
    table = speed(lambda some: requested.append(len(some)), torch.arange(250))
    assert table["targets"].tolist() == [1, 10, 100, 250]
    assert set(requested) == {1, 10, 100, 250}
    assert (table["throughput (1/s)"] * table["latency (s)"]).round(6).tolist() == table["targets"].tolist()


def test_seconds_is_the_median_after_a_warm_up(monkeypatch):
    ticks = iter([0, 5, 10, 11, 20, 29])
    clock = SimpleNamespace(perf_counter=lambda: next(ticks))
    monkeypatch.setattr("dgl_lara._util.timing.time", clock)
    calls = []
    assert seconds(lambda: calls.append(1), torch.device("cpu")) == 5
    assert len(calls) == 4


def test_baselines_depend_on_their_seed():
    game = gcn_game(nodes=20, edges=24, seed=1)
    targets = torch.tensor([4, 9])
    for method in (
        lambda seed: Random(game, seed).explain(targets),
        lambda seed: Sampled(game, seed, 50).explain(targets),
    ):
        first, again, other = (method(seed).scores for seed in (0, 0, 1))
        torch.testing.assert_close(first, again, rtol=0, atol=0)
        assert (first - other).abs().max() > 1e-4


def test_an_expensive_reference_shares_its_masks(monkeypatch):
    game = gcn_game(seed=2)
    monkeypatch.setattr("dgl_lara.metrics.common.reference.MAX_EXACT_PLAYERS", 2)
    monkeypatch.setattr("dgl_lara.metrics.common.reference.MAX_NODES_PER_TARGET", 10)
    calls = game.caller.num_calls
    against = reference(game, torch.arange(12), 200, seed=0)
    description = message("reference.estimated_together", pairs=200)
    assert against.description == description
    assert game.caller.num_calls - calls == 4  # two halves, S and the rest


def test_auc_leaves_out_targets_whose_players_are_all_motif():
    """Node 0 sees only its own motif: no AUC of its own, and the mean of the others stands."""
    graph = dgl.graph(([1, 3, 4, 5], [0, 2, 2, 2]), num_nodes=6)
    game = Game.create(lambda g, x: torch.cat([x, -x], 1) + dgl.ops.copy_u_sum(g, x), graph, torch.ones(6, 1), hops=1)
    motif = torch.tensor([0, 0, 1, 1, -1, -1])
    players = game.players(torch.tensor([0, 2]))
    scores = torch.tensor([1.0, 2.0] + [4.0, 3.0, 2.0, 1.0])
    result = auc(Explanations(players, scores, game.explained_class[players.targets], NODE, "hand"), motif)
    own = result["signed, per target"]
    assert own == 1


def test_fidelity_is_of_the_requested_class():
    game = gcn_game(nodes=20, edges=24, seed=1)
    targets = torch.tensor([4, 9])
    other = (game.explained_class[targets] + 1) % 3
    players = game.players(targets)
    scores = torch.rand(len(players.player), generator=torch.Generator().manual_seed(0))
    explanation = Explanations(players, scores, other, NODE, "hand")
    plus, minus = fidelity_per_target(game, explanation, (0.5,))
    important = explanation.important(0.5)
    full = game.full_logits[targets, other]
    torch.testing.assert_close(plus[0], full - game.values_per_target(players, ~important[None], ClassQuery(other))[0])
    torch.testing.assert_close(minus[0], full - game.values_per_target(players, important[None], ClassQuery(other))[0])
    assert (plus[0] - (full - game.values_per_target(players, ~important[None])[0])).abs().max() > 1e-3


def test_standard_error_of_the_average_is_over_targets():
    """Five sparsities of one target are not five targets."""
    game = gcn_game(nodes=60, edges=70, seed=5)
    explanation = Random(game).explain(torch.arange(60))
    plus, _ = fidelity_per_target(game, explanation)
    table = fidelity(game, explanation)
    row = table[(table.sparsity == "average") & (table.definition == "paper")].iloc[0]
    assert row["fidelity+ error"] == pytest.approx(plus.mean(0).std().item() / 60**0.5, abs=1e-5)


def test_sparsity_rounds_to_the_nearest_number_of_players():
    _, explanation = star_explanation([4.0, 1.0, 2.0, 3.0])
    assert [int(explanation.important(s).sum()) for s in (0.3, 0.4, 0.6, 0.7)] == [3, 2, 2, 1]  # 2.8, 2.4, 1.6, 1.2


def test_explanations_are_saved_as_their_frame(tmp_path):
    _, explanation = star_explanation([4.0, 1.0, 2.0, 3.0])
    explanation.save(tmp_path / "e.csv")
    written, held = (frame.astype({"kind": str}) for frame in (pd.read_csv(tmp_path / "e.csv"), explanation.to_frame()))
    pd.testing.assert_frame_equal(written, held, check_dtype=False)
    explanation.save(str(tmp_path / "text.csv"))
    assert (tmp_path / "text.csv").read_text() == (tmp_path / "e.csv").read_text()
    explanation.save(tmp_path / "e.parquet")
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "e.parquet").astype({"kind": str}), held)
    with raises("explanation.file_ending", got="e.txt"):
        explanation.save(tmp_path / "e.txt")


@pytest.mark.parametrize("name", ["characterization-score", "unfaithfulness", "fidelity-curve"])
def test_metrics_by_labels_have_a_table(name):
    """What their figures are is held against PyTorch Geometric, in test_pyg_explainer.py."""
    game = gcn_game(nodes=30, edges=36, seed=2)
    explanations = Random(game).explain(torch.arange(30))
    case = EvalCase(game, explanations.players.targets)
    assert METRICS[name].unavailable(case) is None
    table = METRICS[name].table(case, explanations)
    assert set(table.definition) == {"paper", "kept"}
    table.insert(0, "method", "random")
    assert all(word in print_table(name, table, 200) for word in ("paper", "kept", "random"))
    requested = game.caller.num_calls
    METRICS[name].table(case, explanations)
    assert game.caller.num_calls == requested  # several metrics ask, f is asked once
    regression = EvalCase(gcn_game(value="output"), torch.arange(3))
    assert METRICS[name].unavailable(regression).endswith("classes")


def test_labels_by_hand():
    """Players 0 (target), 1, 2, 3 of the star, target kept: what is left says class 0 unless its value is 0."""
    graph = dgl.graph(([1, 2, 3], [0, 0, 0]), num_nodes=4)

    def positive(graph, x):
        total = dgl.ops.copy_u_sum(graph, x)
        return torch.cat([total, torch.full_like(total, 1.5)], dim=1)  # class 0 from a sum of 1.5 on

    game = Game.create(positive, graph, torch.tensor([[0.0], [1.0], [2.0], [3.0]]), hops=1)
    players = game.players(torch.tensor([0]))
    best = Explanations(players, torch.tensor([0.0, 1.0, 2.0, 3.0]), torch.tensor([0]), NODE, "hand")
    worst = Explanations(players, torch.tensor([0.0, 3.0, 2.0, 1.0]), torch.tensor([0]), NODE, "hand")
    # three neighbours: sparsity .3 and .4 keep two of them, .5 (round half to even) two, .6 and .7 one
    plus, minus = masked_predictions(game, best)["kept"].fidelity
    assert plus.tolist() == [1, 1, 1, 0, 0] and minus.tolist() == [0, 0, 0, 0, 0]
    plus, minus = masked_predictions(game, worst)["kept"].fidelity
    assert plus.tolist() == [0, 0, 0, 0, 0] and minus.tolist() == [0, 0, 0, 1, 1]
