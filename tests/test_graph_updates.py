"""Graph updates of the service: what changes, what is made anew, what a crash leaves; and all equals a fresh run."""

import dgl
import numpy as np
import pytest
import torch
from games import SmallGCN

from dgl_lara.errors import InputError, LaraError
from dgl_lara.lara import LARA
from dgl_lara.runs.open import open_run
from dgl_lara.serve.handlers import RequestHandler
from dgl_lara.serve.model import ServedModel
from dgl_lara.serve.schemas import GraphUpdate, NewNode, TargetRef
from dgl_lara.serve.snapshot import base_snapshot, open_snapshot, write_snapshot
from dgl_lara.serve.update_log import UpdateLog
from dgl_lara.serve.updates import changed, downstream, upstream
from dgl_lara.training.config import TrainingConfig

QUICK = TrainingConfig(steps=12, hidden=8, dim=3, masks=2)
NOTHING: dict[str, list] = {
    "features": [],
    "names": [],
    "nodes": [],
    "edges": [],
    "removed_nodes": [],
    "removed_edges": [],
}


def ring(nodes=60):
    """A ring with a few chords; far ends of it are many hops apart."""
    here = torch.arange(nodes)
    src, dst = torch.cat([here, here[::7]]), torch.cat([(here + 1) % nodes, (here[::7] + 3) % nodes])
    features = torch.randn(nodes, 3, generator=torch.Generator().manual_seed(0))
    return dgl.graph((torch.cat([src, dst]), torch.cat([dst, src])), num_nodes=nodes), features


@pytest.fixture(scope="module")
def laras():
    graph, features = ring()
    found = {}
    for kind in ("nodes", "edges", "features"):
        lara = LARA(SmallGCN(), graph, features, hops=2, config=QUICK, players=kind)
        found[kind] = lara.fit(torch.arange(60))
    return found


def entry(**more):
    return {**NOTHING, **more}


ENTRIES = [
    entry(features=[[0.5, -1.0, 2.0]], names=["newcomer"], nodes=[60], edges=[[60, 5], [5, 60], [60, 9]]),
    entry(edges=[[20, 24], [24, 20], [20, 21]], removed_edges=[[30, 31], [31, 30], [1, 50]]),
    entry(removed_nodes=[41]),
]


def fresh(lara, graph, features):
    """The same g on a graph that was never changed."""
    return lara.on(graph, features)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["nodes", "edges", "features"])
def test_explanations_equal_those_of_a_fresh_run(laras, kind, tmp_path):
    """Step by step; the last graph is also built from the bottom, without the removed node, which has other numbers."""
    snapshot = base_snapshot(laras, tmp_path / "0")
    for number, one in enumerate(ENTRIES, 1):
        after = changed(snapshot.graph, snapshot.features, torch.from_numpy(snapshot.gone), [one])
        write_snapshot(snapshot, after, tmp_path / str(number))
        snapshot = open_snapshot(laras, tmp_path / str(number), number)
    part = snapshot.parts[kind]
    keep = torch.tensor([node for node in range(61) if node != 41])
    src, dst = ring()[0].edges()
    pairs = set(zip(src.tolist(), dst.tolist(), strict=True)) - {(30, 31), (31, 30)}
    pairs |= {(60, 5), (5, 60), (60, 9), (20, 24), (24, 20)}
    pairs = torch.tensor(sorted(pair for pair in pairs if 41 not in pair))
    place = torch.full((61,), -1)
    place[keep] = torch.arange(60)
    features = torch.cat([ring()[1], torch.tensor([[0.5, -1.0, 2.0]])])[keep]
    new = fresh(laras[kind], dgl.graph((place[pairs[:, 0]], place[pairs[:, 1]]), num_nodes=60), features)
    torch.testing.assert_close(part.game.full_outputs[keep], new.game.full_outputs, rtol=1e-4, atol=1e-5)
    for node in keep.tolist():
        found = part._amortised(torch.tensor([node]), None)
        expected = new.explain([int(place[node])], corrected=False)
        assert expected.scores.abs().max() > 1e-4
        assert len(found.scores) == len(expected.scores)
        if kind == "nodes":
            assert place[found.players.player].tolist() == expected.players.player.tolist()
            torch.testing.assert_close(found.scores, expected.scores, rtol=1e-3, atol=1e-5)
        else:  # edges have other numbers
            torch.testing.assert_close(found.scores.sort().values, expected.scores.sort().values, rtol=1e-3, atol=1e-5)


def test_only_two_k_hops_are_made_anew(laras, tmp_path):
    """Bit by bit the same elsewhere, and others within."""
    before = base_snapshot(laras, tmp_path / "0")
    before.first.compute(np.arange(60))
    after = changed(before.graph, before.features, torch.from_numpy(before.gone), [entry(edges=[[10, 12]])])
    redone = write_snapshot(before, after, tmp_path / "1")
    snapshot = open_snapshot(laras, tmp_path / "1", 1)
    ends = torch.zeros(60, dtype=torch.bool)
    ends[[10, 12]] = True
    near = downstream(after.graph, ends, 4)
    assert 4 < int(near.sum()) < 30
    assert redone == int(near.sum())
    old, new = before.first, snapshot.first
    same = (old.target == new.target).all(1) & torch.from_numpy((old.source == new.source).all(axis=(0, 2)))
    assert bool(same[~near].all())
    assert int((~same).sum()) >= 8
    stale = downstream(after.graph, near, 2).numpy()
    np.testing.assert_array_equal(new.table.state == 0, stale)
    np.testing.assert_array_equal(new.table.score[~stale], old.table.score[~stale])


def test_what_training_said_of_unchanged_surroundings_still_corrects(laras, tmp_path):
    before = base_snapshot(laras, tmp_path / "0")
    assert before.first.lara.samples_ is not None
    after = changed(before.graph, before.features, torch.from_numpy(before.gone), [ENTRIES[0]])
    write_snapshot(before, after, tmp_path / "1")
    snapshot = open_snapshot(laras, tmp_path / "1", 1)
    changed_ones = downstream(after.graph, after.touched, 2)
    for node in range(61):
        found = snapshot.first.one(node, [])
        assert bool(found.corrected) == (not bool(changed_ones[node])), node
        if not bool(downstream(after.graph, changed_ones, 4)[node]):
            torch.testing.assert_close(found.scores, before.first.one(node, []).scores, rtol=0, atol=0)


def test_new_neighbours_end_corrections_even_where_f_does_not_mind(tmp_path):
    """The samples of training know nothing of a player that was not there."""
    graph, features = ring()
    weights = torch.randn(3, 3, generator=torch.Generator().manual_seed(1))
    lara = LARA(lambda graph, x: x @ weights, graph, features, hops=2, config=QUICK).fit(torch.arange(60))
    before = base_snapshot({"nodes": lara}, tmp_path / "0")
    assert bool(before.first.one(5, []).corrected)
    after = changed(before.graph, before.features, torch.from_numpy(before.gone), [ENTRIES[0]])
    write_snapshot(before, after, tmp_path / "1")
    found = open_snapshot({"nodes": lara}, tmp_path / "1", 1).first.one(5, [])
    assert 60 in found.players.player
    assert not bool(found.corrected)


def test_reach_goes_along_the_edges():
    graph = dgl.graph(([0, 1, 2, 5], [1, 2, 3, 2]), num_nodes=6)
    start = torch.tensor([False, True, False, False, False, False])
    assert downstream(graph, start, 1).nonzero().flatten().tolist() == [1, 2]
    assert upstream(graph, downstream(graph, start, 1), 2).nonzero().flatten().tolist() == [0, 1, 2, 5]


def test_edges_are_a_set():
    """What is there is not added again; what is not there cannot be removed; neither touches anything."""
    graph, features = ring()
    nobody = torch.zeros(60, dtype=torch.bool)
    after = changed(graph, features, nobody, [entry(edges=[[0, 1]], removed_edges=[[0, 30]])])
    assert after.graph.num_edges() == graph.num_edges()
    assert not bool(after.touched.any())
    twice = changed(graph, features, nobody, [entry(edges=[[0, 30], [0, 30]]), entry(removed_edges=[[0, 30]])])
    assert twice.graph.num_edges() == graph.num_edges()
    assert twice.touched.nonzero().flatten().tolist() == [0, 30]


# --- the log


def test_a_log_numbers_its_entries_and_reads_what_others_wrote(tmp_path):
    one, other = UpdateLog(tmp_path / "log"), UpdateLog(tmp_path / "log")
    assert one.append(lambda before: {"said": len(before)}) == {"sequence": 1, "said": 0}
    assert other.append(lambda before: {"said": len(before)}) == {"sequence": 2, "said": 1}
    assert [entry["sequence"] for entry in one.entries()] == [1, 2]


def test_a_line_that_a_crash_cut_short_never_counted(tmp_path):
    log = UpdateLog(tmp_path / "log")
    log.append(lambda before: {"said": "whole"})
    with (tmp_path / "log").open("ab") as file:
        file.write(b'{"sequence":2,"said":"cut sho')
    again = UpdateLog(tmp_path / "log")
    assert len(again.entries()) == 1
    again.append(lambda before: {"said": "new"})
    assert [entry["said"] for entry in UpdateLog(tmp_path / "log").entries()] == ["whole", "new"]


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (b'"sequence":2', b'"sequence":3', "entry 3 stands where 2 is due"),
        (b'"said":1', b'"said":7', "it is not as it was written"),
        (b'"seal"', b'"sea1"', "seal"),
        (b'{"sequence":2', b'["sequence",2', ""),
        (b"\n{", b"\n7\n{", ""),
    ],
)
def test_a_damaged_log_says_so(tmp_path, before, after, why):
    log = UpdateLog(tmp_path / "log")
    for _ in range(2):
        log.append(lambda before: {"said": len(before)})
    whole = (tmp_path / "log").read_bytes()
    assert whole.count(before) == (2 if before == b'"seal"' else 1)
    (tmp_path / "log").write_bytes(whole[:20] + whole[20:].replace(before, after))
    with pytest.raises(LaraError, match=f"damaged at entry [12] .*{why}"):
        UpdateLog(tmp_path / "log").entries()


def test_a_log_is_on_disk_before_it_returns(tmp_path, monkeypatch):
    synchronised = []
    monkeypatch.setattr("os.fsync", lambda handle: synchronised.append((tmp_path / "log").read_bytes()))
    UpdateLog(tmp_path / "log").append(lambda before: {"said": "this"})
    assert synchronised[0].startswith(b'{"sequence":1,"said":"this","seal":')


# --- a served run


@pytest.fixture
def model(quick_runs, tmp_path):
    return ServedModel("ba", open_run(quick_runs["ba-shapes"]), tmp_path)


def test_updates_are_replayed_after_a_crash(model, quick_runs, tmp_path):
    """Accepted and never applied: whoever opens the run next applies it, to the same numbers."""
    width = model.snapshot.features.shape[1]
    new = NewNode(features=[1.0] * width, key="a", name="Ada")
    entry = model.accept(GraphUpdate(add_nodes=[new], add_edges=[("a", 3), (3, "a")]))
    assert entry["nodes"] == [700]
    assert model.published() == 0
    again = ServedModel("ba", open_run(quick_runs["ba-shapes"]), tmp_path)
    assert again.apply_pending_updates() == 1
    assert again.snapshot.graph.num_nodes() == 701
    assert again.node_name(700) == "Ada"
    assert model.follow().sequence == 1  # and whoever was there before sees it too
    first, second = (one.snapshot.first.one(700, []).scores for one in (model, again))
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    half = model.folder / "2"
    half.mkdir()
    (half / "indptr.npy").write_bytes(b"cut short")
    model.accept(GraphUpdate(remove_nodes=[700]))
    assert model.apply_pending_updates() == 2
    with pytest.raises(InputError, match="node 700 was removed"):
        RequestHandler(model).target(TargetRef(node=700))


@pytest.mark.parametrize("content", ["", "{", "[]", '{"sequence": Infinity}', '{"sequence": "1"}', '{"sequence": 7}'])
def test_a_damaged_note_of_the_current_snapshot_is_refused_and_made_anew(model, content, quick_runs, tmp_path, capsys):
    """The last one: of a snapshot that is not there, which was waited for without end."""
    model.accept(GraphUpdate(add_edges=[(1, 600)]))
    model.apply_pending_updates()
    (model.folder / "current").write_text(content)
    with pytest.raises(
        LaraError, match="current cannot be understood .*; start the service again, which makes it anew"
    ):
        model.follow()
    assert_the_same(model.snapshot, again(quick_runs, tmp_path))
    assert "is damaged; it is made anew from the log" in capsys.readouterr().err


def again(quick_runs, tmp_path):
    """The snapshot of a service that starts anew."""
    model = ServedModel("ba", open_run(quick_runs["ba-shapes"]), tmp_path)
    model.apply_pending_updates()
    return model.follow()


def assert_the_same(one, other):
    assert one.sequence == other.sequence == 1
    assert one.first.one(1, []).scores.equal(other.first.one(1, []).scores)


@pytest.mark.parametrize("name", ["sources", "features", "nodes-target"])
def test_a_damaged_snapshot_is_made_anew(model, name, quick_runs, tmp_path, capsys):
    model.accept(GraphUpdate(add_edges=[(1, 600)]))
    model.apply_pending_updates()
    path = model.folder / "1" / f"{name}.npy"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.unlink()  # others have it mapped
    path.write_bytes(content)
    assert_the_same(model.snapshot, again(quick_runs, tmp_path))
    assert "is damaged; it is made anew from the log" in capsys.readouterr().err
    again(quick_runs, tmp_path)
    assert "damaged" not in capsys.readouterr().err


def test_rows_that_a_crash_has_damaged_are_computed_again(model, quick_runs, tmp_path):
    """Zeros where text was, another score; and one that is whole is not computed again."""
    nodes = np.array([3, 4, 5])
    before = model.follow().first.best(nodes)
    texts = [bytes(text) for text in model.snapshot.first.table.texts(nodes)]
    model.snapshot.first.table.text[3] = 0
    model.snapshot.first.table.score[4, 0] += 1
    part = ServedModel("ba", open_run(quick_runs["ba-shapes"]), tmp_path).follow().first
    assert part.table.unknown(nodes).tolist() == [3, 4]
    np.testing.assert_array_equal(part.best(nodes).score, before.score)
    assert [bytes(text) for text in part.table.texts(nodes)] == texts


def test_a_log_that_lost_its_end_is_noticed(model, quick_runs, tmp_path):
    for end in (600, 601):
        model.accept(GraphUpdate(add_edges=[(1, end)]))
    model.apply_pending_updates()
    lines = model.log.path.read_bytes().splitlines(keepends=True)
    model.log.path.write_bytes(lines[0])
    with pytest.raises(LaraError, match="lacks updates that count already .it has 1 of 2."):
        ServedModel("ba", open_run(quick_runs["ba-shapes"]), tmp_path)


def test_many_updates_at_once_give_what_one_by_one_gives(model, quick_runs, tmp_path):
    other = ServedModel("ba", model.run, tmp_path / "other")
    for pair in ((1, 600), (600, 1), (50, 400)):
        for one in (model, other):
            one.accept(GraphUpdate(add_edges=[pair]))
        model.apply_pending_updates()
    other.apply_pending_updates()
    assert model.snapshot.sequence == other.snapshot.sequence == 3
    for node in (1, 600, 400, 77):
        one, two = (served.snapshot.first.one(node, []).scores for served in (model, other))
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-5)


def test_another_explainer_gets_the_same_updates(model, quick_runs, tmp_path):
    """A retrained run has snapshots of its own, and the log of its data."""
    import os
    import shutil

    model.accept(GraphUpdate(add_edges=[(1, 600)]))
    model.apply_pending_updates()
    retrained = tmp_path / "retrained"
    shutil.copytree(quick_runs["ba-shapes"], retrained)
    os.utime(retrained / "explainer.pt", ns=(1, 1))
    again = ServedModel("ba", open_run(retrained), tmp_path)
    assert again.folder != model.folder
    assert again.published() == 0
    assert again.apply_pending_updates() == 1


BAD = [
    ({}, "the update is empty"),
    ({"add_edges": [(1, 700)]}, "add_edges must name nodes that are there, 0..699 (got 700)"),
    ({"add_edges": [("x", 1)]}, "'x' that this update does not add"),
    ({"remove_nodes": [900]}, "remove_nodes must name nodes that are there"),
    ({"add_nodes": [NewNode(features=[1.0] * 77, key=None, name=None)]}, "add_nodes.0.features must be"),
    ({"add_nodes": [NewNode(features=[1e39] * 10, key=None, name=None)]}, "must be numbers of ordinary size"),
    ({"remove_nodes": [4], "add_edges": [(4, 5)]}, "must not lead to a node that the same update removes (got 4)"),
]


@pytest.mark.parametrize(("given", "said"), BAD)
def test_updates_that_do_not_fit_are_refused_and_not_logged(model, given, said):
    with pytest.raises(InputError) as refused:
        model.accept(GraphUpdate(**given))
    assert said in str(refused.value)
    assert model.log.entries() == []


def test_an_update_that_the_model_has_no_answer_to_is_taken_back(model, quick_runs, tmp_path):
    """It had been written down, and no later one ever counted."""
    huge = GraphUpdate(add_nodes=[NewNode(features=[3e38] * 10, key="a")], add_edges=[("a", 5)])
    fine = GraphUpdate(add_nodes=[NewNode(features=[1.0] * 10, key="a")], add_edges=[("a", 9)])
    entries = [model.accept(update) for update in (fine, huge, fine)]
    assert [entry["nodes"] for entry in entries] == [[700], [701], [702]]
    assert [model.apply_pending_updates() for _ in range(3)] == [1, 2, 3]
    assert [bool(model.rejection_reason(number)) for number in (1, 2, 3)] == [False, True, False]
    assert "NaN or infinity" in model.rejection_reason(2)
    found = model.follow().first.one(5, [])
    assert found.scores.isfinite().all() and {700, 702} <= set(found.players.player.tolist()) - {701}
    assert 701 not in found.players.player.tolist()
    assert model.follow().gone[700:].tolist() == [False, True, False]
    again = ServedModel("ba", open_run(quick_runs["ba-shapes"]), tmp_path)
    assert again.published() == 3 and again.rejection_reason(2)


def test_a_removed_node_is_gone_for_later_updates(model):
    model.accept(GraphUpdate(remove_nodes=[4]))
    with pytest.raises(InputError, match="that are there"):
        model.accept(GraphUpdate(add_edges=[(4, 5)]))
    width = model.snapshot.features.shape[1]
    entry = model.accept(GraphUpdate(add_nodes=[NewNode(features=[0.0] * width)]))
    assert entry["nodes"] == [700]  # nobody gets the number of the one that is gone
    entry = model.accept(GraphUpdate(add_nodes=[NewNode(features=[0.0] * width)], add_edges=[(700, 701)]))
    assert entry["nodes"] == [701]
