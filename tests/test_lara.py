"""The estimator: five lines, scikit-learn manners, any callable."""

import copy
from dataclasses import replace

import dgl
import numpy as np
import pytest
import torch
from codes import raises
from games import SmallGCN, random_graph

from dgl_lara import LARA, Explanations
from dgl_lara.errors import InputError
from dgl_lara.game.receptive_field import choose_hops
from dgl_lara.game.tasks import NODE
from dgl_lara.inference.targets import parse_classes
from dgl_lara.training.config import ALL, MINI_BATCHES, TrainingConfig, default, within_memory

GRAPH = random_graph(60, 80, 0)
FEATURES = torch.randn(60, 3, generator=torch.Generator().manual_seed(1))
QUICK = TrainingConfig(hidden=16, dim=5, masks=4, steps=40)


def test_five_lines():
    model = SmallGCN()
    lara = LARA(model, GRAPH, FEATURES, hops=2, config=QUICK)
    explanations = lara.fit(range(60)).explain([3, 5])
    assert isinstance(explanations, Explanations)
    assert len(explanations) == 2
    frame = explanations.to_frame()
    assert set(frame.target) == {3, 5}
    assert frame.columns.tolist() == ["target", "player", "hop", "score", "rank", "explained_class", "kind"]
    assert frame.score.std() > 0


def test_the_constructor_only_stores():
    def never(graph, features):
        raise AssertionError("called too early")

    lara = LARA(never, GRAPH, FEATURES)
    assert lara.model is never
    with raises("lara.not_trained"):
        lara.explain([0])


def test_explaining_needs_no_model_call():
    model = SmallGCN()
    lara = LARA(model, GRAPH, FEATURES, hops=2, config=QUICK).fit(torch.arange(60))
    calls = lara.game.caller.num_calls
    lara.explain(range(60))
    assert lara.game.caller.num_calls == calls


def test_the_model_is_left_as_it_was():
    model = SmallGCN().train()
    LARA(model, GRAPH, FEATURES, hops=2, config=QUICK).fit(range(60)).explain([0])
    assert model.training
    assert all(weight.grad is None for weight in model.parameters())
    assert not GRAPH.ndata and not GRAPH.edata


def test_bool_masks_and_other_classes():
    lara = LARA(SmallGCN(), GRAPH, FEATURES, hops=2, config=QUICK)
    mask = torch.zeros(60, dtype=torch.bool)
    mask[[2, 7]] = True
    lara.fit(torch.arange(60))
    explanations = lara.explain(mask, classes=[0, 2])
    assert explanations.players.targets.tolist() == [2, 7]
    assert explanations.explained_class.tolist() == [0, 2]


def test_hops_are_set_declared_or_measured():
    model = SmallGCN(layers=2)
    assert choose_hops(model, GRAPH, FEATURES, NODE, 5) == 5
    assert choose_hops(model, GRAPH, FEATURES, NODE, "auto") == 3  # Eq. 13: two layers, and the boundary's degrees
    model.num_hops = 7
    assert choose_hops(model, GRAPH, FEATURES, NODE, "auto") == 7
    assert choose_hops(model, GRAPH, FEATURES, NODE, "measure") == 3
    with raises("hops.range", got="three"):
        choose_hops(model, GRAPH, FEATURES, NODE, "three")


@pytest.mark.parametrize(("targets", "code"), [([60], "targets.range"), ([-1], "targets.range"), ([], "targets.none")])
def test_bad_targets(targets, code):
    with raises(code):
        LARA(SmallGCN(), GRAPH, FEATURES, hops=2, config=QUICK).fit(targets)


def test_a_tenth_is_held_out_and_the_best_weights_are_used(monkeypatch):
    from dgl_lara.inference import fitting as module

    seen = {}

    def spied(backend, targets, validation, *more):
        seen["targets"], seen["validation"] = targets, validation
        seen["state"] = train(backend, targets, validation, *more)
        for weight in seen["state"].best_weights.values():
            weight += 1  # told apart from the last average
        return seen["state"]

    train = module.train
    monkeypatch.setattr(module, "train", spied)
    lara = LARA(SmallGCN(), GRAPH, FEATURES, hops=2, config=QUICK).fit(range(60))
    assert (len(seen["targets"]), len(seen["validation"])) == (54, 6)
    assert torch.cat([seen["targets"], seen["validation"]]).sort().values.tolist() == list(range(60))
    torch.testing.assert_close(lara.explainer_.state_dict(), seen["state"].best_weights)


def test_hops_are_measured_in_few_calls():
    """All sampled nodes in one call for each radius, and two calls of the whole graph before."""
    model, calls = SmallGCN(layers=2), []

    def counted(graph, features):
        calls.append(graph.num_nodes())
        return model(graph, features)

    assert choose_hops(counted, GRAPH, FEATURES, NODE, "measure") == 3
    assert len(calls) == 2 + 1 + 5  # untouched (twice, to see whether it is random), its own answer, radius 0 to 4


def test_another_graph_is_noted(tmp_path, notices):
    lara = LARA(SmallGCN(), GRAPH, FEATURES, hops=2, config=QUICK).fit(range(60))
    lara.save(tmp_path / "lara.pt")
    notices.records.clear()
    LARA.load(tmp_path / "lara.pt", SmallGCN(), GRAPH, FEATURES)
    assert not notices.codes
    LARA.load(tmp_path / "lara.pt", SmallGCN(), random_graph(20, 40, 1), FEATURES[:20])
    fields = notices.fields("samples.other_graph")
    assert (fields["now"], fields["then"]) == (20, 60)


@pytest.mark.parametrize("classes", [(1, 1), [(0, 1), (2, 2), (0, 2)]])
def test_no_class_is_set_against_itself(classes):
    with raises("classes.same"):
        parse_classes(classes, 3, 3, torch.device("cpu"))


def test_saved_and_loaded(tmp_path):
    """On the same graph the same scores; settings travel along; another model's features are refused."""
    model = SmallGCN()
    lara = LARA(model, GRAPH, FEATURES, hops=2, value="probability", config=QUICK).fit(range(60))
    expected = lara.explain(range(60))
    lara.save(tmp_path / "lara.pt")
    again = LARA.load(tmp_path / "lara.pt", model, GRAPH, FEATURES)
    assert again.config_ == QUICK and again.value == "probability" and again.task is NODE
    assert repr(again) == repr(lara) and "agreement" in repr(lara)
    torch.testing.assert_close(again.explain(range(60)).scores, expected.scores)
    few = LARA.load(str(tmp_path / "lara.pt"), model, GRAPH, FEATURES).explain([7, 3], classes=[0, 2])
    torch.testing.assert_close(few.scores, lara.explain([7, 3], classes=[0, 2]).scores, atol=1e-5, rtol=1e-4)
    narrow = LARA.load(tmp_path / "lara.pt", SmallGCN(in_dim=2), GRAPH, FEATURES[:, :2])
    with raises("explainer.inputs", expected=10, got=9):
        narrow.explain([7])
    (tmp_path / "other.pt").write_bytes((tmp_path / "lara.pt").read_bytes()[:500])
    with raises("file.no_checkpoint"):
        LARA.load(tmp_path / "other.pt", model, GRAPH, FEATURES)
    for other in (model.state_dict(), torch.zeros(3)):
        torch.save(other, tmp_path / "other.pt")
        with raises("explainer.file"):
            LARA.load(tmp_path / "other.pt", model, GRAPH, FEATURES)


def test_another_model_is_noted(tmp_path, notices):
    model, path = SmallGCN(), tmp_path / "lara.pt"
    LARA(model, GRAPH, FEATURES, hops=2, config=replace(QUICK, shared_pairs=20)).fit(range(60)).save(path)
    notices.records.clear()
    for other, is_noted in ((model, False), (SmallGCN(seed=5), True)):
        lara = LARA.load(path, other, GRAPH, FEATURES)
        assert lara.samples_ is not None
        assert notices.codes.count("model.other_weights") == is_noted
        for targets in (range(60), [7]):
            lara.explain(targets)
            assert (notices.codes[-1:] == ["samples.other_model"]) == is_noted
            notices.records.clear()
    LARA.load(path, model, GRAPH, FEATURES).explain([7], classes=[0])
    larger, features = dgl.add_nodes(GRAPH, 1), torch.cat([FEATURES, FEATURES[:1]])
    LARA.load(path, model, larger, features).explain([7])
    assert notices.codes == ["samples.other_graph"]  # another class and a larger graph are no other model
    LARA.load(path, lambda graph, x: model(graph, x), GRAPH, FEATURES)
    assert notices.codes == ["samples.other_graph"]  # the weights of a plain function are unknown


def test_a_loaded_lara_calls_f_around_the_targets_only(tmp_path):
    """One target of a long path: f sees a part of it, once for its answer and then for coalitions of the ego graph."""
    path = dgl.graph((range(199), range(1, 200)))
    features = torch.randn(200, 3, generator=torch.Generator().manual_seed(1))
    model = SmallGCN()
    LARA(model, path, features, hops=2, config=QUICK).fit(range(200)).save(tmp_path / "lara.pt")
    sizes = []

    def watched(graph, x):
        sizes.append(graph.num_nodes())
        return model(graph, x)

    explanation = LARA.load(tmp_path / "lara.pt", watched, path, features).explain([100])[0]
    assert "Node 100 " in explanation.in_words()
    assert 0 < max(sizes) < 60


def test_little_memory_means_mini_batches_in_python_too():
    lara = LARA(SmallGCN(), GRAPH, FEATURES, hops=2, memory=10_000)
    lara.config = None
    lara.game  # noqa: B018 (made now, with its budget)
    assert within_memory(default("node", 60), lara.game).batch_size == MINI_BATCHES["batch_size"]
    assert within_memory(default("node", 60), LARA(SmallGCN(), GRAPH, FEATURES, hops=2).game).batch_size == ALL


def test_repr():
    lara = LARA(SmallGCN(), GRAPH, FEATURES, hops=2, config=QUICK)
    assert repr(lara).startswith("LARA(") and "SmallGCN" in repr(lara) and "not trained" in repr(lara)
    assert lara._game is None  # nothing is computed for it
    best = max(row["agreement"] for row in lara.fit(range(60)).history_)
    for part in ("K = 2", "gate walk", f"{best:.3f}", "40 steps"):
        assert part in repr(lara)
    graphs = LARA(lambda graph, x: x, dgl.batch([GRAPH, GRAPH]), FEATURES.repeat(2, 1), task="graph")
    assert "2 graphs" in repr(graphs)


def test_a_callback_takes_every_row_of_the_history():
    rows, kept = [], {}

    def keep(state):
        kept[state.step] = copy.deepcopy(state.to_dict())

    lara = LARA(SmallGCN(), GRAPH, FEATURES, hops=2, config=QUICK)
    lara.fit(range(60), checkpoint=keep, callback=rows.append)
    assert rows == lara.history_ and len(rows) == 20 and set(rows[0]) == {"step", "epoch", "loss", "agreement"}
    again = []
    LARA(SmallGCN(), GRAPH, FEATURES, hops=2, config=QUICK).fit(range(60), resume=kept[20], callback=again.append)
    assert [row["step"] for row in again] == [row["step"] for row in rows[10:]]  # a resumed one repeats nothing


def test_a_pair_is_not_two_targets():
    lara = LARA(SmallGCN(), GRAPH, FEATURES, hops=2, config=QUICK).fit(range(60))
    with raises("targets.shape", got=(1, 2)):
        lara.explain([(3, 4)])
    assert len(lara.explain(3)) == 1


def test_explanations_from_neighborhoods_can_be_refined_and_verified(tmp_path):
    """The near game knows f's answers around the target only; that is enough, and nothing turns into NaN."""
    model = SmallGCN()
    whole = LARA(model, GRAPH, FEATURES, hops=2, config=QUICK).fit(range(60))
    whole.save(tmp_path / "lara.pt")
    near = LARA.load(tmp_path / "lara.pt", model, GRAPH, FEATURES)
    refined = near.refine(near.explain([7]), 200)
    assert not near.is_embedded and near._game is None
    whole.embed()
    expected = whole.refine(whole.explain([7]), 200)
    torch.testing.assert_close(refined.explanations.scores, expected.explanations.scores, atol=0.05, rtol=0.05)
    assert 0 < float(refined.moved) < 5
    verdict = near.verify(refined.explanations)
    assert verdict.notna().all().all()


def test_targets_do_not_depend_on_each_other():
    lara = LARA(SmallGCN(), GRAPH, FEATURES, hops=2, config=QUICK).fit(range(60))
    buy = {
        "refine": lambda found: lara.refine(found, 20).explanations.scores,
        "settle": lambda found: lara.refine_until(found, 0.99).explanations.scores,
        "verify": lambda found: torch.tensor(lara.verify(found).filter(like="fidelity").to_numpy()),
    }
    for name, bought in buy.items():
        together = bought(lara.explain([5, 6, 7], corrected=False))
        alone = torch.cat([bought(lara.explain([target], corrected=False)) for target in (5, 6, 7)])
        torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-5, msg=lambda text, name=name: f"{name}: {text}")


def test_an_untrained_lara_raises_errors():
    lara = LARA(SmallGCN(), GRAPH, FEATURES, hops=2)
    for ask in (lara.embed, lara.scorer, lambda: lara.top([1]), lambda: lara.explain([1]), lambda: lara.save("x.pt")):
        with raises("lara.not_trained"):
            ask()


def test_a_missing_file_is_called_missing():
    with raises("file.missing", InputError):
        LARA.load("nowhere.pt", SmallGCN(), GRAPH, FEATURES)


def test_numpy_numbers_are_numbers():
    config = TrainingConfig(seed=np.int64(3), dim=np.int32(4))
    assert (type(config.seed), type(config.dim), config.seed) == (int, int, 3)
