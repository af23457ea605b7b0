"""Progress of long work: what is shown, when, and with which estimate. -q and -v. Forecasts of evaluations."""

import ast
import io
import os
import pty
import re
import shutil
import sys
import threading
import time
import weakref
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from codes import raises
from games import gcn_game

import dgl_lara
from dgl_lara._util import progress
from dgl_lara._util.progress import Progress, detail, duration, idle, log_info, phase, set_loudness, status
from dgl_lara.cli import console, main
from dgl_lara.errors import InputError
from dgl_lara.evaluation import runtime_estimate as forecasts
from dgl_lara.evaluation.run_evaluation import Evaluation, evaluate
from dgl_lara.game.caller import ModelCaller
from dgl_lara.lara import LARA
from dgl_lara.metrics.common.metric import EvalCase
from dgl_lara.training.config import TrainingConfig


@pytest.fixture
def impatient(monkeypatch):
    """Use a fraction of a second, long enough that a busy machine is not taken for long work."""
    monkeypatch.setattr(progress, "DELAY", 0.3)
    monkeypatch.setattr(progress, "INTERVAL", 0.15)
    monkeypatch.setattr(progress, "_last_output", 0.0)


@pytest.fixture(autouse=True)
def usual_loudness(monkeypatch):
    monkeypatch.setattr(forecasts, "MIN_TIMED_SECONDS", 0.2)
    yield
    set_loudness(progress.USUAL)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_line_shows_count_time_and_figures():
    bar = Progress(range(300), "asking f")
    bar.done = 60
    bar.note(loss=0.25)
    assert bar.line(15) == "asking f: 60/300 after 15 s, about 60 s left, loss 0.25"
    resumed = Progress(range(100), "training", done=200)
    resumed.done = 250
    assert resumed.line(10) == "training: 250/300 after 10 s, about 10 s left"  # earlier steps took no time now
    assert Progress(range(5), "x").line(3) == "x: 0/5 after 3 s"
    assert Progress(iter(()), "loading", total=0).line(3) == "loading: 0 after 3 s"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "1 s"), (99, "99 s"), (385, "6 min"), (1800, "30 min"), (5400, "1.5 h")]
)
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_only_long_work_is_shown(impatient, capsys):
    list(Progress(range(3), "short"))
    with status("short too"):
        pass
    assert capsys.readouterr().err == ""
    for _ in Progress(range(10), "long"):
        time.sleep(0.1)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) >= 2
    assert all(re.fullmatch(r"long: \d+/10 after \d+ s(, about \d+ s left)?", line) for line in lines)
    assert progress._stack == []


def test_labels_of_nested_work(impatient, capsys):
    with phase("attributions"), status("reading"):
        time.sleep(0.5)
    with status("learning"):
        list(map(time.sleep, Progress([0.1] * 6, "fitting")))
    with status("training", as_prefix=False):
        list(map(time.sleep, Progress([0.1] * 6, "steps")))
    lines = capsys.readouterr().err.splitlines()
    assert {re.split(" \\.\\.\\.|: \\d", line)[0] for line in lines} == {
        "attributions: reading", "learning: fitting", "steps",
    }  # fmt: skip


def test_repeated_lines_show_the_time(impatient, capsys):
    with status("learning"):
        time.sleep(1.0)
    first, *others = capsys.readouterr().err.splitlines()
    assert first == "learning ..." and set(others) == {"learning ... 1 s"}


@pytest.mark.parametrize("columns", ["80", "150", None])
def test_a_bar_on_a_terminal_fits_it(impatient, monkeypatch, columns):
    shown = Terminal()
    monkeypatch.setattr("sys.stderr", shown)
    monkeypatch.setenv("COLUMNS", columns or "0")
    with phase("agreement of a method with a long name"):
        steps = Progress(range(6), "asking f about shared coalitions", total=30_000, unit="evaluation")
        for _ in steps:
            steps.note(loss=0.123456, agreement=0.98765)
            time.sleep(0.15)
    drawn = [line for line in re.split("[\r\n]", shown.getvalue()) if "/30000" in line]
    assert drawn and max(map(len, drawn)) < int(columns or 1000)


def test_quiet_and_verbose(impatient, capsys):
    def noises():
        log_info("a notice")
        detail("a detail")
        progress._last_output = 0
        for _ in Progress(range(5), "long"):
            time.sleep(0.2)
        return capsys.readouterr().err

    usual = noises()
    assert "a notice" in usual and "long" in usual and "a detail" not in usual
    set_loudness(progress.VERBOSE)
    assert "a detail" in noises()
    set_loudness(progress.QUIET)
    assert noises() == ""


def test_model_calls_show_progress(impatient, capsys, monkeypatch):
    """The loop under fidelity, sampling and every reference."""
    game = gcn_game()
    original = ModelCaller.__call__

    def slow(self, graph, features):
        time.sleep(0.06)
        return original(self, graph, features)

    monkeypatch.setattr(ModelCaller, "__call__", slow)
    game.caller.nodes_per_call = 1  # many small calls
    players = game.players(torch.tensor([5]))
    capsys.readouterr()
    progress._last_output = 0
    with phase("fidelity"):
        game.values_per_target(players, torch.ones(12, len(players.player), dtype=torch.bool))
    lines = capsys.readouterr().err.splitlines()
    assert lines and all(line.startswith("fidelity: ") for line in lines)


def subject_of(pairs=None):
    game = gcn_game()
    lara = LARA.of_game(game, TrainingConfig(hidden=8, dim=3, masks=1, steps=2)).fit(range(12))
    return Evaluation(lara, EvalCase(game, torch.arange(12), None, 200), pairs)


def test_an_evaluation_that_takes_long_is_announced_with_fewer_targets(monkeypatch, notices):
    subject = subject_of()
    forecasts.announce(subject, ["fidelity", "agreement"])
    assert not notices.has("evaluation.takes_long")
    monkeypatch.setattr(forecasts, "_seconds_per_player", lambda *a: 0.1)  # a slow model
    expected = forecasts.estimate_runtime(subject, ["fidelity"])
    players = float(subject.case.game.players(subject.case.targets).counts.sum())
    methods = len(subject.explanations)
    assert methods >= 3 and expected.parts["fidelity"] == pytest.approx(0.1 * players * 2 * 2 * 5 * methods)
    assert expected.parts["sampled 300"] >= 0.1 * players * 600
    forecasts.announce(subject, ["fidelity"])
    fields = notices.fields("evaluation.takes_long")
    assert re.fullmatch(r"sampled 300 .*, fidelity .*", fields["parts"])
    assert "--targets " in fields["shorter"] and "--pairs 0" in fields["shorter"]
    of_report = forecasts.estimate_runtime(subject, ["fidelity"], examples=3).parts
    assert of_report["speed"] == pytest.approx(2 * 3 / 12 * of_report["sampled 300"])  # after a warm-up
    assert of_report["examples"] == pytest.approx(0.1 * players * 2 * 5)
    assert not forecasts.estimate_runtime(subject, ["auc"]).parts  # without a ground truth nothing is measured
    without = forecasts.estimate_runtime(subject_of(pairs=0), ["fidelity"])
    assert list(without.parts) == ["fidelity"] and without.seconds < expected.seconds
    assert expected.fewer_targets < 12


def test_the_forecast_is_of_the_right_size():
    """Against the clock, within a factor: a guess that is far off would be worse than none."""
    subject = subject_of(pairs=200)
    expected = forecasts.estimate_runtime(subject, ["fidelity"]).parts["sampled 200"]
    start = time.perf_counter()
    subject.explanations  # noqa: B018 (makes them)
    spent = time.perf_counter() - start
    assert expected / 8 < spent < expected * 8


def test_memory_of_a_reference_is_checked_before_it_is_timed():
    game = gcn_game(nodes=60, edges=300)
    subject = Evaluation(LARA.of_game(game), EvalCase(game, torch.arange(12), None, 10**12), pairs=0)
    with raises("memory.exceeded", InputError):
        forecasts.estimate_runtime(subject, ["agreement"])


def test_the_forecast_of_fidelity_counts_the_cutting_out(monkeypatch):
    """Each target's surroundings are cut out anew for a few coalitions: where that is slow, so is fidelity."""
    subject = subject_of(pairs=0)
    task, cut = type(subject.case.game.task), subject.case.game.task.ego_batch
    subject.explanations  # noqa: B018 (makes them)

    def slowly(self, graph, targets, *more):
        time.sleep(0.02 * len(targets))
        return cut(graph, targets, *more)

    monkeypatch.setattr(task, "ego_batch", slowly)
    expected = forecasts.estimate_runtime(subject, ["fidelity"]).seconds
    start = time.perf_counter()
    evaluate(subject, "fidelity")
    spent = time.perf_counter() - start
    # counted once, the cutting would be a twelfth of that; a busy machine is allowed for
    assert spent > 0.02 * 12 * 2 * 2 * 3 and spent / 2 < expected < 2 * spent


def test_the_forecast_times_the_regressions_that_will_be_made(monkeypatch):
    """The reference fits phi otherwise than `sampled` does, which on a dense graph takes half as long."""
    subject = subject_of(pairs=0)
    monkeypatch.setattr(forecasts, "MAX_EXACT_PLAYERS", 2)
    monkeypatch.setattr(forecasts, "unbiased", lambda *a: time.sleep(0.1))
    expected = forecasts.estimate_runtime(subject, ["agreement"]).parts["reference attributions"]
    assert expected == pytest.approx(2 * 12 * 0.1, rel=0.5)


def test_the_forecast_leaves_the_first_call_of_f_out(monkeypatch):
    """Which loads libraries and compiles: it would be taken for the price of every call."""
    subject = subject_of(pairs=0)
    warm = forecasts.estimate_runtime(subject, ["fidelity"]).seconds
    original, calls = ModelCaller.__call__, []

    def slow_at_first(self, graph, features):
        calls.append(graph)
        time.sleep(1.0 if len(calls) == 1 else 0)
        return original(self, graph, features)

    monkeypatch.setattr(ModelCaller, "__call__", slow_at_first)
    assert forecasts.estimate_runtime(subject, ["fidelity"]).seconds < warm + 1 and len(calls) > 1


def test_few_targets_less_are_not_offered(monkeypatch, notices):
    subject = subject_of(pairs=0)
    for seconds, offered in ((61, False), (600, True)):
        estimate = forecasts.RuntimeEstimate({"fidelity": seconds}, 70)
        monkeypatch.setattr(forecasts, "estimate_runtime", lambda *a, estimate=estimate: estimate)
        forecasts.announce(subject, ["fidelity"])
        remedy = notices.fields("evaluation.takes_long")["shorter"]
        assert ("--targets" in remedy) == offered


def test_options_on_the_command_line(quick_runs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(quick_runs["ba-shapes"], "runs/mine")
    words = ["explain", "--node", "5"]
    quiet, usual, loud = (CliRunner().invoke(main, [*words, *more]) for more in (["--quiet"], [], ["-v"]))
    assert usual.stdout == loud.stdout == quiet.stdout != "" and quiet.stderr == ""
    assert "runs/mine" in usual.stderr  # -q holds for one command
    assert "reading " in loud.stderr and "reading " not in usual.stderr


# --- a command is never silent


class Thing:
    """Stands for what is worked on."""


def test_a_silent_command_is_reported_and_frees_its_objects(impatient, monkeypatch, capsys):
    """Freeing a tensor in a thread during interpreter shutdown aborts the process."""
    monkeypatch.setattr(console, "SILENCE", 0)
    item = Thing()
    there = weakref.ref(item)
    with console.never_silent():
        assert console.WATCHER in {thread.name for thread in threading.enumerate()}
        time.sleep(0.7)
        assert capsys.readouterr().err.startswith("working ...\n")
        progress._last_output = 0
        bar = Progress([item], "asking f")
        del item
        for _ in bar:
            time.sleep(0.7)
        del _
        assert set(capsys.readouterr().err.splitlines()) == {"asking f: 0/1 after 1 s"}
        assert there() is None
        with idle():
            time.sleep(0.7)
        assert capsys.readouterr().err == ""
    assert console.WATCHER not in {thread.name for thread in threading.enumerate()}


def test_a_terminal_without_a_size(monkeypatch):
    """Those of containers and of `script` have no columns and no lines. The bar is shown all the same."""
    mine, its = pty.openpty()
    monkeypatch.delenv("COLUMNS", raising=False)
    with os.fdopen(its, "w") as terminal, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stderr", terminal)
        patch.setattr(progress, "DELAY", 0.01)
        for _ in Progress(range(3), "doing"):
            time.sleep(0.15)
    assert "doing:" in os.read(mine, 4096).decode()
    os.close(mine)


def spoken():
    """Every text of the package that is shown while it works, with the file that it stands in."""
    for path in sorted(Path(dgl_lara.__file__).parent.rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") in (
                "Progress",
                "phase",
                "status",
                "log_info",
                "echo",
            ):
                texts = (one.value for given in [*call.args, *call.keywords] for one in ast.walk(given)
                         if isinstance(one, ast.Constant) and isinstance(one.value, str))  # fmt: skip
                yield from ((path.name, text) for text in texts)


def test_the_letters_of_the_paper_are_not_spoken():
    found = list(spoken())
    assert len(found) > 30
    letters = re.compile(r"(?<![\w.'])(f|g|phi|judge)(?![\w.:])")
    assert [(name, text) for name, text in found if letters.search(text)] == []
