"""Graph updates of the service: what changes, what is computed again, what a crash leaves; equal to a fresh run."""

import os
import shutil

import dgl
import numpy as np
import pytest
import torch
from codes import raises
from games import SmallGCN

from dgl_lara.lara import LARA
from dgl_lara.runs.open import open_run
from dgl_lara.serve.handlers import RequestHandler
from dgl_lara.serve.ids import make_ids
from dgl_lara.serve.model import ServedModel
from dgl_lara.serve.schemas import GraphUpdate, NewNode, TargetRef
from dgl_lara.serve.snapshot import open_snapshot, snapshot_of_run, write_snapshot
from dgl_lara.serve.update_log import UpdateLog
from dgl_lara.serve.updates import apply_updates, downstream, upstream
from dgl_lara.training.config import TrainingConfig

QUICK = TrainingConfig(steps=12, hidden=8, dim=3, masks=2)
FIELDS = ("features", "names", "nodes", "edges", "removed_nodes", "removed_edges")


def ring(nodes=60):
    """A ring with a few chords; far ends of it are many hops apart."""
    start = torch.arange(nodes)
    src, dst = torch.cat([start, start[::7]]), torch.cat([(start + 1) % nodes, (start[::7] + 3) % nodes])
    features = torch.randn(nodes, 3, generator=torch.Generator().manual_seed(0))
    return dgl.graph((torch.cat([src, dst]), torch.cat([dst, src])), num_nodes=nodes), features


@pytest.fixture(scope="module")
def laras():
    graph, features = ring()
    return {
        players: LARA(SmallGCN(), graph, features, hops=2, config=QUICK, players=players).fit(torch.arange(60))
        for players in ("nodes", "edges", "features")
    }


def entry(**fields):
    return {**{name: [] for name in FIELDS}, **fields}


ENTRIES = [
    entry(features=[[0.5, -1.0, 2.0]], names=["newcomer"], nodes=[60], edges=[[60, 5], [5, 60], [60, 9]]),
    entry(edges=[[20, 24], [24, 20], [20, 21]], removed_edges=[[30, 31], [31, 30], [1, 50]]),
    entry(removed_nodes=[41]),
]


def run_snapshot(laras, folder):
    return snapshot_of_run(laras, folder / "0", make_ids(next(iter(laras.values())).game, {}))


def updated(laras, before, update, folder):
    """Apply one update; return the updated graph, the number of affected nodes and the next snapshot."""
    after = apply_updates(before.graph, before.features, torch.from_numpy(before.removed), [update])
    number = before.sequence + 1
    affected = write_snapshot(before, after, folder / str(number))
    return after, affected, open_snapshot(laras, folder / str(number), number, before.first.ids)


@pytest.mark.long
@pytest.mark.parametrize("players", ["nodes", "edges", "features"])
def test_explanations_equal_those_of_a_fresh_run(laras, players, tmp_path):
    """Step by step; the last graph is also built without the removed node, which shifts the other numbers."""
    snapshot = run_snapshot(laras, tmp_path)
    for one in ENTRIES:
        _, _, snapshot = updated(laras, snapshot, one, tmp_path)
    explainer = snapshot.explainers[players]
    keep = torch.tensor([node for node in range(61) if node != 41])
    src, dst = ring()[0].edges()
    pairs = set(zip(src.tolist(), dst.tolist(), strict=True)) - {(30, 31), (31, 30)}
    pairs |= {(60, 5), (5, 60), (60, 9), (20, 24), (24, 20)}
    pairs = torch.tensor(sorted(pair for pair in pairs if 41 not in pair))
    number = torch.full((61,), -1)
    number[keep] = torch.arange(60)
    features = torch.cat([ring()[1], torch.tensor([[0.5, -1.0, 2.0]])])[keep]
    fresh = laras[players].on_graph(dgl.graph((number[pairs[:, 0]], number[pairs[:, 1]]), num_nodes=60), features)
    outputs, expected_outputs = explainer.game.full_outputs[keep], fresh.game.full_outputs
    torch.testing.assert_close(outputs, expected_outputs, rtol=1e-4, atol=1e-5)
    for node in keep.tolist():
        found = explainer.scorer.explain(torch.tensor([node]))
        expected = fresh.explain([int(number[node])], corrected=False)
        assert expected.scores.abs().max() > 1e-4
        assert len(found.scores) == len(expected.scores)
        if players == "nodes":
            assert number[found.players.player].tolist() == expected.players.player.tolist()
            torch.testing.assert_close(found.scores, expected.scores, rtol=1e-3, atol=1e-5)
        else:  # edges have other numbers
            torch.testing.assert_close(found.scores.sort().values, expected.scores.sort().values, rtol=1e-3, atol=1e-5)


def test_only_nodes_within_two_k_hops_are_computed_again(laras, tmp_path):
    """Elsewhere all bits stay."""
    before = run_snapshot(laras, tmp_path)
    before.first.fill_cache(np.arange(60))
    after, affected, snapshot = updated(laras, before, entry(edges=[[10, 12]]), tmp_path)
    ends = torch.zeros(60, dtype=torch.bool)
    ends[[10, 12]] = True
    near = downstream(after.graph, ends, 4)
    assert 4 < int(near.sum()) < 30
    assert affected == int(near.sum())
    old, new = before.first, snapshot.first
    same = (old.target == new.target).all(1) & (old.source == new.source).all(2).all(0)
    assert bool(same[~near].all())
    assert int((~same).sum()) >= 8
    stale = downstream(after.graph, near, 2).numpy()
    np.testing.assert_array_equal(new.cache.state == 0, stale)
    np.testing.assert_array_equal(new.cache.score[~stale], old.cache.score[~stale])


def test_samples_from_training_still_correct_targets_without_changes(laras, tmp_path):
    before = run_snapshot(laras, tmp_path)
    assert before.first.lara.samples_ is not None
    after, _, snapshot = updated(laras, before, ENTRIES[0], tmp_path)
    changed = downstream(after.graph, after.touched, 2)
    for node in range(61):
        found = snapshot.first.explain_one(node)
        assert bool(found.corrected) == (not bool(changed[node])), node
        if not bool(downstream(after.graph, changed, 4)[node]):
            torch.testing.assert_close(found.scores, before.first.explain_one(node).scores, rtol=0, atol=0)


def test_a_new_neighbour_ends_corrections_even_if_it_changes_no_output(tmp_path):
    """The samples from training have no such player."""
    graph, features = ring()
    weights = torch.randn(3, 3, generator=torch.Generator().manual_seed(1))
    laras = {"nodes": LARA(lambda graph, x: x @ weights, graph, features, hops=2, config=QUICK).fit(torch.arange(60))}
    before = run_snapshot(laras, tmp_path)
    assert bool(before.first.explain_one(5).corrected)
    _, _, snapshot = updated(laras, before, ENTRIES[0], tmp_path)
    found = snapshot.first.explain_one(5)
    assert 60 in found.players.player
    assert not bool(found.corrected)


def test_reach_goes_along_the_edges():
    graph = dgl.graph(([0, 1, 2, 5], [1, 2, 3, 2]), num_nodes=6)
    start = torch.tensor([False, True, False, False, False, False])
    assert downstream(graph, start, 1).nonzero().flatten().tolist() == [1, 2]
    assert upstream(graph, downstream(graph, start, 1), 2).nonzero().flatten().tolist() == [0, 1, 2, 5]


def test_edges_are_a_set():
    """Adding an existing edge or removing a missing one changes nothing."""
    graph, features = ring()
    none = torch.zeros(60, dtype=torch.bool)
    after = apply_updates(graph, features, none, [entry(edges=[[0, 1]], removed_edges=[[0, 30]])])
    assert after.graph.num_edges() == graph.num_edges()
    assert not bool(after.touched.any())
    twice = apply_updates(graph, features, none, [entry(edges=[[0, 30], [0, 30]]), entry(removed_edges=[[0, 30]])])
    assert twice.graph.num_edges() == graph.num_edges()
    assert twice.touched.nonzero().flatten().tolist() == [0, 30]


# --- the log


def number_of_earlier(earlier):
    return {"text": len(earlier)}


def test_a_log_numbers_its_entries_and_reads_what_other_processes_wrote(tmp_path):
    one, other = UpdateLog(tmp_path / "log"), UpdateLog(tmp_path / "log")
    assert one.append(number_of_earlier) == {"sequence": 1, "text": 0}
    assert other.append(number_of_earlier) == {"sequence": 2, "text": 1}
    assert [entry["sequence"] for entry in one.entries()] == [1, 2]


def test_a_line_that_a_crash_truncated_does_not_count(tmp_path):
    UpdateLog(tmp_path / "log").append(lambda earlier: {"text": "first"})
    with (tmp_path / "log").open("ab") as file:
        file.write(b'{"sequence":2,"text":"truncat')
    log = UpdateLog(tmp_path / "log")
    assert len(log.entries()) == 1
    log.append(lambda earlier: {"text": "new"})
    assert [entry["text"] for entry in UpdateLog(tmp_path / "log").entries()] == ["first", "new"]


@pytest.mark.parametrize(
    ("before", "after", "damaged"),
    [
        (b'"sequence":2', b'"sequence":3', 2),
        (b'"text":1', b'"text":7', 2),
        (b'"seal"', b'"sea1"', 1),
        (b'{"sequence":2', b'["sequence",2', 2),
        (b"\n{", b"\n7\n{", 2),
    ],
)
def test_a_damaged_log_is_refused(tmp_path, before, after, damaged):
    log = UpdateLog(tmp_path / "log")
    for _ in range(2):
        log.append(number_of_earlier)
    content = (tmp_path / "log").read_bytes()
    assert content.count(before) == (2 if before == b'"seal"' else 1)
    (tmp_path / "log").write_bytes(content[:20] + content[20:].replace(before, after))
    with raises("update_log.damaged", entry=damaged):
        UpdateLog(tmp_path / "log").entries()


def test_a_log_is_on_disk_before_it_returns(tmp_path, monkeypatch):
    synchronised = []
    monkeypatch.setattr("os.fsync", lambda handle: synchronised.append((tmp_path / "log").read_bytes()))
    UpdateLog(tmp_path / "log").append(lambda earlier: {"text": "this"})
    assert synchronised[0].startswith(b'{"sequence":1,"text":"this","seal":')


# --- a served run


@pytest.fixture
def restart(quick_runs, tmp_path):
    """restart(): the same run, served by a process that starts again."""
    return lambda folder=tmp_path: ServedModel("ba", open_run(quick_runs["ba-shapes"]), folder)


@pytest.fixture
def model(restart):
    return restart()


def update(model, *edges):
    for edge in edges:
        model.accept(GraphUpdate(add_edges=[edge]))
    model.apply_pending_updates()


def test_updates_are_replayed_after_a_crash(model, restart):
    """One that was accepted and never applied is applied by the next process, to equal numbers."""
    width = model.snapshot.features.shape[1]
    new = NewNode(features=[1.0] * width, key="a", name="Ada")
    entry = model.accept(GraphUpdate(add_nodes=[new], add_edges=[("a", 3), (3, "a")]))
    assert entry["nodes"] == [700]
    assert model.published() == 0
    again = restart()
    assert again.apply_pending_updates() == 1
    assert again.snapshot.graph.num_nodes() == 701
    assert again.node_name(700) == "Ada"
    assert model.follow().sequence == 1  # the first process sees it too
    first, second = (one.snapshot.first.explain_one(700).scores for one in (model, again))
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    unfinished = model.folder / "2"
    unfinished.mkdir()
    (unfinished / "indptr.npy").write_bytes(b"truncated")
    model.accept(GraphUpdate(remove_nodes=[700]))
    assert model.apply_pending_updates() == 2
    with raises("node.removed", got=700):
        RequestHandler(model).target(TargetRef(node=700))


def rebuilt(restart, model):
    """Restart the service, which must give equal scores after its one update."""
    again = restart()
    again.apply_pending_updates()
    assert again.follow().sequence == model.snapshot.sequence == 1
    assert again.snapshot.first.explain_one(1).scores.equal(model.snapshot.first.explain_one(1).scores)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"sequence": Infinity}', '{"sequence": "1"}', '{"sequence": 7}'])
def test_a_damaged_pointer_to_the_snapshot_is_refused_and_rebuilt(model, content, restart, notices):
    """The last one names a missing snapshot."""
    update(model, (1, 600))
    (model.folder / "current").write_text(content)
    with raises("snapshot.current_damaged"):
        model.follow()
    rebuilt(restart, model)
    assert notices.has("snapshot.rebuilt")


@pytest.mark.parametrize("name", ["sources", "features", "nodes-target"])
def test_a_damaged_snapshot_is_rebuilt(model, name, restart, notices):
    update(model, (1, 600))
    path = model.folder / "1" / f"{name}.npy"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.unlink()  # other processes have it mapped
    path.write_bytes(content)
    for _ in range(2):
        rebuilt(restart, model)
        assert notices.once("snapshot.rebuilt")


def test_rows_that_a_crash_has_damaged_are_computed_again(model, restart):
    """Zeros instead of text, and another score. An undamaged row is not computed again."""
    nodes = np.array([3, 4, 5])
    before, cache = model.follow().first.cached(nodes), model.snapshot.first.cache
    texts = [bytes(text) for text in cache.texts(nodes)]
    cache.text[3] = 0
    cache.score[4, 0] += 1
    explainer = restart().follow().first
    assert explainer.cache.missing(nodes).tolist() == [3, 4]
    np.testing.assert_array_equal(explainer.cached(nodes).score, before.score)
    assert [bytes(text) for text in explainer.cache.texts(nodes)] == texts


def test_a_log_that_lost_its_end_is_refused(model, restart):
    update(model, (1, 600), (1, 601))
    model.log.path.write_bytes(model.log.path.read_bytes().splitlines(keepends=True)[0])
    with raises("update_log.truncated", got=1, expected=2):
        restart()


def test_updates_together_give_what_they_give_one_by_one(model, restart, tmp_path):
    other, edges = restart(tmp_path / "other"), ((1, 600), (600, 1), (50, 400))
    for edge in edges:
        update(model, edge)
    update(other, *edges)
    assert model.snapshot.sequence == other.snapshot.sequence == 3
    for node in (1, 600, 400, 77):
        one, two = (served.snapshot.first.explain_one(node).scores for served in (model, other))
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-5)


def test_a_retrained_run_has_its_own_snapshots_and_the_log_of_its_data(model, quick_runs, tmp_path):
    update(model, (1, 600))
    retrained = tmp_path / "retrained"
    shutil.copytree(quick_runs["ba-shapes"], retrained)
    os.utime(retrained / "explainer.pt", ns=(1, 1))
    again = ServedModel("ba", open_run(retrained), tmp_path)
    assert again.folder != model.folder
    assert again.published() == 0
    assert again.apply_pending_updates() == 1


def new_node(value, width=10):
    return NewNode(features=[value] * width, key="a")


@pytest.mark.parametrize(
    ("fields", "code", "got"),
    [
        ({}, "update.empty", None),
        ({"add_edges": [(1, 700)]}, "update.node", 700),
        ({"add_edges": [("x", 1)]}, "update.unknown_key", "x"),
        ({"remove_nodes": [900]}, "update.node", 900),
        ({"add_nodes": [new_node(1.0, 77)]}, "features.width", 77),
        ({"add_nodes": [new_node(1e39)]}, "features.not_finite", None),
        ({"add_nodes": [new_node(1.0)] * 2}, "update.duplicate_keys", None),
        ({"remove_nodes": [4], "add_edges": [(4, 5)]}, "update.edge_to_removed", 4),
    ],
)
def test_invalid_updates_are_refused_and_not_logged(model, fields, code, got):
    with raises(code, **({} if got is None else {"got": got})):
        model.accept(GraphUpdate(**fields))
    assert model.log.entries() == []


def test_an_update_on_which_the_model_fails_is_rejected(model, restart):
    """Later updates still apply."""
    huge = GraphUpdate(add_nodes=[new_node(3e38)], add_edges=[("a", 5)])
    fine = GraphUpdate(add_nodes=[new_node(1.0)], add_edges=[("a", 9)])
    entries = [model.accept(update) for update in (fine, huge, fine)]
    assert [entry["nodes"] for entry in entries] == [[700], [701], [702]]
    assert [model.apply_pending_updates() for _ in range(3)] == [1, 2, 3]
    assert [bool(model.rejection_reason(number)) for number in (1, 2, 3)] == [False, True, False]
    found = model.follow().first.explain_one(5)
    assert found.scores.isfinite().all() and {700, 702} <= set(found.players.player.tolist()) - {701}
    assert 701 not in found.players.player.tolist()
    assert model.follow().removed[700:].tolist() == [False, True, False]
    again = restart()
    assert again.published() == 3 and again.rejection_reason(2)


def test_a_removed_node_is_gone_for_later_updates(model):
    model.accept(GraphUpdate(remove_nodes=[4]))
    with raises("update.node", got=4):
        model.accept(GraphUpdate(add_edges=[(4, 5)]))
    assert model.accept(GraphUpdate(add_nodes=[new_node(0.0)]))["nodes"] == [700]  # the number is not reused
    assert model.accept(GraphUpdate(add_nodes=[new_node(0.0)], add_edges=[(700, 701)]))["nodes"] == [701]
