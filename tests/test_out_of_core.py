"""Training and explaining on a graph that is never whole give the numbers of the graph in memory."""

import gc

import dgl
import numpy as np
import pandas as pd
import pytest
import torch
from codes import raises, refused, run
from games import SmallGCN
from test_parts import DATASET

from dgl_lara.datasets import Options, load
from dgl_lara.datasets.partitioning import partition
from dgl_lara.game.partitioned_game import PartitionedGame
from dgl_lara.gnns.checkpoint import save_gnn
from dgl_lara.gnns.models import GNN, ModelConfig
from dgl_lara.graphs.mapped import MappedGraph
from dgl_lara.graphs.row_store import RowStore
from dgl_lara.lara import LARA
from dgl_lara.lara_partitioned import PartitionedLara
from dgl_lara.training import loop
from dgl_lara.training.backend import OutOfCore
from dgl_lara.training.config import TrainingConfig

SETTINGS = TrainingConfig(batch_size=16, epochs=2, masks=2, hidden=8, dim=4, shared_pairs=0)


def small_model(dataset, architecture, layers=2):
    torch.manual_seed(3)
    shape = {"task": "node", "in_dim": dataset.features.shape[1], "num_classes": dataset.num_classes}
    return GNN(ModelConfig(architecture, hidden=8, layers=layers, **shape)).eval()


def both(dataset, model, folder, method="metis", settings=SETTINGS):
    """The same in memory and in parts."""
    partition(dataset, 3, folder / "parts", method)
    inside = LARA(model, dataset.graph, dataset.features, hops=2, config=settings)
    outside = PartitionedLara(model, MappedGraph(folder / "parts"), folder / "rows", hops=2, config=settings)
    return inside, outside


@pytest.fixture(scope="module")
def citation(tmp_path_factory):
    """A small citation graph in memory and in parts, both trained on the same targets."""
    dataset = load("citation", Options(nodes=600))
    inside, outside = both(dataset, small_model(dataset, "sage"), tmp_path_factory.mktemp("citation"))
    targets, validation = dataset.train[:64], dataset.val[:20]
    return inside.fit(targets, validation), outside.fit(targets, validation)


@pytest.mark.parametrize("architecture", ["sage", "gcn", "gat"])
def test_layer_wise_outputs_equal_those_of_the_full_graph(architecture, tmp_path):
    dataset = load("citation", Options(nodes=400))
    model = small_model(dataset, architecture)
    inside, outside = both(dataset, model, tmp_path)
    outside.game.budget = type(outside.game.budget)(2 * 2**20)  # several batches
    assert outside.game.batch_size < 100
    torch.testing.assert_close(outside.game.full_outputs, inside.game.full_outputs, atol=1e-5, rtol=1e-5)
    assert outside.game.context_hops == inside.game.context_hops
    assert outside.game.value_scale == pytest.approx(inside.game.value_scale, rel=1e-5)
    torch.testing.assert_close(outside.game.null_logits, inside.game.null_logits)
    assert sorted(path.name for path in (tmp_path / "rows").iterdir()) == ["answer.json", "answer.npy"]


def test_a_black_box_is_called_on_neighbourhoods(tmp_path):
    inside, outside = both(DATASET, SmallGCN(), tmp_path)
    torch.testing.assert_close(outside.game.full_outputs, inside.game.full_outputs, atol=1e-5, rtol=1e-5)


def test_weights_are_those_of_training_in_memory(citation):
    inside, outside = citation
    start = inside.state_.history[0]["loss"], inside.state_.history[-1]["loss"]
    assert start[0] != start[1]
    for one, other in (
        (inside.state_.explainer, outside.state_.explainer),
        (inside.state_.average, outside.state_.average),
    ):
        for name, part in one.state_dict().items():
            torch.testing.assert_close(other.state_dict()[name], part, atol=1e-5, rtol=1e-4, msg=name)
    assert outside.state_.nodes_asked > 0


def as_trained(inside, outside):
    """Both with the same explainer."""
    return inside, outside.with_fitted(inside.fitted.on_another_graph())


def test_embeddings_and_scores_are_those_in_memory(citation):
    inside, outside = as_trained(*citation)
    mine, its = outside.embed(), inside.embed()
    assert its.source.std() > 1e-2
    torch.testing.assert_close(mine.source, its.source, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(mine.target, its.target, atol=1e-5, rtol=1e-5)
    everyone = torch.arange(600)
    best, expected = outside.top(everyone, 5), inside.top(everyone, 5)
    assert np.array_equal(best.targets, expected.targets) and np.array_equal(best.hop, expected.hop)
    assert (best.player != expected.player).mean() < 0.01  # but for ties up to rounding
    np.testing.assert_allclose(best.score, expected.score, atol=1e-5)


@pytest.mark.parametrize("targets", [[400, 20, 7], range(100, 120), range(100, 160)], ids=["few", "some", "many"])
def test_explanations_hold_the_ids_of_the_graph(citation, targets):
    inside, outside = as_trained(*citation)
    mine, its = (lara.explain(list(targets), corrected=False).to_frame() for lara in (outside, inside))
    columns = ["target", "player", "hop", "explained_class"]
    assert mine[columns].equals(its[columns])
    np.testing.assert_allclose(mine.score, its.score, atol=1e-5)


def test_what_is_drawn_for_a_node_is_what_is_drawn_in_memory(citation):
    its, mine = (lara.verify(lara.explain([20, 7])).filter(like="random fid") for lara in as_trained(*citation))
    assert its.notna().all().all()
    pd.testing.assert_frame_equal(mine, its, atol=1e-5)


def test_ba_shapes_judge_included(tmp_path):
    dataset = load("ba-shapes")
    inside, outside = both(dataset, small_model(dataset, "gcn", 2), tmp_path, "random")
    for lara in (inside, outside):
        lara.fit(dataset.train[:48], dataset.val)
    for one, other in zip(inside.history_, outside.history_, strict=True):
        assert other == pytest.approx(one, abs=1e-4)
    # not the weights: those of an input that is the same for every node have no gradient, and Adam follows its rounding
    frames = (lara.explain(dataset.test[:40], corrected=False).to_frame() for lara in (outside, inside))
    mine, its = (frame.set_index(["target", "player"]).score.sort_index() for frame in frames)
    assert its.std() > 1e-3
    pd.testing.assert_series_equal(mine, its, atol=1e-5)


def test_a_pass_that_was_stopped_goes_on_where_it_was(tmp_path):
    store = RowStore(tmp_path / "rows", "data")
    made: list[torch.Tensor] = []

    def make(nodes):
        if len(made) == 3:
            raise KeyboardInterrupt
        made.append(nodes)
        return nodes.float().unsqueeze(1).repeat(1, 2)

    with pytest.raises(KeyboardInterrupt):
        store.rows("x", "one", 50, make, 10, "x")
    made.clear()
    found = store.rows("x", "one", 50, make, 10, "x")
    assert [nodes[0].item() for nodes in made] == [30, 40]
    assert torch.equal(found, torch.arange(50.0).unsqueeze(1).repeat(1, 2))
    assert store.is_whole("x", "one", 50) and not store.is_whole("x", "another", 50)


def test_subgraphs_are_not_kept(citation):
    def graphs():
        gc.collect()
        return [one for one in gc.get_objects() if type(one) is dgl.DGLGraph and one.num_nodes()]

    _, outside = citation
    before = len(graphs())
    game = PartitionedGame(outside.model, outside.graph_source, 2, "logit", outside.rows)
    assert len(graphs()) == before
    near = game.near(torch.arange(8), 2)
    assert len(graphs()) > before
    del near
    assert len(graphs()) == before


def test_batches_that_do_not_fit_are_halved(citation, notices):
    _, outside = citation
    backend = OutOfCore(outside.game, SETTINGS)
    whole = len(backend.subgraphs_of(torch.arange(64))[1])
    backend.game = PartitionedGame(outside.model, outside.graph_source, 2, "logit", outside.rows, memory=1_000_000)
    assert whole == 64 and len(backend.subgraphs_of(torch.arange(64))[1]) < 64
    assert notices.codes == ["batch.halved"]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"batch_size": 0}, "partition.batch_size"),
        ({"shared_pairs": 5}, "partition.shared_pairs"),
        ({"objective": "running-mean"}, "partition.objective"),
    ],
)
def test_settings_that_need_the_full_graph_raise(citation, changes, code):
    _, outside = citation
    other = PartitionedLara(outside.model, outside.graph_source, outside.rows.folder, hops=2)
    other.config = TrainingConfig(**{"batch_size": 8, **changes})
    with raises(code):
        other.fit([1, 2, 3], [4])


def test_edges_and_the_full_graph_raise(citation):
    _, outside = citation
    with raises("partition.players"):
        PartitionedLara(outside.model, outside.graph_source, players="edges")
    with raises("partition.full_graph"):
        outside.graph.num_nodes()
    with raises("partition.hops", got="auto"):
        PartitionedLara(SmallGCN(), outside.graph_source).game.check_targets(torch.arange(3))


@pytest.fixture(scope="module")
def commands(tmp_path_factory):
    """The same commands on BA-Shapes in memory and in parts."""
    folder = tmp_path_factory.mktemp("commands")
    dataset = load("ba-shapes")
    save_gnn(small_model(dataset, "gcn", 2), folder / "target.pt", {})
    partition(dataset, 3, folder / "parts")
    settings = ["--target", folder / "target.pt", "--batch-size", 32, "--targets", 64, "--epochs", 1, "--memory", "1GB"]
    for name, where in (("inside", ["--dataset", "ba-shapes"]), ("outside", ["--graph", folder / "parts"])):
        done = dgl_lara("train", *where, *settings, "--shared-pairs", "0", "--out", folder / name)
        assert done.exit_code == 0, done.output
    return folder


def dgl_lara(*arguments):
    return run(*arguments)


@pytest.mark.parametrize("more", [("--amortised", 5), ("--amortised", "all"), (5,)], ids=["top", "all", "trusted"])
def test_files_are_those_of_the_graph_in_memory(commands, tmp_path, more):
    frames = []
    for name in ("inside", "outside"):
        out = tmp_path / f"{name}.parquet"
        done = dgl_lara("explain", "--run", commands / name, "--all", *more[:-1], "--top", more[-1], "--out", out)
        assert done.exit_code == 0, done.output
        frames.append(pd.read_parquet(out).sort_values(["target", "player"], ignore_index=True))
    its, mine = frames
    assert list(mine.columns) == list(its.columns) and len(mine) == len(its) > 700
    assert (mine.player != its.player).mean() < 0.01  # but for ties up to rounding
    np.testing.assert_allclose(mine.groupby("target").score.max(), its.groupby("target").score.max(), atol=1e-5)


def test_one_node_in_words(commands):
    texts = [dgl_lara("explain", "--run", commands / name, "--node", 512).output for name in ("inside", "outside")]
    mine, its = ([line for line in text.splitlines() if not line.startswith("These scores")] for text in texts)
    assert mine == its and "Node 512 " in texts[1] and len(mine) > 7


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["eval", "--metric", "fidelity"], "partition.full_graph"),
        (["report"], "partition.full_graph"),
        (["explain", "--all", "--refine", "8", "--out", "x.parquet"], "partition.refinement"),
    ],
)
def test_commands_that_need_the_full_graph_raise(commands, tmp_path, monkeypatch, command, code):
    monkeypatch.chdir(tmp_path)
    done = dgl_lara(*command, "--run", commands / "outside")
    assert done.exit_code == 2 and f"[{code}]" in done.output, done.output


def test_a_model_must_be_named(commands):
    done = dgl_lara("train", "--graph", commands / "parts")
    refused(done, "train.model_missing")


def test_training_goes_on_where_it_was(commands, tmp_path, monkeypatch):
    """Killed after the first step, resumed: the same explainer as unbroken."""
    args = ["--graph", commands / "parts", "--target", commands / "target.pt", "--batch-size", 32, "--targets", 64]
    args += ["--epochs", 1, "--memory", "1GB", "--shared-pairs", 0, "--out", tmp_path / "run"]
    steps: list[float] = []
    real = loop.update

    def interrupted(*arguments):
        if steps:
            raise KeyboardInterrupt
        steps.append(real(*arguments))
        return steps[0]

    monkeypatch.setattr(loop, "update", interrupted)
    assert dgl_lara("train", *args).exit_code == 130
    monkeypatch.setattr(loop, "update", real)
    assert dgl_lara("train", "--resume", tmp_path / "run").exit_code == 0
    one, other = (
        torch.load(folder / "explainer.pt", weights_only=True)["weights"]
        for folder in (tmp_path / "run", commands / "outside")
    )
    for name, part in one.items():
        torch.testing.assert_close(other[name], part, atol=1e-6, rtol=1e-6)
