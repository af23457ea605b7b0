"""Every file that is read, mutated at random: no traceback, no hang, no change of meaning without a word.

A mutated file may be refused (exit 1 or 2, one sentence), made anew with a notice, or be without consequence: then the
result is that of the untouched file.
"""

import json
import random
import shutil
import time
from dataclasses import replace
from pathlib import Path

import click
import dgl
import numpy as np
import pytest
import torch
from codes import run, succeeds
from fuzzing import mutated
from games import random_graph

from dgl_lara.cli import main
from dgl_lara.datasets import load
from dgl_lara.datasets.partitioning import partition
from dgl_lara.graphs.mapped import MappedGraph
from dgl_lara.graphs.partition_format import SPLITS
from dgl_lara.inference import export
from dgl_lara.runs.open import open_run
from dgl_lara.runs.run import Run
from dgl_lara.serve.model import ServedModel
from dgl_lara.serve.schemas import GraphUpdate

SHORT, LONG = 100, 2_000
SLOWEST = 60.0  # seconds
NOTICES = ("again", "anew", "has changed since", "not corrected")  # parts of notices about damaged files
QUICK = ["--hidden", 8, "--dim", 4, "--masks", 8, "--epochs", 3]  # pairs enough for corrected scores
EXPLAIN = ["explain", "--run", "r", "--all", "--top", 3, "--out", "o.csv"]
SHARDS = ["shards", "s"]
# file -> the command that reads it
READERS: dict[str, list | None] = {
    "r/config.json": EXPLAIN, "r/explainer.pt": EXPLAIN, "r/embeddings.pt": EXPLAIN, "r/target.pt": EXPLAIN,
    "graph.npz": EXPLAIN, "b/config.json": ["explain", "--run", "b", "--all", "--top", 3, "--out", "o.csv"],
    "graph.bin": ["explain", "--run", "b", "--all", "--top", 3, "--out", "o.csv"],
    "r/checkpoint.pt": ["train", "--resume", "r"], "resumed": ["train", "--resume", "r"],
    "part": EXPLAIN, "cache": None,
    "cached target": ["target", "--dataset", "graph.npz", "--epochs", 2], "r/metrics.csv": None,
    "r/samples.pt": ["explain", "--run", "r", "--node", 5, "--out", "o.csv"],
    "shop.bin": ["explain", "--run", "t", "--all", "--top", 3, "--out", "o.csv"],
    "t/config.json": ["explain", "--run", "t", "--all", "--top", 3, "--out", "o.csv"],
    "pairs.csv": ["explain", "--run", "l", "--all", "--top", 3, "--out", "o.csv"],
    "l/config.json": ["explain", "--run", "l", "--all", "--top", 3, "--out", "o.csv"],
    "l/samples.pt": ["explain", "--run", "l", "--all", "--top", 3, "--out", "o.csv"],
    "shop.names.json": None, "run.toml": None, "updates": None, "current": None, "snapshot": None, "table": None,
    "parts/meta.json": None, "parts/place.npy": None, "parts/part-0001/features.npy": None,
    "s/_shard-00000-of-00002.json": SHARDS, "s/shard-00001-of-00002.parquet": SHARDS,
}  # fmt: skip


def configured():
    """Whatever a settings file asks for is right, but for what nobody understands."""
    result = run("explain", "--config", "run.toml")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return ""


def served():
    """What the service says of a node, after the updates in its log."""
    model = ServedModel("r", open_run(Path("r"), torch.device("cpu")))
    model.apply_pending_updates()
    return model.follow().first.explain_one(5).scores


def served_table():
    """What it would send of every node; rounded, since corrected scores depend a little on their company."""
    model = ServedModel("r", open_run(Path("r"), torch.device("cpu")))
    model.apply_pending_updates()
    explainer, targets = model.follow().first, np.arange(60)
    best, sent = explainer.cached(targets), explainer.cache.texts(targets) or []
    scores = [[round(player["score"], 3) for player in json.loads(bytes(one))["players"]] for one in sent]
    return best.player.tolist(), best.score.round(3).tolist(), scores


def in_parts():
    view, everyone = MappedGraph(Path("parts")), torch.arange(60)
    splits = [view.split(name) for name in SPLITS]
    return replace(view.meta, versions={}), view.in_edges(everyone), view.features(everyone), splits


READ_HERE = {
    "cache": lambda: load("tree-cycles").fingerprint,
    "r/metrics.csv": lambda: open_run(Path("r"), torch.device("cpu")).history.columns,
    "shop.names.json": lambda: load("shop.bin").num_targets,  # names are the user's own
    "run.toml": configured,
    "updates": served,
    "current": served,
    "snapshot": served,
    "table": served_table,
    "parts/meta.json": in_parts,
    "parts/place.npy": in_parts,
    "parts/part-0001/features.npy": in_parts,
}


@pytest.fixture(scope="module")
def pristine(tmp_path_factory):
    """A folder with everything, made once: two runs, two graphs, a cache, and the parts of an export."""
    folder = tmp_path_factory.mktemp("pristine")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("DGL_LARA_CACHE", str(folder / "cache"))
        patch.delenv("DGL_LARA_DATA", raising=False)
        patch.setattr(export, "TARGETS_A_PART", 20)
        patch.setattr(Run, "checkpoint", _keeping_one_of_halfway(Run.checkpoint))
        _make_graphs()
        load("tree-cycles")
        for name, (graph, *links) in RUNS.items():
            for words in (
                ["target", "--dataset", graph, *links, "--epochs", 2, "--out", f"{name}.pt"],
                ["train", "--dataset", graph, *links, "--target", f"{name}.pt", *QUICK, "--out", name],
                ["explain", "--run", name, "--all", "--top", 3, "--out", "first.csv"],
            ):
                succeeds(*words)
        for name, (graph, *links) in RUNS.items():
            config = json.loads(Path(name, "config.json").read_text())
            config["dataset"] = graph  # of the folder that it is copied to
            config["options"]["pairs"] = "pairs.csv" if links else None
            Path(name, "config.json").write_text(json.dumps(config))
            shutil.move(Path(name, HALFWAY), Path(name, "checkpoint.pt"))  # so that a resumed run has something to do
        served_run = ServedModel("r", open_run(Path("r"), torch.device("cpu")))
        for end in (7, 9):
            served_run.accept(GraphUpdate(add_edges=[(5, end)], both_ways=False))
            served_run.apply_pending_updates()
        served_table()
        partition(load("graph.npz"), 2, Path("parts"))
        for number in (0, 1):
            run("explain", "--run", "r", "--all", "--top", 3, "--shard", f"{number}/2", "--out", "s")
        patch.setitem(export.WRITERS, ".csv", lambda *a: (_ for _ in ()).throw(RuntimeError("killed")))
        run(*EXPLAIN)
        assert len(list(Path("o.csv.parts").glob("*/*.parquet"))) == 3
    return folder


HALFWAY = "halfway.pt"


def _keeping_one_of_halfway(checkpoint):
    def keeping(run, state):
        checkpoint(run, state)
        if state.step == 2:
            shutil.copy(run.folder / "checkpoint.pt", run.folder / HALFWAY)

    return keeping


RUNS = {
    "r": ("graph.npz",), "b": ("graph.bin",), "t": ("shop.bin",),
    "l": ("shop.bin", "--pairs", "pairs.csv", "--relation", "buys"),
}  # fmt: skip


def _make_graphs():
    _make_shop()
    graph = random_graph(60, 80, 0)
    features = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    src, dst = graph.edges()
    np.savez("graph.npz", src=src, dst=dst, x=features, y=np.arange(60) % 2)
    graph.ndata["feat"], graph.ndata["label"] = features, torch.arange(60) % 2
    for place, part in enumerate(("train", "val", "test")):
        graph.ndata[f"{part}_mask"] = torch.arange(60) % 3 == place
    dgl.save_graphs("graph.bin", [graph])


def _make_shop():
    """Two types of nodes, names of one, pairs of both, and settings."""
    drawn = torch.Generator().manual_seed(0)
    u, v = torch.randint(20, (60,), generator=drawn), torch.randint(15, (60,), generator=drawn)
    shop = dgl.heterograph({("user", "buys", "item"): (u, v), ("item", "sold", "user"): (v, u)})
    for kind in shop.ntypes:
        shop.nodes[kind].data["x"] = torch.randn(shop.num_nodes(kind), 2, generator=drawn)
    shop.nodes["user"].data["y"] = torch.arange(shop.num_nodes("user")) % 2
    for relation in ("buys", "sold"):
        shop.edges[relation].data["rating"] = (torch.arange(60) % 5 + 1).float()
    dgl.save_graphs("shop.bin", [shop])
    Path("pairs.csv").write_text("user,item\n" + "\n".join(f"{n % 19},{n % 14}" for n in range(20)))
    Path("shop.names.json").write_text(json.dumps({"nodes": {"item": [f"i{n}" for n in shop.nodes("item").tolist()]}}))
    Path("run.toml").write_text('[explain]\nrun = "r"\nnode = [5]\ntop = 3\nverify = false\n')


def path_of(name):
    """The file behind a name of READERS, in the current folder."""
    if name == "updates":
        return next(Path("r/serving").glob("updates-*.jsonl"))
    if name == "current":
        return next(Path("r/serving").glob("*/current"))
    if name == "snapshot":
        return next(Path("r/serving").glob("*/2/features.npy"))
    if name == "table":
        return next(Path("r/serving").glob("*/2/nodes-cache"))
    if name == "resumed":
        return Path("r/config.json")
    if name == "part":
        return sorted(Path("o.csv.parts").glob("*/*.parquet"))[1]
    if name == "cache":
        return next(Path("cache/generated").glob("tree-cycles*.npz"))
    if name == "cached target":
        return next(Path("cache/targets").glob("graph-*.pt"))
    return Path(name)


def answer(name):
    """(exit code, what was said, the result) of the command that reads the file."""
    words = READERS[name]
    if words is None:
        try:
            return 0, "", str(READ_HERE[name]())
        except Exception as error:
            return getattr(error, "exit_code", repr(error)), str(error), ""
    result = run(*words)
    failed = result.exception is not None and not isinstance(result.exception, SystemExit)
    code = repr(result.exception) if failed else result.exit_code
    made = ""
    if result.exit_code == 0 and words[0] == "explain":
        made = Path("o.csv").read_text()
    elif result.exit_code == 0 and words[0] == "train":
        made = str(torch.load("r/explainer.pt", weights_only=True)["weights"])
    elif result.exit_code == 0:
        made = result.output.partition("\nstored in")[0]
    return code, result.output, made


def _lay_out(pristine, place, monkeypatch):
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(pristine, place)
    monkeypatch.chdir(place)
    monkeypatch.setenv("DGL_LARA_CACHE", str(place / "cache"))


def campaign(pristine, folder, monkeypatch, count, seed):
    """(mutations, findings): a finding is whatever must not be."""
    monkeypatch.setattr(export, "TARGETS_A_PART", 20)
    drawn, findings, expected = random.Random(seed), [], {}
    names = sorted(READERS)
    for number in range(count):
        name = names[number % len(names)]
        if name not in expected:
            _lay_out(pristine, folder / "now", monkeypatch)
            expected[name] = answer(name)
            assert expected[name][0] == 0, expected[name]
        _lay_out(pristine, folder / "now", monkeypatch)
        done = mutated(path_of(name), drawn)
        started = time.monotonic()
        code, output, made = answer(name)
        what = f"{name}: {done}"
        if code not in (0, 1, 2):
            findings.append(f"traceback {code} ({what})")
        elif "Traceback" in output or (code and output.strip().count("\n") > 3):
            findings.append(f"more than a sentence: {output[:300]!r} ({what})")
        elif code == 0 and made != expected[name][2] and not any(notice in output for notice in NOTICES):
            findings.append(f"another result without a word ({what})")
        if time.monotonic() - started > SLOWEST:
            findings.append(f"{time.monotonic() - started:.0f} s ({what})")
    return "\n".join(findings)


def test_a_hundred_mutations(pristine, tmp_path, monkeypatch):
    assert campaign(pristine, tmp_path, monkeypatch, SHORT, 0) == ""


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_two_thousand_mutations(pristine, tmp_path, monkeypatch, seed):
    assert campaign(pristine, tmp_path, monkeypatch, LONG // 4, seed) == ""


# --- the command line ------------------------------------------------------------------------------------------------

VALUES = [
    "", "²", "nan", "inf", "-inf", "-1", "0", "1e999", str(10**9 + 1), str(2**63), str(10**40), "1" * 5000, "x", "\0",
    "infGB", "nanGB", "-1GB", "1e400GB", "0.0MB", "½", "1_000", " 3 ", "0x10", "true", "--help-me", "a/b\0c",
]  # fmt: skip
OPTIONS = [(name, option) for name, command in main.commands.items() for option in command.params]


@pytest.mark.parametrize(("name", "option"), OPTIONS, ids=lambda part: getattr(part, "name", part))
def test_values_of_every_option_are_taken_or_refused_in_one_sentence(name, option):
    if getattr(option, "is_flag", False) or not isinstance(option, click.Option):
        return
    if option.type in (click.INT, click.FLOAT):  # `TrainingConfig` checks them
        return
    for value in VALUES:
        try:
            taken = option.type.convert(value, option, click.Context(main.commands[name]))
        except click.UsageError as refused:
            assert refused.format_message()
            continue
        assert not isinstance(taken, float) or 0 < taken <= 1000, (value, taken)
        assert not isinstance(taken, int) or abs(taken) <= 10**18, (value, taken)
