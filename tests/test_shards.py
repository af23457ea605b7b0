"""`dgl-lara explain --shard i/n`: all shards together are what one process writes."""

import json
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
import torch
from codes import raises, run
from test_hostile_places import NOWHERE

from dgl_lara._util.atomic import exclusive_file
from dgl_lara.inference import adaptive, embedder, export
from dgl_lara.runs.open import open_run
from dgl_lara.shards.ray_engine import check_reachable
from dgl_lara.shards.shard_folder import Shard, ShardFolder, _read, _write

READ: dict[str, Callable] = {
    ".parquet": pd.read_parquet,
    ".csv": pd.read_csv,
    ".jsonl": lambda path: pd.read_json(path, lines=True),
}
NODES = [*range(300, 420), 7, 5]  # in no order; enough for 32 a shard: corrections of fewer add in another order


def dgl_lara(*words, code=0, error=""):
    result = run(*words)
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    assert not error or f"[{error}]" in result.output.replace("\n", " "), result.output
    return result.output


@pytest.fixture
def ask(quick_runs, tmp_path, monkeypatch):
    """ask(*words): explains some nodes of a run, in the folder of the test."""
    monkeypatch.chdir(tmp_path)
    Path("nodes.txt").write_text("\n".join(map(str, NODES)))
    run = quick_runs["ba-shapes"]

    def ask(*words, **expected):
        top = () if "--top" in words else ("--top", 5)
        return dgl_lara("explain", "--run", run, "--nodes", "nodes.txt", *top, *words, **expected)

    return ask


def all_shards(ask, folder, total=3, *words):
    for index in reversed(range(total)):
        ask("--shard", f"{index}/{total}", "--out", folder, *words)


# --- equal rows -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", READ)
def test_shards_together_are_what_one_process_writes(ask, ending):
    ask("--out", f"whole{ending}")
    folder = ShardFolder(Path(f"shards{ending}"))
    for missing in ([0, 1], [0], []):
        index = len(missing)
        ask("--shard", f"{index}/3", "--out", folder.folder)
        assert folder.missing(3) == missing
    files = sorted(path.name for path in folder.folder.glob("shard-*"))
    assert files == [f"{Shard(index, 3).name}{ending}" for index in range(3)]
    dgl_lara("shards", folder.folder, "--out", f"joined{ending}")
    whole, joined = READ[ending](f"whole{ending}"), READ[ending](f"joined{ending}")
    assert list(dict.fromkeys(whole.target)) == NODES
    pd.testing.assert_frame_equal(joined, whole, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("options", [("--refine", 8, "--verify"), ("--refine", "auto", "--at-least", 0.97)])
def test_shards_draw_what_one_process_draws(ask, options, monkeypatch):
    monkeypatch.setattr(adaptive, "ROUNDS", (4, 8))  # how many targets are in doubt depends on the machine's rounding
    ask(*options, "--out", "whole.parquet")
    all_shards(ask, "shards", 3, *options)
    whole, shards = pd.read_parquet("whole.parquet"), pd.read_parquet("shards")
    assert whole["moved" if "--verify" in options else "pairs"].max() > 0
    pd.testing.assert_frame_equal(shards, whole, atol=1e-5, rtol=1e-4)


def test_amortised_scores_have_equal_bits(ask):
    ask("--amortised", "--out", "whole.parquet")
    all_shards(ask, "shards", 4, "--amortised")
    whole = pd.read_parquet("whole.parquet")
    pd.testing.assert_frame_equal(pd.read_parquet("shards"), whole)  # readers of Parquet take the folder as one table
    dgl_lara("shards", "shards", "--out", "joined.csv")
    pd.testing.assert_frame_equal(
        pd.read_csv("joined.csv"), whole.astype({"kind": str}), check_dtype=False, atol=1e-5, rtol=1e-5
    )


def test_the_manifest_lists_shards_and_their_request(ask, quick_runs):
    all_shards(ask, "shards")
    manifest = ShardFolder(Path("shards")).manifest()
    assert manifest == ShardFolder(Path("shards")).write_manifest()
    rows = [len(pd.read_parquet(f"shards/{one.file}")) for one in manifest.shards]
    assert [one.rows for one in manifest.shards] == rows and manifest.rows == sum(rows) > 0
    assert [one.targets for one in manifest.shards] == [40, 41, 41] and manifest.targets == len(NODES)
    run, request = open_run(quick_runs["ba-shapes"]), manifest.request
    expected = ("ba-shapes", run.dataset.fingerprint, 3, 5, torch.__version__)
    assert tuple(request[name] for name in ("run", "data", "shards", "top", "torch version")) == expected
    dgl_lara("shards", "shards")


# --- done, killed, damaged --------------------------------------------------------------------------------------------


class Killed(BaseException):
    pass


def test_a_complete_shard_stays_and_a_killed_one_continues_from_its_parts(ask, monkeypatch):
    write = export.pq.write_table
    written: list[int] = []
    monkeypatch.setattr(export, "TARGETS_A_PART", 40)

    def noted(table, *arguments, **settings):
        written.append(len(table))
        write(table, *arguments, **settings)

    def killed(*arguments, **settings):
        if written:
            raise Killed
        noted(*arguments, **settings)

    monkeypatch.setattr(export.pq, "write_table", killed)
    with pytest.raises(Killed):
        ask("--shard", "0/2", "--out", "shards")  # 61 targets, in parts of 40
    assert [path.name for path in Path("shards").glob("*.parquet")] == []
    assert "0/2, 1/2" in dgl_lara("shards", "shards", code=1, error="shards.missing")
    monkeypatch.setattr(export.pq, "write_table", noted)
    ask("--shard", "0/2", "--out", "shards")
    assert len(written) == 2  # the second of two parts alone
    before = Path(f"shards/{Shard(0, 2).name}.parquet").stat()
    ask("--shard", "0/2", "--out", "shards")
    assert len(written) == 2 and Path(f"shards/{Shard(0, 2).name}.parquet").stat() == before
    dgl_lara("shards", "shards", "--out", "joined.csv", code=1, error="shards.missing")
    assert not Path("joined.csv").exists() and not Path("shards/_manifest.json").exists()


def test_a_changed_shard_is_not_joined_and_is_explained_again(ask, notices):
    all_shards(ask, "shards.csv", 2)
    path = Path(f"shards.csv/{Shard(1, 2).name}.csv")
    good = path.read_bytes()
    path.write_bytes(good[:-20])
    dgl_lara("shards", "shards.csv", "--out", "joined.csv", code=1, error="shard.changed")
    ask("--shard", "1/2", "--out", "shards.csv")
    assert notices.has("shard.repeated")
    assert path.read_bytes() == good


# --- refused ----------------------------------------------------------------------------------------------------------


def test_shards_of_another_request_or_version_are_refused(ask, quick_runs):
    ask("--shard", "0/2", "--out", "shards")
    refused = {"code": 2, "error": "shards.other_request"}
    for options in (("--top", 6), ("--amortised",)):
        ask("--shard", "1/2", "--out", "shards", *options, **refused)
    ask("--shard", "1/3", "--out", "shards", **refused)
    dgl_lara("explain", "--run", quick_runs["molecules"], "--all", "--shard", "1/2", "--out", "shards", **refused)
    path = Path("shards/_request.json")
    content = _read(path)
    assert content["torch version"] == torch.__version__
    with raises("shards.other_request", name="top", then=5, now=6):
        ShardFolder(Path("shards")).check_request({**content, "top": 6})
    _write(path, {**content, "torch version": "1"})
    ask("--shard", "1/2", "--out", "shards", **refused)
    path.write_text("{")
    ask("--shard", "1/2", "--out", "shards", code=1, error="file.content")


def test_shards_of_another_folder_are_not_joined(ask, notices):
    """A copied file with its record is valid in itself, but belongs to another request, or to another shard."""
    all_shards(ask, "one.csv", 2)
    all_shards(ask, "two.csv", 2, "--amortised")
    first, last = (Path(f"one.csv/_{Shard(index, 2).name}.json") for index in range(2))
    good = last.read_text()
    for foreign in (Path(f"two.csv/{last.name}").read_text(), first.read_text()):
        last.write_text(foreign)
        dgl_lara("shards", "one.csv", "--out", "joined.csv", code=1, error="shard.foreign")
        ask("--shard", "1/2", "--out", "one.csv")
        assert notices.codes[-1] == "shard.repeated"
        assert last.read_text() == good
    record = _read(last)
    _write(last, {**record, "file": "../two.csv/" + record["file"]})
    dgl_lara("shards", "one.csv", "--out", "joined.csv", code=1, error="shard.foreign")


def test_shards_are_not_joined_over_themselves(ask):
    all_shards(ask, "one.csv", 2)
    path = Path(f"one.csv/{Shard(0, 2).name}.csv")
    before = path.read_bytes()
    dgl_lara("shards", "one.csv", "--out", path, code=2, error="shards.join_folder")
    assert path.read_bytes() == before
    with raises("shards.join_ending", got="joined.parquet"):
        ShardFolder(Path("one.csv")).join(Path("joined.parquet"))


def test_a_changed_record_is_refused(ask):
    """`dgl-lara shards` reads records only, not the files."""
    all_shards(ask, "shards", 2)
    record = Path("shards/_shard-00001-of-00002.json")
    content = json.loads(record.read_text())
    record.write_text(json.dumps({**content, "rows": content["rows"] + 1}))
    dgl_lara("shards", "shards", code=1, error="shards.seal")


@pytest.mark.parametrize("bad", ["4/4", "1", "a/b", "-1/4", "0/0", "1/100000", "1/4/2", ""])
def test_invalid_shards(bad):
    dgl_lara("explain", "--all", "--out", "x", "--shard", bad, code=2)


@pytest.mark.parametrize(
    "words",
    [
        ["--node", "5", "--shard", "0/2"],
        ["--all", "--shard", "0/2", "--engine", "ray", "--out", "x"],
        ["--all", "--shards", "4", "--out", "x"],
        ["--all", "--out", "."],
    ],
)
def test_options_that_exclude_each_other(words):
    dgl_lara("explain", *words, code=2)


def test_folders_that_cannot_hold_shards(ask):
    ask("--shard", "0/123", "--out", "shards", code=2, error="shards.too_many")
    Path("taken").write_text("mine")
    ask("--shard", "0/2", "--out", "taken", code=2, error="shards.is_file")
    Path("empty").mkdir()
    dgl_lara("shards", "empty", code=2, error="shards.none")


# --- embeddings -------------------------------------------------------------------------------------------------------


def test_one_process_embeds_and_others_wait_for_it(quick_runs, monkeypatch):
    """Threads with runs of their own act as processes: the lock belongs to an open file, not to a process."""
    (quick_runs["ba-shapes"] / "embeddings.pt").unlink(missing_ok=True)
    calls, embed = [], embedder.embed_graph
    ready = threading.Barrier(3)

    def slowly(*arguments):
        calls.append(arguments)
        time.sleep(0.3)
        return embed(*arguments)

    monkeypatch.setattr(embedder, "embed_graph", slowly)
    runs = [open_run(quick_runs["ba-shapes"]).trained() for _ in range(3)]
    for one in runs:
        assert one.game and not one.is_embedded
    found = []

    def ask_for(run):
        ready.wait()
        found.append(run.embed())

    threads = [threading.Thread(target=ask_for, args=(run,)) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1 and len(found) == 3
    assert all(torch.equal(one.source, found[0].source) for one in found)
    assert not list(quick_runs["ba-shapes"].glob(".*lock"))


def test_without_write_access_there_is_no_waiting():
    with exclusive_file(NOWHERE / "embeddings.pt", "") as waited:
        assert not waited


# --- Ray --------------------------------------------------------------------------------------------------------------


def test_ray_is_not_installed(ask, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    ask("--engine", "ray", "--out", "shards", code=2, error="ray.packages")


@pytest.mark.parametrize("address", ["127.0.0.1:1", "127.0.0.1:99999", "ray://nowhere.invalid:6379"])
def test_an_unreachable_cluster_fails_at_once(address):
    with raises("ray.unreachable", address=address):
        check_reachable(address)


def test_reachable_addresses():
    with socket.create_server(("127.0.0.1", 0)) as server:
        check_reachable(f"127.0.0.1:{server.getsockname()[1]}")
    for word in ("local", "auto"):
        check_reachable(word)
