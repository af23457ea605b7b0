"""The estimator: five lines, scikit-learn manners, any callable."""

import pytest
import torch
from games import SmallGCN, random_graph

from dgl_lara import LARA, Explanations
from dgl_lara.errors import InputError, LaraError
from dgl_lara.lara import choose_hops
from dgl_lara.training.loop import TrainingConfig

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
    assert frame.columns.tolist() == ["target", "player", "hop", "score", "rank", "explained_class"]
    assert frame.score.std() > 0


def test_the_constructor_only_stores():
    def never(graph, features):
        raise AssertionError("called too early")

    lara = LARA(never, GRAPH, FEATURES)
    assert lara.model is never
    with pytest.raises(LaraError, match="call fit"):
        lara.explain([0])


def test_explaining_needs_no_model_call():
    model = SmallGCN()
    lara = LARA(model, GRAPH, FEATURES, hops=2, config=QUICK).fit(torch.arange(60))
    calls = lara.game_.calls
    lara.explain(range(60))
    assert lara.game_.calls == calls


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


def test_hops_are_asked_declared_or_measured():
    model = SmallGCN(layers=2)
    assert choose_hops(model, GRAPH, FEATURES, "node", 5) == 5
    assert choose_hops(model, GRAPH, FEATURES, "node", "auto") == 3  # Eq. 13: two layers, and the boundary's degrees
    model.num_hops = 7
    assert choose_hops(model, GRAPH, FEATURES, "node", "auto") == 7
    assert choose_hops(model, GRAPH, FEATURES, "node", "measure") == 3
    with pytest.raises(InputError, match="'auto' or 'measure'"):
        choose_hops(model, GRAPH, FEATURES, "node", "three")


@pytest.mark.parametrize(("targets", "sentence"), [([60], r"0\.\.59 \(got 60\)"), ([], "no targets"), ([-1], "got -1")])
def test_bad_targets(targets, sentence):
    with pytest.raises(InputError, match=sentence):
        LARA(SmallGCN(), GRAPH, FEATURES, hops=2, config=QUICK).fit(targets)


def test_a_tenth_is_held_out_and_the_best_weights_are_used(monkeypatch):
    from dgl_lara import lara as module

    seen = {}

    def spied(game, config, targets, validation):
        seen["targets"], seen["validation"] = targets, validation
        seen["state"] = train(game, config, targets, validation)
        for weight in seen["state"].best_weights.values():
            weight += 1  # told apart from the last average
        return seen["state"]

    train = module.train
    monkeypatch.setattr(module, "train", spied)
    lara = LARA(SmallGCN(), GRAPH, FEATURES, hops=2, config=QUICK).fit(range(60))
    assert (len(seen["targets"]), len(seen["validation"])) == (54, 6)
    assert torch.cat([seen["targets"], seen["validation"]]).sort().values.tolist() == list(range(60))
    torch.testing.assert_close(lara.explainer_.state_dict(), seen["state"].best_weights)
