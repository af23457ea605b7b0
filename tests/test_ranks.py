"""Several processes that train one explainer: real ones, started here, against one."""

import pytest
import torch
import training_together
from training_together import CASES, start, trained

from dgl_lara.utils.ranks import ALONE

COUNT = 3  # shares are uneven, and where there are two masks one process has none


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """What three processes came to, and what they said."""
    folder = tmp_path_factory.mktemp("together")
    processes = start(COUNT, folder, training_together.__file__, folder / "states.pt", OMP_NUM_THREADS=1)
    said = [process.communicate(timeout=300) for process in processes]
    assert [process.returncode for process in processes] == [0] * COUNT, said
    return torch.load(folder / "states.pt", weights_only=True), said


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[1]}-{case[0]}")
def test_processes_equal_one(together, case):
    """Weights, loss, agreement, what is kept and what it cost; to rounding."""
    alone, joint = trained(*case).to_dict(), together[0][case]
    assert abs(alone["history"][0]["loss"] - alone["history"][-1]["loss"]) > 1e-3
    for name in ("explainer", "average", "best_weights"):
        torch.testing.assert_close(joint[name], alone[name], atol=1e-5, rtol=1e-4)
    assert len(joint["history"]) == len(alone["history"]) > 1
    for ours, theirs in zip(joint["history"], alone["history"], strict=True):
        assert ours == pytest.approx(theirs, abs=1e-4)
    assert joint["nodes_asked"] == alone["nodes_asked"]
    for name in ("shared", "running_mean"):
        assert (joint[name] is None) == (alone[name] is None)
        for part, ours in (joint[name] or {}).items():
            torch.testing.assert_close(ours, alone[name][part], atol=1e-4, rtol=1e-3)


def test_both_modes_keep_what_they_should(together):
    assert together[0]["all", "balanced"]["shared"]["seen"] == 12
    assert together[0][16, "running-mean"]["running_mean"]["visits"].sum() == 60  # three epochs of 20 targets
    assert together[0][16, "graphs"]["shared"] is None


def test_who_knows_otherwise_is_refused_by_all(together):
    sentence = "processes that train together must agree: colour is blue in process 0 and red in process 1.\n"
    assert [said for said, _ in together[1]] == [sentence] * COUNT


def test_alone_everything_is_ones_own():
    assert ALONE.share(7) == slice(0, 7)
    own = torch.ones(2)
    assert ALONE.joined(own, slice(0, 2), 2) is own
    assert ALONE.total(3, 4) == [3, 4]
