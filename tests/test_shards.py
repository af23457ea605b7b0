"""`dgl-lara explain --shard i/n`: shards together are what one process gives, however they come about."""

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
from click.testing import CliRunner
from test_hostile_places import NOWHERE

from dgl_lara import lara as lara_module
from dgl_lara._util.atomic import exclusive_file
from dgl_lara.cli import main
from dgl_lara.errors import LaraError
from dgl_lara.inference import adaptive, export
from dgl_lara.runs.open import open_run
from dgl_lara.shards.ray_engine import knock
from dgl_lara.shards.shard_folder import Shard, _read, _write

READ: dict[str, Callable] = {
    ".parquet": pd.read_parquet,
    ".csv": pd.read_csv,
    ".jsonl": lambda path: pd.read_json(path, lines=True),
}
NODES = [*range(300, 420), 7, 5]  # in no order; enough for 32 a shard: corrections of fewer add in another order


def dgl_lara(*words, code=0):
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result.output


@pytest.fixture
def ask(quick_runs, tmp_path, monkeypatch):
    """ask(*words): explains some nodes of a run, in the folder of the test."""
    monkeypatch.chdir(tmp_path)
    Path("nodes.txt").write_text("\n".join(map(str, NODES)))
    run = quick_runs["ba-shapes"]
    few = ("--top", 5)
    return lambda *words, code=0: dgl_lara(
        "explain", "--run", run, "--nodes", "nodes.txt", *(few if "--top" not in words else ()), *words, code=code
    )


def all_shards(ask, folder, of=3, *words):
    return [ask("--shard", f"{one}/{of}", "--out", folder, *words) for one in reversed(range(of))]


# --- the same rows ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", READ)
def test_shards_together_are_what_one_process_gives(ask, ending):
    ask("--out", f"whole{ending}")
    said = all_shards(ask, f"shards{ending}")
    assert "1 of 3 are there" in said[0] and "all 3 are there" in said[2]
    files = sorted(path.name for path in Path(f"shards{ending}").glob("shard-*"))
    assert files == [f"{Shard(one, 3).name}{ending}" for one in range(3)]
    dgl_lara("shards", f"shards{ending}", "--out", f"joined{ending}")
    whole, joined = READ[ending](f"whole{ending}"), READ[ending](f"joined{ending}")
    assert list(dict.fromkeys(whole.target)) == NODES
    pd.testing.assert_frame_equal(joined, whole, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("bought", [("--refine", 8, "--verify"), ("--refine", "auto", "--at-least", 0.97)])
def test_shards_draw_what_one_process_draws(ask, bought, monkeypatch):
    monkeypatch.setattr(adaptive, "ROUNDS", (4, 8))  # how many targets are in doubt depends on the machine's rounding
    ask(*bought, "--out", "whole.parquet")
    all_shards(ask, "shards", 3, *bought)
    whole, shards = pd.read_parquet("whole.parquet"), pd.read_parquet("shards")
    assert whole["moved" if "--verify" in bought else "pairs"].max() > 0
    pd.testing.assert_frame_equal(shards, whole, atol=1e-5, rtol=1e-4)


def test_amortised_scores_are_the_same_to_the_last_bit(ask):
    ask("--amortised", "--out", "whole.parquet")
    all_shards(ask, "shards", 4, "--amortised")
    whole = pd.read_parquet("whole.parquet")
    pd.testing.assert_frame_equal(pd.read_parquet("shards"), whole)  # the folder is a table to whoever reads Parquet
    dgl_lara("shards", "shards", "--out", "joined.csv")
    pd.testing.assert_frame_equal(
        pd.read_csv("joined.csv"), whole.astype({"kind": str}), check_dtype=False, atol=1e-5, rtol=1e-5
    )


def test_the_manifest_says_what_of_what(ask, quick_runs):
    all_shards(ask, "shards")
    manifest = json.loads(Path("shards/_manifest.json").read_text())
    rows = [len(pd.read_parquet(f"shards/{one['file']}")) for one in manifest["shards"]]
    assert [one["rows"] for one in manifest["shards"]] == rows and manifest["rows"] == sum(rows) > 0
    assert [one["targets"] for one in manifest["shards"]] == [40, 41, 41] and manifest["targets"] == len(NODES)
    run = open_run(quick_runs["ba-shapes"])
    asked = manifest["question"]
    assert (asked["run"], asked["data"], asked["shards"], asked["top"]) == ("ba-shapes", run.dataset.fingerprint, 3, 5)
    assert asked["version of torch"] == torch.__version__
    assert "all 3 shards are there" in dgl_lara("shards", "shards")


# --- done, killed, damaged --------------------------------------------------------------------------------------------


class Killed(BaseException):
    pass


def test_a_shard_that_is_done_stays_and_a_killed_one_goes_on_from_its_parts(ask, monkeypatch):
    write = export.pq.write_table
    made: list[int] = []
    monkeypatch.setattr(export, "TARGETS_A_PART", 40)

    def noted(table, *more, **settings):
        made.append(len(table))
        write(table, *more, **settings)

    def killed(*given, **settings):
        if made:
            raise Killed
        noted(*given, **settings)

    monkeypatch.setattr(export.pq, "write_table", killed)
    with pytest.raises(Killed):
        ask("--shard", "0/2", "--out", "shards")  # 61 targets, in parts of 40
    assert [path.name for path in Path("shards").glob("*.parquet")] == []
    assert "shards 0/2, 1/2 are missing" in dgl_lara("shards", "shards", code=1)
    monkeypatch.setattr(export.pq, "write_table", noted)
    ask("--shard", "0/2", "--out", "shards")
    assert len(made) == 2  # the second of two parts alone
    before = Path("shards/shard-00000-of-00002.parquet").stat()
    ask("--shard", "0/2", "--out", "shards")
    assert len(made) == 2 and Path("shards/shard-00000-of-00002.parquet").stat() == before
    assert "shards 1/2 are missing" in dgl_lara("shards", "shards", "--out", "joined.csv", code=1)
    assert not Path("joined.csv").exists() and not Path("shards/_manifest.json").exists()


def test_a_changed_shard_is_not_joined_and_is_made_anew(ask):
    all_shards(ask, "shards.csv", 2)
    path = Path("shards.csv/shard-00001-of-00002.csv")
    good = path.read_bytes()
    path.write_bytes(good[:-20])
    assert "was changed since it was written" in dgl_lara("shards", "shards.csv", "--out", "joined.csv", code=1)
    assert "made anew" in ask("--shard", "1/2", "--out", "shards.csv")
    assert path.read_bytes() == good


# --- refused ----------------------------------------------------------------------------------------------------------


def test_shards_of_another_question_or_version_are_refused(ask, quick_runs):
    ask("--shard", "0/2", "--out", "shards")
    refused = "holds shards of another question: by them"
    assert f"{refused} top is 5, here 6" in ask("--shard", "1/2", "--out", "shards", "--top", 6, code=2)
    assert f"{refused} corrected by" in ask("--shard", "1/2", "--out", "shards", "--amortised", code=2)
    assert f"{refused} shards is 2, here 3" in ask("--shard", "1/3", "--out", "shards", code=2)
    other = dgl_lara("explain", "--run", quick_runs["molecules"], "--all", "--shard", "1/2", "--out", "shards", code=2)
    assert f"{refused} run is ba-shapes, here molecules" in other
    question = Path("shards/_question.json")
    content = _read(question, {})
    assert content["version of torch"] == torch.__version__
    _write(question, {**content, "version of torch": "1"})
    assert f"{refused} version of torch is 1, here" in ask("--shard", "1/2", "--out", "shards", code=2)
    question.write_text("{")
    assert "cannot be understood" in ask("--shard", "1/2", "--out", "shards", code=1)


def test_shards_of_another_folder_are_not_joined(ask, quick_runs):
    """A copy of a file with its record is right in itself, and of another question; or of another place in this one."""
    all_shards(ask, "one.csv", 2)
    all_shards(ask, "two.csv", 2, "--amortised")
    first, last = (Path(f"one.csv/_{Shard(number, 2).name}.json") for number in range(2))
    good = last.read_text()
    for foreign in (Path(f"two.csv/{last.name}").read_text(), first.read_text()):
        last.write_text(foreign)
        said = dgl_lara("shards", "one.csv", "--out", "joined.csv", code=1)
        assert f"{last} is of another shard, or of another question than those beside it" in said
        assert "Shard 1/2 is made anew" in ask("--shard", "1/2", "--out", "one.csv")
        assert last.read_text() == good
    outside = _read(last, {})
    _write(last, {**outside, "file": "../two.csv/" + outside["file"]})
    assert "is of another shard" in dgl_lara("shards", "one.csv", "--out", "joined.csv", code=1)


def test_shards_are_not_joined_over_themselves(ask):
    all_shards(ask, "one.csv", 2)
    before = Path(f"one.csv/{Shard(0, 2).name}.csv").read_bytes()
    said = dgl_lara("shards", "one.csv", "--out", f"one.csv/{Shard(0, 2).name}.csv", code=2)
    assert "holds the shards; name a file in another place" in said
    assert Path(f"one.csv/{Shard(0, 2).name}.csv").read_bytes() == before


def test_a_record_that_was_changed_is_noticed(ask):
    """Its numbers are told by `dgl-lara shards`, which does not open the files."""
    all_shards(ask, "shards", 2)
    record = Path("shards/_shard-00001-of-00002.json")
    content = json.loads(record.read_text())
    record.write_text(json.dumps({**content, "rows": content["rows"] + 1}))
    assert "_shard-00001-of-00002.json is not as it was written" in dgl_lara("shards", "shards", code=1)


@pytest.mark.parametrize("bad", ["4/4", "1", "a/b", "-1/4", "0/0", "1/100000", "1/4/2", ""])
def test_a_shard_that_is_none(bad):
    said = dgl_lara("explain", "--all", "--out", "x", "--shard", bad, code=2)
    assert "must be I/N with I from 0 to N - 1" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--node", "5", "--shard", "0/2"], "goes with --all"),
        (["--all", "--shard", "0/2", "--engine", "ray", "--out", "x"], "one of them"),
        (["--all", "--shards", "4", "--out", "x"], "go with --engine"),
        (["--all", "--out", "."], "is a folder"),
    ],
)
def test_options_that_do_not_go_together(words, said):
    assert said in dgl_lara("explain", *words, code=2).replace("\n", " ")


def test_more_shards_than_targets_and_a_file_in_the_place_of_a_folder(ask):
    assert "122 targets cannot be cut into 123 shards" in ask("--shard", "0/123", "--out", "shards", code=2)
    Path("taken").write_text("mine")
    assert "taken is a file" in ask("--shard", "0/2", "--out", "taken", code=2)
    Path("empty").mkdir()
    assert "holds no shards" in dgl_lara("shards", "empty", code=2)


# --- embeddings -------------------------------------------------------------------------------------------------------


def test_one_process_embeds_and_others_wait_for_it(quick_runs, monkeypatch):
    """Threads with runs of their own stand in for processes: the lock is of an open file, not of a process."""
    (quick_runs["ba-shapes"] / "embeddings.pt").unlink(missing_ok=True)
    made, embed = [], lara_module.embed_graph
    ready = threading.Barrier(3)

    def slowly(*given):
        made.append(given)
        time.sleep(0.3)
        return embed(*given)

    monkeypatch.setattr(lara_module, "embed_graph", slowly)
    runs = [open_run(quick_runs["ba-shapes"]).trained() for _ in range(3)]
    for run in runs:
        assert run.game and not run.is_embedded
    found = []

    def ask_for(run):
        ready.wait()
        found.append(run.embed())

    threads = [threading.Thread(target=ask_for, args=(run,)) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1 and len(found) == 3
    assert all(torch.equal(one.source, found[0].source) for one in found)
    assert not list(quick_runs["ba-shapes"].glob(".*lock"))


def test_where_nothing_can_be_written_nobody_waits():
    with exclusive_file(NOWHERE / "embeddings.pt", "") as waited:
        assert not waited


# --- Ray --------------------------------------------------------------------------------------------------------------


def test_without_ray_one_sentence(ask, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert "pip install 'dgl-lara[ray]'" in ask("--engine", "ray", "--out", "shards", code=2)


@pytest.mark.parametrize("where", ["127.0.0.1:1", "127.0.0.1:99999", "ray://nowhere.invalid:6379"])
def test_a_cluster_that_is_not_there_is_not_waited_for(where):
    with pytest.raises(LaraError, match=f"Ray cannot be reached at {where} .*ray start"):
        knock(where)


def test_whoever_is_there_is_not_told_apart():
    with socket.create_server(("127.0.0.1", 0)) as there:
        knock(f"127.0.0.1:{there.getsockname()[1]}")
    for word in ("local", "auto"):
        knock(word)
