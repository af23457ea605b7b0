"""Several processes that train one explainer: real ones, started here, against one."""

import pytest
import torch
from processes_at_work import COUNT
from training_together import CASES, LONGER, trained

from dgl_lara._util.distributed import ALONE
from dgl_lara.errors import message

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def states(together):
    return torch.load(together / "states.pt", weights_only=True)


@pytest.mark.usefixtures("hardly_judged")
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[1]}-{case[0]}")
def test_processes_equal_one(states, case):
    """Weights, loss, agreement, what is kept and what it cost; to rounding."""
    alone, joint = trained(*case).to_dict(), states[case]
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


def test_both_modes_keep_what_they_should(states):
    assert states["all", "balanced"]["shared"]["seen"] == 12
    assert states["all", "pool"]["shared"]["seen"] == states["all", "pool"]["pool"] == 5
    assert states[16, "running-mean"]["running_mean"]["visits"].sum() == 60  # three epochs of 20 targets
    assert states[16, "graphs"]["shared"] is None


def test_differing_settings_are_refused_by_all_processes(together):
    sentence = message("processes.differ", name="colour", first="blue", other="red", rank=1)
    assert [file.read_text() for file in sorted(together.glob("refused-*.txt"))] == [sentence] * COUNT


@pytest.mark.usefixtures("hardly_judged")
def test_one_that_is_killed_within_a_step_leaves_the_step_before(together):
    """The first process misses it, and keeps a state from which the training goes on as if no process had ended."""
    assert (together / "lost-0.txt").read_text() == "processes.lost"
    kept = torch.load(together / "kept.pt", weights_only=True)
    assert (kept["step"], kept["shared"]["seen"]) == (6, 12)
    resumed = trained("all", "balanced", resume=kept, **LONGER).to_dict()
    unbroken = trained("all", "balanced", **LONGER).to_dict()
    assert resumed["step"] == 12 and len(resumed["history"]) == len(unbroken["history"])
    torch.testing.assert_close(resumed["explainer"], unbroken["explainer"], atol=1e-5, rtol=1e-4)
    assert torch.equal(resumed["shared"]["rows"], unbroken["shared"]["rows"])


def test_alone_everything_is_ones_own():
    assert ALONE.share(7) == slice(0, 7)
    own = torch.ones(2)
    assert ALONE.joined(own, slice(0, 2), 2) is own
    assert ALONE.total(3, 4) == [3, 4]
