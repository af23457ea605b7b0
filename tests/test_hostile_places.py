"""Full disks, read-only folders, no home, Ctrl-C at any moment, many threads: one sentence, or it goes on."""

import errno
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import click
import numpy as np
import pandas as pd
import pytest
import torch
from codes import raises, run
from games import SmallGCN, random_graph
from processes import Forked
from test_bulk import bulk

from dgl_lara import LARA, TrainingConfig
from dgl_lara._util.atomic import atomic_write, save_tensors
from dgl_lara._util.interrupts import held_back_interrupts
from dgl_lara._util.numba_threads import kernel
from dgl_lara._util.writable import obstacle_to_write
from dgl_lara.blackbox.eval_mode import eval_mode
from dgl_lara.datasets import cache, load
from dgl_lara.errors import InputError
from dgl_lara.explanation import Explanations
from dgl_lara.explanation.sentence import ALONE
from dgl_lara.game.game import Game
from dgl_lara.gnns import Recipe
from dgl_lara.gnns.training import get_gnn
from dgl_lara.inference import export
from dgl_lara.inference.embedding_store import EmbeddingStore
from dgl_lara.inference.scorer import Scorer

NOWHERE = Path("/proc/self/nowhere")  # not even root can write here
QUICK = TrainingConfig(hidden=8, dim=4, masks=1, steps=3)


# --- places that cannot be written ------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_full_disk_is_an_error_of_the_system_and_leaves_the_old_file(tmp_path):
    """In a process whose files may not grow: torch's writer raises RuntimeError there, as on a full disk."""
    path = tmp_path / "checkpoint.pt"
    save_tensors({"step": 1}, path)
    code = (
        "import resource, signal, sys, torch\nfrom pathlib import Path\n"
        "from dgl_lara._util.atomic import save_tensors\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))\n"
        "try: save_tensors({'a': torch.zeros(100_000)}, Path(sys.argv[1]))\n"
        "except OSError as error: print(error.strerror)"
    )
    ended, outputs, errors = Forked(code, path).result()
    assert ended == 0 and outputs.strip() and "Traceback" not in errors
    assert torch.load(path, weights_only=True) == {"step": 1}
    assert [one.name for one in tmp_path.iterdir()] == ["checkpoint.pt"]


@pytest.mark.parametrize(
    ("words", "code", "outputs"),
    [
        ("datasets >&-", 0, ""),
        ("runs >&- <&-", 0, ""),
        ("--help >/dev/full", 1, "Error: the output: No space left on device."),
        ("datasets >/dev/full", 1, "Error: the output: No space left on device."),
        ("datasets 2>&-", 0, ""),
    ],
)
def test_streams_that_are_closed_or_full(tmp_path, words, code, outputs):
    command = f"{sys.executable} -m dgl_lara {words}"
    ended = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True, check=False)
    lines = [line for line in ended.stderr.splitlines() if line != "working ..."]  # on a busy machine
    assert (ended.returncode, lines) == (code, [outputs] * bool(outputs))


def test_links_and_devices_stay_what_they_are(tmp_path):
    """A result that was sent to /dev/null took its place."""
    real, link, pipe = tmp_path / "real.json", tmp_path / "link.json", tmp_path / "pipe.json"
    real.write_text("old")
    link.symlink_to(real)
    os.mkfifo(pipe)
    received: list[str] = []
    reader = threading.Thread(target=lambda: received.append(pipe.read_text()), daemon=True)
    reader.start()
    for path in (link, pipe):
        with atomic_write(path) as temporary:
            temporary.write_text("new")
    reader.join(10)
    assert link.is_symlink() and real.read_text() == "new"
    assert pipe.is_fifo() and received == ["new"]
    assert sorted(one.name for one in tmp_path.iterdir()) == ["link.json", "pipe.json", "real.json"]
    assert not obstacle_to_write(Path("/dev/null")) and not obstacle_to_write(link) and not obstacle_to_write(pipe)


@pytest.mark.long
@pytest.mark.parametrize("ending", [".pdf", ".png", ".svg"])
def test_a_picture_on_a_full_disk_is_one_error(tmp_path, ending):
    code = (
        "import resource, signal, sys; from pathlib import Path; from matplotlib.figure import Figure\n"
        "from dgl_lara.explanation.plot.figure import write\n"
        "figure = Figure(); figure.subplots().plot(range(50)); write(figure, Path(sys.argv[1]), sys.argv[2])\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))\n"
        "try: write(figure, Path(sys.argv[1]), sys.argv[2])\n"
        "except OSError as error: print(error.strerror)"
    )
    ended, outputs, errors = Forked(code, tmp_path / f"a{ending}", ending).result()
    assert (ended, outputs.strip(), errors) == (0, os.strerror(errno.EFBIG), "")


def test_a_trained_model_is_not_lost_with_its_cache(monkeypatch, notices):
    def full(*_, **__):
        raise RuntimeError("PytorchStreamWriter failed writing file")  # all that torch says

    dataset = load("ba-shapes")
    monkeypatch.setattr(torch, "save", full)
    stored = get_gnn(dataset, Recipe(epochs=2, hidden=7), 0)
    assert not stored.path.exists() and 0 < stored.details["test"] <= 1
    assert notices.has("gnn.not_cached")


def test_embeddings_that_cannot_be_stored_are_used_all_the_same(notices):
    one = bulk("walk", False)
    store = EmbeddingStore(NOWHERE / "embeddings.pt", one.game.f, "data", (80, 80))
    store.keep(one.game.full_outputs, one.explainer, one.embeddings)
    assert notices.has("store.unwritable")
    kept = store.embeddings(one.explainer)
    assert kept is not None and kept.source is one.embeddings.source


def test_no_home_and_no_entry_in_passwd(monkeypatch):
    monkeypatch.delenv("DGL_LARA_CACHE")
    monkeypatch.setattr(cache, "__file__", "/installed/dgl_lara/datasets/storage.py")  # not a checkout
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # what it gives where passwd has no entry
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache.cache_dir().parent == Path("/somewhere")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert str(os.getuid()) in cache.cache_dir().name


def test_a_kernel_that_cannot_be_kept_is_compiled_all_the_same():
    """numba finds no place for code that lies in no file, as for files in read-only folders."""
    names: dict = {}
    exec("def twice(x):\n    return 2 * x", names)
    assert kernel()(names["twice"])(4) == 8


# --- signals ----------------------------------------------------------------------------------------------------------


def listens(process):
    """Whether the process has a handler for SIGTERM by now."""
    try:
        (line,) = [line for line in Path(f"/proc/{process.pid}/status").read_text().splitlines() if "SigCgt" in line]
        return int(line.split()[1], 16) >> (signal.SIGTERM - 1) & 1
    except (OSError, ValueError):
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_stopped_at_any_moment_of_the_start(tmp_path):
    drawn = random.Random(0)
    waiting: list = []
    for number in [signal.SIGINT, signal.SIGTERM] * 4:
        command = [
            sys.executable,
            "-m",
            "dgl_lara",
            "train",
            "--dataset",
            "ba-shapes",
            "--out",
            tmp_path / f"{len(waiting)}",
        ]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        waiting.append((process, number, drawn.uniform(0, 2.5)))
    started: dict[int, float] = {}
    deadline = time.monotonic() + 60
    while len(started) < len(waiting):
        assert time.monotonic() < deadline, "nobody listens to SIGTERM"
        started |= {one[0].pid: time.monotonic() for one in waiting if one[0].pid not in started and listens(one[0])}
        time.sleep(0.001)
    for process, number, delay in sorted(waiting, key=lambda one: started[one[0].pid] + one[2]):
        time.sleep(max(0, started[process.pid] + delay - time.monotonic()))
        process.send_signal(number)
    for process, number, delay in waiting:
        outputs = process.communicate(timeout=120)[1]
        assert process.returncode == 130, (number, delay, outputs)
        assert "nterrupted" in outputs and "Traceback" not in outputs, (number, delay, outputs)


def test_sigterm_waits_for_the_step_like_ctrl_c_where_the_command_listens():
    before = signal.signal(signal.SIGTERM, lambda number, frame: None)
    try:
        with held_back_interrupts() as requested:
            os.kill(os.getpid(), signal.SIGTERM)
            assert requested == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)
    if before == signal.SIG_DFL:
        with held_back_interrupts():
            assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_an_interrupt_within_a_destructor_is_not_lost():
    """Python would print a traceback and go on."""
    code = (
        "import sys, time; from dgl_lara import __main__, cli\n"
        "class Closing:\n    def __del__(self): raise KeyboardInterrupt\n"
        "def work():\n    one = Closing(); del one; time.sleep(5); print('went on')\n"
        "cli.main = work; __main__.run()"
    )
    assert Forked(code).result() == (130, "", "Interrupted.\n")


def test_an_interrupt_while_the_command_line_is_read(monkeypatch):
    """click would say "Aborted!" and end with code 1."""

    def interrupted(*words, **more):
        raise KeyboardInterrupt

    monkeypatch.setattr(click.Group, "make_context", interrupted)
    ended = run("datasets")
    assert ended.exit_code == 130 and ended.output.strip() == "Interrupted."


@pytest.mark.parametrize("interrupted_call", [1, 2])
def test_an_interrupt_before_the_first_and_after_the_last_line_of_a_command(interrupted_call):
    code = (
        "import signal, sys; from dgl_lara import __main__, cli\n"
        "_handle_signals, calls = __main__._handle_signals, []\n"
        "def interrupted(answer):\n"
        "    calls.append(answer)\n"
        f"    if len(calls) == {interrupted_call}: raise KeyboardInterrupt\n"
        "    _handle_signals(answer)\n"
        "__main__._handle_signals = interrupted; cli.main = lambda: sys.exit(0); __main__.run()"
    )
    assert Forked(code).result() == (130, "", "Interrupted.\n")


def test_a_command_that_is_done_ends_at_once_with_its_own_code():
    """Functions of atexit run and printed text arrives, but objects are not destroyed."""
    code = (
        "import atexit, sys; from dgl_lara import __main__, cli\n"
        "class Left:\n    def __del__(self): print('destroyed')\n"
        "kept = Left()\n"
        "def work():\n    atexit.register(print, 'exit'); print('done'); sys.exit(3)\n"
        "cli.main = work; __main__.run()"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, "done\nexit\n", "")


# --- threads ----------------------------------------------------------------------------------------------------------


class Dropping(SmallGCN):
    def forward(self, graph, h):
        return super().forward(graph, torch.nn.functional.dropout(h, 0.5, self.training))


def at_once(work, threads=4):
    """What each of the threads got, all started together; errors are raised here."""
    results: list = [None] * threads
    failures: list = []
    together = threading.Barrier(threads)

    def one(place):
        together.wait()
        try:
            results[place] = work(place)
        except BaseException as error:
            failures.append(error)

    running = [threading.Thread(target=one, args=(place,)) for place in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if failures:
        raise failures[0]
    return results


def test_a_model_that_several_have_borrowed_goes_back_to_its_mode():
    model, borrowed, both, given_back = Dropping().train(), threading.Event(), threading.Barrier(2), threading.Event()

    def borrow(place):
        if place == 1:
            borrowed.wait()  # the second to borrow it
        with eval_mode(model):
            borrowed.set()
            both.wait()
            if place == 1:
                given_back.wait()  # the other has given it back, this one still asks
                return [part.training for part in model.modules()]
        given_back.set()
        return None

    assert not any(at_once(borrow, 2)[1])
    assert all(part.training for part in model.modules())


@pytest.mark.long
def test_one_model_called_by_four_threads():
    graph, features = random_graph(60, 80, 0), torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    model = Dropping().train()
    lara = LARA(model, graph, features, hops=2, config=QUICK).fit(range(60))
    targets = [range(40), range(3, 43), range(6, 46), range(9, 49)]

    def work(place):
        found = lara.explain(targets[place])
        refined = lara.refine(found, 6).explanations
        return (
            found.scores,
            refined.scores,
            lara.verify(refined),
            found[0].in_words(),
            lara.top(targets[place], 4).score,
        )

    alone = [work(place) for place in range(4)]
    for _ in range(3):
        for mine, theirs in zip(at_once(work), alone, strict=True):
            torch.testing.assert_close(mine[:2], theirs[:2], rtol=0, atol=0)
            pd.testing.assert_frame_equal(mine[2], theirs[2])
            assert mine[3] == theirs[3]
            np.testing.assert_array_equal(mine[4], theirs[4])
        assert all(part.training for part in model.modules())


# --- memory -----------------------------------------------------------------------------------------------------------


def test_the_memory_bound_covers_the_result(tmp_path, monkeypatch):
    one = bulk("walk", False)
    game = Game.create(one.game.f, one.game.graph, one.game.features, hops=2, memory=40_000)
    sizes = [len(piece) for piece in export.split_targets(game, torch.arange(80), 10**9)]
    widest = int(game.players(torch.arange(80)).counts.max())
    assert sum(sizes) == 80 and len(sizes) > 4
    assert max(sizes) * widest * export.BYTES_A_ROW <= game.budget.memory or max(sizes) == 1
    little = type(one)(one.explainer, game, one.embeddings)
    export.explain_to_file(little, torch.arange(80), 10**9, tmp_path / "little.csv", {})
    export.explain_to_file(one, torch.arange(80), 80, tmp_path / "usual.csv", {})
    assert (tmp_path / "little.csv").read_text() == (tmp_path / "usual.csv").read_text()


@pytest.mark.parametrize("what", ["refine", "sample", "dim"])
def test_memory_is_checked_before_the_work(what):
    one = bulk("walk", False)
    with raises("memory.exceeded", InputError):
        if what == "refine":
            found = Scorer(one.explainer, one.game, one.embeddings).explain(torch.arange(5))
            LARA.of_game(one.game).refine(found, 10**9)
        elif what == "sample":
            from dgl_lara.attribution.monte_carlo import least_squares

            least_squares(one.game, one.game.players(torch.arange(5)), 10**9, torch.Generator())
        else:
            wide = TrainingConfig(dim=4096, hidden=16_384, layers=64, steps=1)
            LARA(one.game.f, one.game.graph, one.game.features, hops=2, config=wide, memory=2**30).fit(range(9))


# --- numbers ----------------------------------------------------------------------------------------------------------


def test_weights_that_broke_in_the_last_step_are_noticed():
    """No loss tells of them any more."""
    graph, features = random_graph(40, 50, 0), torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    config = TrainingConfig(hidden=8, dim=4, masks=1, steps=1, lr=1e30, schedule="constant", average=0.0)
    with raises("training.diverged"):
        LARA(SmallGCN(), graph, features, hops=2, config=config).fit(range(40))


def test_scores_that_are_no_numbers_are_not_called_zero():
    one = bulk("walk", False)
    found = Scorer(one.explainer, one.game, one.embeddings).explain(torch.arange(5))
    broken = Explanations(found.players, found.scores * torch.nan, found.explained_class, found.task, "lara", one.game)
    assert broken[0].sentence.outcome == ALONE and "NaN" in broken[0].in_words()
