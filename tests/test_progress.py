"""Nobody waits in silence: what is shown, when, and with which estimate; -q and -v; evaluations that take long."""

import ast
import importlib.util
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
from games import gcn_game

import dgl_lara
from dgl_lara._util import progress
from dgl_lara._util.progress import Progress, detail, duration, log_info, phase, repeat, resting, set_loudness, working
from dgl_lara.cli import console, heartbeat, main
from dgl_lara.errors import InputError
from dgl_lara.evaluation import runtime_estimate as forecasts
from dgl_lara.evaluation.run_evaluation import Evaluation, evaluate
from dgl_lara.game.caller import ModelCaller
from dgl_lara.lara import LARA
from dgl_lara.messages import message
from dgl_lara.metrics.common.metric import EvalCase
from dgl_lara.training.config import TrainingConfig


@pytest.fixture
def impatient(monkeypatch):
    """A second becomes a fraction; long enough that a busy machine is not taken for long work."""
    monkeypatch.setattr(progress, "PATIENCE", 0.3)
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.15)


@pytest.fixture(autouse=True)
def as_usual(monkeypatch):
    monkeypatch.setattr(forecasts, "MIN_TIMED_SECONDS", 0.2)
    yield
    set_loudness(progress.USUAL)


def test_a_line_says_how_far_and_how_long():
    bar = Progress(range(300), "asking f")
    bar.done = 60
    bar.note(loss=0.25)
    assert bar.line(15) == "asking f: 60/300 after 15 s, about 60 s left, loss 0.25"
    resumed = Progress(range(100), "training", done=200)
    resumed.done = 250
    assert resumed.line(10) == "training: 250/300 after 10 s, about 10 s left"  # what was done before took no time now
    assert Progress(range(5), "x").line(3) == "x: 0/5 after 3 s"
    assert Progress(iter(()), "loading", total=0).line(3) == "loading: 0 after 3 s"


def test_a_slow_beginning_does_not_count_for_ever(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    bar = Progress(range(1000), "training")
    for seconds, done in ((60, 10), (5, 60), (5, 110), (5, 160)):  # the first step waits for the judge
        now[0] += seconds
        bar.done = done
        bar.show()
    now[0] += 5
    bar.done = 210
    assert bar.line(now[0] - 100) == "training: 210/1,000 after 80 s, about 79 s left"


def test_of_kinds_that_take_differently_long_nothing_is_foretold_before_each_was_timed(monkeypatch):
    """Two rivals of 2 s and one of 60 s, three rounds; in the last one the second takes ten times as long."""
    now, lines = [100.0], list[str]()
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(progress, "log_info", lines.append)
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 1000)
    for place, name in enumerate(progress.progress_by_group(["a", "b", "slow"] * 3, str, "comparing", done=2)):
        now[0] += 2
        progress._bars[-1].show()
        now[0] += {"slow": 58}.get(name, 0) if place != 7 else 18
        if place == 7:
            progress._bars[-1].show()
    assert lines[:3] == [
        "comparing: 2/11 after 2 s, a", "comparing: 3/11 after 4 s, b", "comparing: 4/11 after 6 s, slow",
    ]  # fmt: skip
    assert lines[3] == "comparing: 5/11 after 66 s, about 2 min left, a"  # 126 s
    assert lines[6:8] == [
        "comparing: 8/11 after 2 min, about 62 s left, a",
        "comparing: 9/11 after 2 min, about 60 s left, b",
    ]
    assert lines[8] == "comparing: 9/11 after 2 min, about 60 s left, b"  # slower than it was: the rest stays


@pytest.mark.parametrize("columns", [0, 80, 150])
def test_what_is_done_besides_the_items_is_not_taken_for_them(monkeypatch, columns):
    """Ten steps of a second each, then thirty seconds of judging, which will come twice more. Of a bar too."""

    class Terminal(io.StringIO):
        def isatty(self):
            return columns > 0

    now, shown = [100.0], Terminal()
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    monkeypatch.setattr("sys.stderr", shown)
    monkeypatch.setenv("COLUMNS", str(columns or 80))
    bar = Progress(range(30), "training")
    monkeypatch.setattr(bar.bar, "_time", lambda: now[0], raising=False)
    if columns:
        bar.bar.start_t = bar.bar.last_print_t = now[0]
    for _ in range(10):
        now[0] += 1
        bar.advance()
    with bar.aside(2):
        now[0] += 30
    now[0] += 1
    bar.advance()
    if columns:
        bar.show()
        assert shown.getvalue().split("[")[-1].startswith("00:41<01:19")
    else:
        assert bar.line(41) == "training: 11/30 after 41 s, about 79 s left"  # 19 + 2 x 30


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "1 s"), (99, "99 s"), (385, "6 min"), (1800, "30 min"), (5400, "1.5 h")]
)
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_a_bar_has_not_two_lines_within_a_second(monkeypatch, capsys):
    """Its own clock, that of what it is part of and that of the command may ask at one moment."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    bar = Progress(range(800), "training")
    for at, done in ((101.0, 18), (101.2, 23), (101.9, 30), (102.1, 40)):
        now[0], bar.done = at, done
        bar.show()
    said = capsys.readouterr().err.splitlines()
    assert [line.split(" after")[0] for line in said] == ["training: 18/800", "training: 40/800"]


def test_short_work_is_silent_and_long_work_is_not(impatient, capsys):
    list(Progress(range(3), "short"))
    with working("short too"):
        pass
    assert capsys.readouterr().err == ""
    for _ in Progress(range(8), "long"):
        time.sleep(0.1)
    said = capsys.readouterr().err.splitlines()
    assert len(said) >= 2 and all(re.fullmatch(r"long: \d/8 after \d+ s(, about \d+ s left)?", line) for line in said)
    with phase("reference attributions"), working("reading"):
        time.sleep(0.6)
    assert capsys.readouterr().err == "reference attributions: reading ...\n"


def test_one_long_item_gets_a_word_too(impatient, capsys):
    bar: Progress[None] = Progress(label="a single step", total=1)
    with bar:
        time.sleep(0.6)
        assert capsys.readouterr().err == "a single step: 0/1 after 1 s\n"
        bar.advance()


def test_on_a_terminal_a_bar(impatient, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    shown = Terminal()
    monkeypatch.setattr("sys.stderr", shown)
    with phase("fidelity of lara"):
        for _ in Progress(range(4), "asking f"):
            time.sleep(0.15)
    assert "fidelity of lara: asking f:" in shown.getvalue() and "/4 [" in shown.getvalue()


def test_a_bar_fits_the_terminal(impatient, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    shown = Terminal()
    monkeypatch.setattr("sys.stderr", shown)
    monkeypatch.setenv("COLUMNS", "80")
    with phase("agreement of a method with a long name"):
        steps = Progress(range(4), "asking f about shared coalitions", total=30_000, unit="evaluation")
        for _ in steps:
            steps.note(loss=0.123456, agreement=0.98765)
            time.sleep(0.15)
    drawn = [line for line in re.split("[\r\n]", shown.getvalue()) if "/30000" in line]
    assert drawn and max(map(len, drawn)) < 80 and all(re.search(r"…: +\d+%.*\[\d\d:\d\d<", line) for line in drawn)


def test_work_in_several_goes_is_one_bar(impatient, capsys):
    def ask():
        with repeat(2):
            for _ in range(2):
                list(map(time.sleep, Progress([0.1] * 2, "asking f")))

    with phase("reference attributions"), repeat(2):
        ask()
        ask()
    far = [
        re.match(r"reference attributions: asking f: (\d)/8 after", line)
        for line in capsys.readouterr().err.splitlines()
    ]
    done = [int(found[1]) for found in far if found]
    assert len(done) == len(far) > 1 and done == sorted(done) and done[-1] > 4 and progress.going_on == []
    list(map(time.sleep, Progress([0.1] * 5, "asking f")))
    assert "/5 after" in capsys.readouterr().err  # a bar of its own again


def test_an_interrupt_while_a_bar_is_made_stays_an_interrupt(monkeypatch):
    def interrupted(**settings):
        raise KeyboardInterrupt

    monkeypatch.setattr(progress, "Bar", interrupted)
    with pytest.raises(KeyboardInterrupt), repeat(2):
        Progress(range(3), "asking the model")


def test_the_reference_is_one_bar(monkeypatch):
    totals = []
    monkeypatch.setattr(Progress, "show", lambda bar: totals.append((bar.label, bar.done, bar.total)))
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    phi = EvalCase(gcn_game(nodes=60, edges=200), torch.arange(3), None, 40).phi
    assert phi.description.startswith(message("reference.estimated", pairs=40))
    for what, all_of_it in (
        ("asking the model about coalitions (random subsets)", 2 * 40 * 3),
        ("reading the model's answers", 2 * 3),
    ):
        of = [(done, total) for label, done, total in totals if label == f"reference attributions: {what}"]
        assert {total for _, total in of} == {all_of_it} and of == sorted(of) and of[-1][0] == all_of_it


def test_work_without_a_count_tells_of_what_is_counted_in_it(impatient, capsys):
    with working("learning"):
        list(map(time.sleep, Progress([0.1] * 6, "fitting")))
    said = capsys.readouterr().err.splitlines()
    assert said and all(re.match(r"learning: fitting: \d/6 after", line) for line in said)


def test_quiet_and_verbose(impatient, capsys):
    def noises():
        log_info("a notice")
        detail("a detail")
        for _ in Progress(range(3), "long"):
            time.sleep(0.2)
        return capsys.readouterr().err

    usual = noises()
    assert "a notice" in usual and "long" in usual and "a detail" not in usual
    set_loudness(progress.VERBOSE)
    assert "a detail" in noises()
    set_loudness(progress.QUIET)
    assert noises() == ""


def test_asking_f_shows_its_progress(impatient, capsys, monkeypatch):
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
    with phase("fidelity of lara"):
        game.values_per_target(players, torch.ones(12, len(players.player), dtype=torch.bool))
    said = capsys.readouterr().err.splitlines()
    assert said and all(
        line.startswith("fidelity of lara: asking the model about coalitions (random subsets): ") for line in said
    )
    assert any("left" in line for line in said)


def subject_of(pairs=None):
    game = gcn_game()
    lara = LARA.of_game(game, TrainingConfig(hidden=8, dim=3, masks=1, steps=2)).fit(range(12))
    return Evaluation(lara, EvalCase(game, torch.arange(12), None, 200), pairs)


def test_an_evaluation_that_takes_long_is_announced_with_fewer_targets(monkeypatch, notices):
    subject = subject_of()
    forecasts.announce(subject, ["fidelity", "agreement"])
    assert "evaluation.takes_long" not in notices.codes
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


def test_a_reference_that_does_not_fit_is_told_before_it_is_timed():
    game = gcn_game(nodes=60, edges=300)
    subject = Evaluation(LARA.of_game(game), EvalCase(game, torch.arange(12), None, 10**12), pairs=0)
    with pytest.raises(InputError, match="1,000,000,000,000 reference pairs of a target would take about"):
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
        assert ("--targets" in notices.fields("evaluation.takes_long")["shorter"]) == offered


def test_options_on_the_command_line(quick_runs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(quick_runs["ba-shapes"], "runs/mine")
    words = ["explain", "--node", "5"]
    quiet, usual, loud = (CliRunner().invoke(main, [*words, *more]) for more in (["--quiet"], [], ["-v"]))
    assert usual.stdout == loud.stdout == quiet.stdout != "" and quiet.stderr == ""
    assert "run runs/mine (the newest" in usual.stderr  # loudness is a command's own
    assert "reading ba-shapes: " in loud.stderr and "reading ba-shapes: " not in usual.stderr


# --- a command is never silent


class Thing:
    """Stands in for what is worked on."""


def watched(monkeypatch, work):
    monkeypatch.setattr(heartbeat, "SILENCE", 0.2)
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.6)
    over = threading.Event()
    thread = threading.Thread(target=heartbeat.watch, args=(over,))
    progress.heard()
    thread.start()
    try:
        work()
    finally:
        over.set()
        thread.join()


def test_silent_work_is_named_by_its_place(monkeypatch, capsys):
    """Once soon, then now and then; a line of its own spares the next."""
    monkeypatch.setitem(heartbeat.PLACES, __name__, "testing")
    watched(monkeypatch, lambda: time.sleep(1.3))
    assert capsys.readouterr().err.splitlines() in (["testing ..."] * 2, ["testing ..."])


def test_who_is_told_again_is_told_how_long_it_has_been(monkeypatch, capsys):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with working("learning"):
        _, tell = progress.going_on[-1]
        for _ in range(2):
            now[0] += 10
            tell()
    assert capsys.readouterr().err.splitlines() == ["learning ...", "learning ... for 20 s"]

    def talk():
        for _ in range(10):
            log_info("a word")
            time.sleep(0.05)

    watched(monkeypatch, talk)
    assert set(capsys.readouterr().err.splitlines()) == {"a word"}


def test_who_watches_ends_before_the_command_and_holds_nothing(monkeypatch, capsys):
    """A tensor that a thread lets go while the interpreter ends aborts the process."""
    monkeypatch.setattr(console, "LOADING", 0)
    monkeypatch.setattr(heartbeat, "SILENCE", 0.1)
    item = Thing()
    there = weakref.ref(item)
    with console.never_silent():
        progress.heard()
        bar = Progress([item], "asking f")
        for item in bar:  # noqa: B007
            time.sleep(0.5)
        del item
        assert "asking f" in capsys.readouterr().err  # it has been looked at
        assert there() is None and bar.done == 1
        names = {thread.name for thread in threading.enumerate()}
        assert console.WATCHER in names
    assert console.WATCHER not in {thread.name for thread in threading.enumerate()}


def test_one_long_item_is_told_of_again_and_again(monkeypatch, capsys):
    def work():
        bar: Progress[None] = Progress(label="asking f", total=3)
        with bar:
            bar.advance()
            time.sleep(1.5)

    watched(monkeypatch, work)
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("asking f: 1/3 after")]
    assert len(said) >= 2 and progress.going_on == []


def test_a_library_that_loads_long_is_told_of(monkeypatch, tmp_path, capsys):
    (tmp_path / "loads_long.py").write_text("import time\ntime.sleep(0.6)\n")
    monkeypatch.syspath_prepend(tmp_path)
    watched(monkeypatch, lambda: __import__("loads_long"))
    assert "loading libraries ..." in capsys.readouterr().err
    sys.modules.pop("loads_long")


def test_of_a_service_that_rests_nothing_is_said(monkeypatch, capsys):
    def work():
        with resting():
            time.sleep(0.8)

    watched(monkeypatch, work)
    assert capsys.readouterr().err == "" and progress.going_on == []


def test_compiling_is_said_of_compiling_alone(monkeypatch, tmp_path):
    """What was compiled before is only loaded, and every command does that."""
    from numba.core.compiler import CompileResult
    from numba.core.compiler_machinery import PassManager

    (tmp_path / "kernel.py").write_text("import numba\n\n\n@numba.njit(cache=True)\ndef f(x):\n    return x + 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    places: list[str] = []

    def noting(function):
        def noted(*given):
            places.append(heartbeat.place())
            return function(*given)

        return noted

    monkeypatch.setattr(PassManager, "_runPass", noting(PassManager._runPass))
    monkeypatch.setattr(CompileResult, "_rebuild", noting(CompileResult._rebuild))
    for words in ("compiling (once, the result is kept)", "loading compiled code"):
        places.clear()
        assert importlib.import_module("kernel").f(1.0) == 2
        assert set(places) == {words}
        sys.modules.pop("kernel")


def test_every_place_that_is_named_exists():
    for place in heartbeat.PLACES:
        assert importlib.util.find_spec(place) is not None


def test_a_terminal_that_does_not_say_how_large_it_is(monkeypatch):
    """As those of containers and of `script`: it has no columns and no lines, and the bar is there all the same."""
    mine, its = pty.openpty()
    monkeypatch.delenv("COLUMNS", raising=False)
    with os.fdopen(its, "w") as terminal, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stderr", terminal)
        patch.setattr(progress, "PATIENCE", 0)
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
                "working",
                "say",
                "echo",
            ):
                texts = (one.value for given in [*call.args, *call.keywords] for one in ast.walk(given)
                         if isinstance(one, ast.Constant) and isinstance(one.value, str))  # fmt: skip
                yield from ((path.name, text) for text in texts)


def test_the_letters_of_the_paper_are_not_spoken():
    found = list(spoken())
    assert len(found) > 100
    letters = re.compile(r"(?<![\w.'])(f|g|phi|judge)(?![\w.:])")
    assert [(name, text) for name, text in found if letters.search(text)] == []


@pytest.mark.parametrize("speaks", [False, True])
def test_work_in_many_short_parts_has_a_first_word(monkeypatch, capsys, speaks):
    monkeypatch.setattr(progress, "PATIENCE", 0.05)
    with progress.with_status("preparing"):
        if speaks:
            progress.log_info("asking the model")
        time.sleep(0.3)
    assert capsys.readouterr().err.count("preparing ...") == (not speaks)
