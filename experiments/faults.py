"""Fault injection: kills at random moments, two processes at once, full and read-only disks, no home, clocks, a soak.

    python experiments/faults.py                     # everything; mounts need root and are left out without it
    python experiments/faults.py --kills 6 --soak 2000 --calls 100

Every command runs in a fork of this process, which has loaded all libraries, so that a random moment falls into its
work. Moments of the start are in tests/test_hostile_places.py. A line reports how often a fault was tried and how often
the outcome was right: killed and resumed runs equal uninterrupted ones, nothing is left behind, no traceback.
"""

import gc
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # children are forked, and threads do not survive that

import click
import numpy as np
import pandas as pd
import psutil
import torch

import dgl_lara.cli.benchmark
import dgl_lara.cli.explain  # noqa: F401 (loaded before the children are made)
import dgl_lara.evaluation.benchmark
import dgl_lara.inference.kernels.walk
import dgl_lara.reports.benchmark_table
import dgl_lara.runs.run
from dgl_lara import LARA, TrainingConfig
from dgl_lara.__main__ import run as command
from dgl_lara._util.atomic import atomic_write
from dgl_lara._util.tables import markdown_table
from dgl_lara.datasets import load
from dgl_lara.inference import export

RESULTS = Path(__file__).parent / "results"
SIGNALS = {"SIGKILL": signal.SIGKILL, "Ctrl-C": signal.SIGINT, "SIGTERM": signal.SIGTERM}
QUICK = ["--hidden", "8", "--dim", "4", "--masks", "1"]
TRAIN = ["train", "--dataset", "graph.npz", "--target", "f.pt", *QUICK, "--epochs", "120", "--out", "r"]
COMPARE = ["benchmark", "--dataset", "graph.npz", "--target", "f.pt", "--methods", "random,sampled", "--seeds", "4"]
COMPARE += ["--metric", "fidelity", "--targets", "10", "--out", "b"]


@dataclass
class Tally:
    """One line of the result."""

    what: str
    tried: int = 0
    wrong: list[str] = field(default_factory=list)

    def note(self, right: object, words: str) -> None:
        self.tried += 1
        if not right:
            self.wrong.append(words)

    @property
    def row(self) -> list[object]:
        return [self.what, self.tried, self.tried - len(self.wrong), "; ".join(self.wrong[:3]) or "-"]


@dataclass(frozen=True)
class Ended:
    code: int
    said: str
    seconds: float

    @property
    def quiet(self) -> bool:
        """Return whether there was no traceback and at most a few lines."""
        return "Traceback" not in self.said


def start(words: list[str], change: Callable[[], object] = lambda: None) -> tuple[int, Path]:
    """Start `dgl-lara WORDS` in a child. Return its process id and the file with its output."""
    handle, said = tempfile.mkstemp()
    child = os.fork()
    if child:
        os.close(handle)
        return child, Path(said)
    with suppress(BaseException):
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        sys.stdout, sys.stderr = io.TextIOWrapper(os.fdopen(1, "wb", 0)), io.TextIOWrapper(os.fdopen(2, "wb", 0))
        sys.argv = ["dgl-lara", *words]
        code = 1
        try:
            change()
            command()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            import traceback

            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    os._exit(99)


def end(child: int, said: Path, started: float) -> Ended:
    status = os.waitpid(child, 0)[1]
    text = said.read_text(errors="replace")
    said.unlink()
    return Ended(os.waitstatus_to_exitcode(status), text, time.monotonic() - started)


def dgl_lara_says(words: list[str], change: Callable[[], object] = lambda: None) -> Ended:
    started = time.monotonic()
    return end(*start(words, change), started)


@contextmanager
def folder(at: Path | None = None) -> Iterator[Path]:
    """Yield a temporary folder. A TemporaryDirectory would be removed by the first child that exits."""
    before, root = Path.cwd(), Path(tempfile.mkdtemp(dir=at))
    os.chdir(root)
    try:
        yield root
    finally:
        os.chdir(before)
        shutil.rmtree(root, ignore_errors=True)


def prepare(root: Path) -> None:
    """Make a graph of 200 nodes and its model."""
    drawn = np.random.default_rng(0)
    src, dst = drawn.integers(200, size=(2, 500))
    src, dst = src[src != dst], dst[src != dst]
    np.savez(root / "graph.npz", src=src, dst=dst, x=drawn.standard_normal((200, 4)), y=np.arange(200) % 3)
    ended = dgl_lara_says(["target", "--dataset", "graph.npz", "--epochs", "3", "--out", str(root / "f.pt")])
    assert ended.code == 0, ended.said


def outcome(kind: str) -> object:
    """Return what must not depend on kills."""
    if kind == "train":
        weights = torch.load("r/explainer.pt", weights_only=True)["weights"]
        return {name: part.tolist() for name, part in weights.items()}, Path("r/metrics.csv").read_text()
    if kind == "benchmark":
        parts = [json.loads(path.read_text()) for path in sorted(Path("b/parts").glob("*/*.json"))]
        return [{name: value for name, value in part.items() if "(s)" not in name} for part in parts]
    if kind == "parquet":
        return pd.read_parquet("e.parquet").to_csv()  # as text, in which what is not known is equal to itself
    return Path(f"e.{kind}").read_text()


def words_for(kind: str) -> list[str]:
    if kind == "train":
        return ["train", "--resume", "r"] if Path("r/config.json").exists() else TRAIN
    if kind == "benchmark":
        return COMPARE
    return ["explain", "--run", "done", "--all", "--top", "5", "--out", f"e.{kind}"]


def clear(kind: str) -> None:
    for name in ("r", "b", f"e.{kind}.parts"):
        shutil.rmtree(name, ignore_errors=True)
    Path(f"e.{kind}").unlink(missing_ok=True)


def kills(root: Path, count: int, seed: int) -> list[Tally]:
    drawn, tallies = random.Random(seed), []
    ended = dgl_lara_says([*TRAIN[:-1], "done"])
    assert ended.code == 0, ended.said
    for kind in ("train", "benchmark", "parquet", "csv", "jsonl"):
        clear(kind)
        unbroken = dgl_lara_says(words_for(kind))
        assert unbroken.code == 0, unbroken.said
        expected = outcome(kind)
        tally = Tally(f"{'explain, ' if kind in ('parquet', 'csv', 'jsonl') else ''}{kind}: killed, then resumed")
        for number in range(-(-count // 5)):
            clear(kind)
            name = list(SIGNALS)[number % 3]
            child, said = start(words_for(kind))
            started = time.monotonic()
            time.sleep(0.05 + drawn.uniform(0, unbroken.seconds))  # by then it listens
            os.kill(child, SIGNALS[name])
            ended = end(child, said, started)
            allowed = (-9, 0) if name == "SIGKILL" else (130, 0)
            again = dgl_lara_says(words_for(kind))
            rest = [str(path) for path in root.rglob(".*.part")] + [str(path) for path in root.glob("*.parts")]
            same = again.code == 0 and outcome(kind) == expected
            right = ended.code in allowed and ended.quiet and again.quiet and same and not rest
            words = f"{name} after {ended.seconds:.2f} s: {ended.code}, then {again.code}, same: {same}, left: {rest}"
            words += "" if ended.code in allowed else f", said: {ended.said[-300:]}"
            tally.note(right, words)
        tallies.append(tally)
    return tallies


def two_at_once(rounds: int) -> Tally:
    tally = Tally("two processes, one run folder and one cache")
    clear("train")
    assert dgl_lara_says(TRAIN).code == 0
    expected = outcome("train")
    for _ in range(rounds):
        clear("train")
        shutil.rmtree(os.environ["DGL_LARA_CACHE"], ignore_errors=True)
        both = [(*start(TRAIN), time.monotonic()) for _ in range(2)]
        ended = [end(*one) for one in both]
        codes = sorted(one.code for one in ended)
        result = [one for one in ended if one.code]
        good = codes[0] == 0 and codes[1] in (1, 2) and all(one.quiet and "Error:" in one.said for one in result)
        tally.note(good and outcome("train") == expected, f"codes {codes}: {result[0].said[-120:] if result else ''}")
        both = [(*start(["target", "--dataset", "tree-cycles", "--epochs", "2"]), time.monotonic()) for _ in range(2)]
        ended = [end(*one) for one in both]
        tally.note([one.code for one in ended] == [0, 0], f"cache: {[one.said[-80:] for one in ended]}")
        both = [(*start(words_for("csv")), time.monotonic()) for _ in range(2)]
        ended = [end(*one) for one in both]
        tally.note([one.code for one in ended] == [0, 0], f"one file: {[one.said[-80:] for one in ended]}")
    return tally


def mount(root: Path, *words: str) -> bool:
    root.mkdir(exist_ok=True)
    return subprocess.run(["mount", *words, str(root)], capture_output=True, check=False).returncode == 0


def full_disks(root: Path, rounds: int) -> Tally:
    """Fill a small tmpfs: training stops with an error, and resumes when there is room."""
    tally = Tally("disk full while training, then room again")
    clear("train")
    assert dgl_lara_says(TRAIN).code == 0
    expected, disk = outcome("train"), root / "disk"
    for number in range(rounds):
        if not mount(disk, "-t", "tmpfs", "-o", f"size={24 + 8 * number}k", "none"):
            break
        try:
            clear("train")
            words = [*TRAIN[:-1], str(disk / "r")]
            ended = dgl_lara_says(words)
            sentence = ended.code == 0 or (ended.code == 1 and "No space left" in ended.said)
            mount(disk, "-o", "remount,size=20m")
            again = dgl_lara_says(
                ["train", "--resume", str(disk / "r")] if (disk / "r/config.json").exists() else words
            )
            if again.code == 0:
                shutil.copytree(disk / "r", "r")
            same = again.code == 0 and outcome("train") == expected
            tally.note(sentence and ended.quiet and same, f"{24 + 8 * number} kB: {ended.code} {ended.said[-150:]}")
        finally:
            subprocess.run(["umount", str(disk)], check=False)
    if mount(disk, "-t", "tmpfs", "-o", "size=4k", "none"):
        try:
            full = dgl_lara_says(
                ["target", "--dataset", "tree-cycles", "--epochs", "2"],
                lambda: os.environ.update(DGL_LARA_CACHE=str(disk)),
            )
            tally.note(full.code == 0 and full.quiet, f"full cache: {full.code} {full.said[-150:]}")
        finally:
            subprocess.run(["umount", str(disk)], check=False)
    return tally


def read_only(root: Path) -> Tally:
    tally, disk = Tally("read-only run folder"), root / "disk"
    if not mount(disk, "-t", "tmpfs", "-o", "size=20m", "none"):
        return tally
    try:
        shutil.copytree("done", disk / "done")
        (disk / "done" / "embeddings.pt").unlink()
        mount(disk, "-o", "remount,ro")
        run = ["--run", str(disk / "done")]
        small = ["--targets", "5", "--pairs", "10"]
        for words in (
            ["explain", *run, "--node", "3"],
            ["explain", *run, "--all", "--top", "3", "--out", "ro.csv"],
            ["eval", *run, *small],
            ["report", *run, *small, "--reference-pairs", "100", "--out", "ro.html"],
        ):
            ended = dgl_lara_says(words)
            tally.note(ended.code == 0 and ended.quiet, f"{words[0]}: {ended.code} {ended.said[-150:]}")
    finally:
        subprocess.run(["umount", str(disk)], check=False)
    return tally


def homeless(root: Path) -> Tally:
    """Run without home, without an entry in passwd, and with a read-only package, in a mount namespace."""
    tally = Tally("no HOME, no passwd, read-only package")
    package = Path(dgl_lara.__file__).parent
    inner = (
        f"mount --bind /dev/null /etc/passwd && mount --bind {package} {package} && mount -o remount,bind,ro {package}"
    )
    inner += " && exec env -u HOME -u DGL_LARA_CACHE XDG_CACHE_HOME= PYTHONDONTWRITEBYTECODE=1 "
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
        return tally
    for words in ("explain --run done --node 3", "explain --run done --all --top 3 --out home.csv"):
        requested = ["unshare", "-m", "sh", "-c", f"{inner} {sys.executable} -m dgl_lara {words}"]
        done = subprocess.run(requested, capture_output=True, text=True, check=False)
        tally.note(done.returncode == 0 and "Traceback" not in done.stderr, f"{words}: {done.stderr[-200:]}")
    return tally


def jumping_clock(rounds: int) -> Tally:
    tally = Tally("a clock that jumps by up to a day, either way")
    clear("train")
    assert dgl_lara_says(TRAIN).code == 0
    expected = outcome("train")
    for number in range(rounds):
        clear("train")

        def jump(seed: int = number) -> None:
            drawn, real = random.Random(seed), time.time
            time.time = lambda: real() + drawn.uniform(-86_400, 86_400)

        ended = dgl_lara_says(TRAIN, jump)
        explained = dgl_lara_says(words_for("csv"), jump)
        right = ended.code == 0 and explained.code == 0 and outcome("train") == expected
        tally.note(right, f"{ended.code}, {explained.code} {ended.said[-100:]}")
    return tally


def soak(explanations: int, calls: int) -> list[Tally]:
    """Compute many explanations in one process: memory stays flat and the numbers do not change."""
    data = load("graph.npz")
    from dgl_lara.gnns.checkpoint import load_gnn

    model = load_gnn(Path("f.pt"), data)[0].train()
    lara = LARA(model, data.graph, data.features, config=TrainingConfig(hidden=8, dim=4, steps=5)).fit(range(200))
    every_target = torch.arange(200).repeat(25)
    process, bulk, first = psutil.Process(), lara.scorer(), None
    flat, same = Tally(f"soak: {explanations:,} explanations, memory in MB"), Tally("soak: the same numbers")

    def watch(work: Callable[[], object], rounds: int, what: str) -> None:
        sizes = []
        for number in range(rounds):
            work()
            if number in {rounds // 10, rounds // 2, rounds - 1}:
                gc.collect()
                sizes.append(process.memory_info().rss >> 20)
        flat.note(max(sizes) - sizes[0] < 60, f"{what}: {sizes}")
        flat.what += f"; {what} {sizes}"

    def many() -> None:
        nonlocal first
        found = bulk.top(every_target, 5)
        first = found if first is None else first
        if not np.array_equal(found.score, first.score):
            raise AssertionError("other numbers")

    watch(many, max(3, explanations // len(every_target)), "bulk")
    same.note(True, "")
    alone = [lara.explain([node]).scores for node in range(200)]

    def some(seed: int) -> None:
        drawn = random.Random(seed)
        for _ in range(max(1, calls // 80)):
            node = drawn.randrange(200)
            if not torch.equal(lara.explain([node]).scores, alone[node]):
                same.wrong.append(f"node {node} in a thread")

    def four_threads() -> None:
        threads = [threading.Thread(target=some, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    watch(four_threads, 20, f"{calls:,} single calls in four threads")
    same.note(not same.wrong, "numbers of a thread")
    same.note(all(part.training for part in model.modules()), "the model is not in its mode")
    return [flat, same]


@click.command()
@click.option("--kills", "count", default=100, show_default=True, help="Random moments, over all commands.")
@click.option("--soak", "explanations", default=1_000_000, show_default=True, help="Explanations in one process.")
@click.option("--calls", default=20_000, show_default=True, help="Single calls, in four threads.")
@click.option("--seed", default=0, show_default=True)
@click.option("--out", type=click.Path(path_type=Path), default=RESULTS / "faults.md", show_default=True)
def main(count: int, explanations: int, calls: int, seed: int, out: Path) -> None:
    out = out.resolve()
    export.TARGETS_A_PART = 20  # many parts, so that kills meet them
    rounds = max(1, count // 20)
    with folder() as root:
        os.environ["DGL_LARA_CACHE"] = str(root / "cache")
        os.environ.pop("DGL_LARA_DATA", None)
        prepare(root)
        tallies: list[Tally] = []
        for campaign in (
            lambda: kills(root, count, seed),
            lambda: [two_at_once(rounds)],
            lambda: [full_disks(root, 2 * rounds)],
            lambda: [read_only(root)],
            lambda: [homeless(root)],
            lambda: [jumping_clock(rounds)],
            lambda: soak(explanations, calls),
        ):
            for tally in campaign():
                click.echo(f"{tally.what}: {tally.tried} tried, {tally.tried - len(tally.wrong)} right", err=True)
                tallies.append(tally)
    header = ["fault", "tried", "right", "what was not"]
    table = markdown_table(header, [tally.row for tally in tallies])
    click.echo(table)
    with atomic_write(out) as temporary:
        words = f"--kills {count} --soak {explanations} --calls {calls} --seed {seed}"
        temporary.write_text(f"# Faults on purpose\n\n`python experiments/faults.py {words}`\n\n{table}\n")
    sys.exit(int(any(tally.wrong for tally in tallies)))


if __name__ == "__main__":
    main()
