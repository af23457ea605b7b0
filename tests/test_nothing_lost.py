"""Kills, changed data, foreign files, two at once: nothing is lost, and nothing of one thing ends up in another."""

import json
import os
import shutil
import threading
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from click.testing import CliRunner
from codes import refused, run, succeeds
from games import random_graph
from processes import Forked
from test_bulk import bulk

from dgl_lara._util import schema
from dgl_lara._util.atomic import atomic_write, locked
from dgl_lara.cli import main
from dgl_lara.datasets import Options, load
from dgl_lara.datasets.dataset import Dataset
from dgl_lara.errors import LaraError
from dgl_lara.gnns.checkpoint import load_gnn
from dgl_lara.inference import export
from dgl_lara.lara import LARA
from dgl_lara.runs.config import RunConfig
from dgl_lara.runs.create import create_run
from dgl_lara.runs.run import Run
from dgl_lara.training.config import TrainingConfig

QUICK = ["--hidden", 8, "--dim", 4, "--masks", 1, "--epochs", 3]
ABOUT = {"run": "a"}
pytestmark = pytest.mark.usefixtures("hardly_judged")


class Killed(BaseException):
    pass


def write_graph(path, seed):
    src, dst = random_graph(60, 80, seed).edges()
    features = torch.randn(60, 3, generator=torch.Generator().manual_seed(seed))
    np.savez(path, src=src, dst=dst, x=features, y=np.arange(60) % 2)


@pytest.fixture(scope="module")
def trained(tmp_path_factory, session_cache):
    folder = tmp_path_factory.mktemp("trained")
    write_graph(folder / "graph.npz", 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DGL_LARA_CACHE", str(session_cache))
        words = ["--dataset", folder / "graph.npz", "--epochs", 2, "--out", folder / "f.pt"]
        succeeds("target", *words)
    return folder


@pytest.fixture
def here(trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("graph.npz", "f.pt"):
        (tmp_path / name).write_bytes((trained / name).read_bytes())
    succeeds("train", "--dataset", "graph.npz", "--target", "f.pt", *QUICK, "--out", "r")
    return tmp_path


# --- data that changed ------------------------------------------------------------------------------------------------


def test_parts_of_another_graph_are_not_taken(here, monkeypatch, notices):
    monkeypatch.setattr(export, "TARGETS_A_PART", 20)
    monkeypatch.setitem(export.WRITERS, ".csv", lambda *a: (_ for _ in ()).throw(Killed()))
    with pytest.raises(Killed):
        CliRunner().invoke(main, ["explain", "--run", "r", "--all", "--out", "o.csv"], catch_exceptions=False)
    monkeypatch.undo()
    os.chdir(here)
    assert len(list(Path("o.csv.parts").glob("*/*.parquet"))) == 3
    write_graph("graph.npz", 1)
    for out in ("o.csv", "fresh.csv"):
        succeeds("explain", "--run", "r", "--all", "--out", out)
        assert notices.once("run.other_data")
        notices.records.clear()
    pd.testing.assert_frame_equal(pd.read_csv("o.csv"), pd.read_csv("fresh.csv"))


def test_training_does_not_go_on_with_another_graph(here):
    write_graph("graph.npz", 1)
    refused(run("train", "--resume", "r"), "run.data_changed", 1)


# --- files of others --------------------------------------------------------------------------------------------------


def test_a_users_folder_stays(tmp_path):
    def files():
        return {str(path.relative_to(theirs)) for path in theirs.rglob("*") if path.is_file()}

    theirs = tmp_path / "o.csv.parts"
    (theirs / "thesis").mkdir(parents=True)
    for name in ("notes.txt", "thesis/chapter.tex", "000000.parquet"):
        (theirs / name).write_text("mine")
    before = files()
    export.explain_to_file(bulk("walk", False), torch.arange(80), 4, tmp_path / "o.csv", ABOUT)
    assert len(before) == 3 and files() == before
    assert [path.name for path in theirs.iterdir() if path.is_dir()] == ["thesis"]


def test_files_of_a_killed_write_are_removed_and_those_being_written_are_not(tmp_path):
    path = tmp_path / "a.txt"
    code = "import os, sys, pathlib; from dgl_lara._util.atomic import atomic_write\n"
    code += "with atomic_write(pathlib.Path(sys.argv[1])) as t: t.write_text('half'); os.kill(os.getpid(), 9)"
    assert Forked(code, path).wait() == -9
    (left,) = tmp_path.iterdir()
    with atomic_write(path) as mine:
        assert not left.exists()
        with atomic_write(path) as other:
            assert mine.exists() and other != mine
        mine.write_text("whole")
    assert [one.read_text() for one in tmp_path.iterdir()] == ["whole"]


# --- the parts of an export -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["truncated", "swapped", "one byte", "fewer rows", "text"])
def test_a_damaged_part_is_computed_again(tmp_path, monkeypatch, notices, damage):
    one, out = bulk("walk", False), tmp_path / "e.csv"
    monkeypatch.setattr(export, "TARGETS_A_PART", 30)
    export.explain_to_file(one, torch.arange(80), 4, tmp_path / "unbroken.csv", ABOUT)
    with monkeypatch.context() as patch:
        patch.setitem(export.WRITERS, ".csv", lambda *a: (_ for _ in ()).throw(Killed()))
        with pytest.raises(Killed):
            export.explain_to_file(one, torch.arange(80), 4, out, ABOUT)
    first, second, _ = sorted((tmp_path / "e.csv.parts").glob("*/*.parquet"))
    content = first.read_bytes()
    flipped = bytearray(content)
    flipped[content.index(b"\x15") + 40] ^= 4
    many = content.index(b"\x16", content.index(b"ARROW:schema") - 20)  # of rows, before that in what ends the file
    fewer = bytearray(content)
    fewer[many + 1] -= 20
    contents = {"truncated": content[:100], "swapped": second.read_bytes(), "one byte": flipped, "text": b"PAR1",
                "fewer rows": fewer}  # fmt: skip
    first.write_bytes(contents[damage])
    export.explain_to_file(one, torch.arange(80), 4, out, ABOUT)
    assert notices.has("export.damaged_part")
    assert out.read_text() == (tmp_path / "unbroken.csv").read_text()


# --- files of a run that were changed ---------------------------------------------------------------------------------


def test_changed_files_of_a_run_are_refused_or_computed_again(here, notices):
    words = ["explain", "--run", "r", "--all", "--top", 3, "--out"]
    succeeds(*words, "right.csv")
    stored = torch.load("r/embeddings.pt", weights_only=True)
    for name in ("answer", "source", "target"):  # the kernels would read beyond the end of a shorter one
        torch.save({**stored, name: stored[name][:-5].clone()}, "r/embeddings.pt")
        result = succeeds(*words, "again.csv")
        assert notices.once("store.damaged")
        notices.records.clear()
        assert Path("again.csv").read_text() == Path("right.csv").read_text()

    good = Path("r/config.json").read_text()
    for hops, code in ((50, "[run.changed]"), ("3", "[file.content]")):
        Path("r/config.json").write_text(json.dumps({**json.loads(good), "hops": hops}))
        result = run(*words, "again.csv")
        assert result.exit_code == 1 and code in result.output and "hops" in result.output
    Path("r/config.json").write_text(good)

    weights = next(iter(torch.load("r/explainer.pt", weights_only=True)["weights"].values())).numpy().tobytes()
    content = bytearray(Path("r/explainer.pt").read_bytes())
    content[content.index(weights)] ^= 1  # another number that no shape or type tells
    Path("r/explainer.pt").write_bytes(content)
    refused(run(*words, "again.csv"), "file.checksum", 1)


def test_no_result_replaces_a_file_of_a_run_or_a_list_that_is_read(here):
    before, listed = Path("r/config.json").read_bytes(), Path("list.csv")
    listed.write_text("3\n5\n")
    Path("link.json").symlink_to("r/config.json")
    for out in ("r/config.json", "link.json", Path("r/config.json").absolute()):
        refused(run("explain", "--run", "r", "--node", 3, "--out", out), "path.of_run")
    refused(run("explain", "--run", "r", "--nodes", listed, "--out", "list.csv"), "explain.out_is_list")
    assert Path("r/config.json").read_bytes() == before and listed.read_text() == "3\n5\n"


OTHER_SETTINGS = {
    "lr": 0.1, "seed": 7, "masks": 2, "objective": "least-squares", "schedule": "constant", "epochs": 9, "average": 0.5,
}  # fmt: skip


@pytest.mark.parametrize("name", OTHER_SETTINGS)
def test_a_training_goes_on_only_under_the_settings_that_it_began_with(here, name):
    good = json.loads(Path("r/config.json").read_text())
    now = OTHER_SETTINGS[name]
    Path("r/config.json").write_text(json.dumps({**good, "training": {**good["training"], name: now}}))
    before, resumed = Path("r/checkpoint.pt").read_bytes(), run("train", "--resume", "r")
    explained = run("explain", "--run", "r", "--node", 3)
    for result in (resumed, explained):
        assert result.exit_code == 1 and result.output.count("[run.changed]") == 1
        assert f"{name} of r was {good['training'][name]!r}" in result.output and repr(now) in result.output
    assert Path("r/checkpoint.pt").read_bytes() == before


def test_figures_of_another_training_are_noted(here, notices):
    assert run("explain", "--run", "r", "--node", 3).exit_code == 0 and not notices.has("run.other_history")
    rows = Path("r/metrics.csv").read_text().splitlines()
    Path("r/metrics.csv").write_text("\n".join([*rows, rows[-1].rpartition(",")[0] + ",0.95"]) + "\n")
    succeeds("explain", "--run", "r", "--node", 3)
    assert notices.has("run.other_history", history=0.95)


def test_changed_data_are_noticed_without_their_checksum_in_config(here):
    good = json.loads(Path("r/config.json").read_text())
    Path("r/config.json").write_text(json.dumps({**good, "data": None}))
    explained = run("explain", "--run", "r", "--node", 3)
    refused(explained, "run.changed", 1)
    assert "data of r" in explained.output
    write_graph(Path("graph.npz"), 1)
    refused(run("train", "--resume", "r"), "run.data_changed", 1)


def test_a_training_goes_on_and_explains_only_with_its_model(here):
    succeeds("target", "--dataset", "graph.npz", "--epochs", 1, "--seed", 5, "--out", "other.pt")
    Path("r/target.pt").write_bytes(Path("other.pt").read_bytes())
    for words in (["train", "--resume", "r"], ["explain", "--run", "r", "--node", 3], ["eval", "--run", "r"]):
        result = run(*words)
        assert result.exit_code == 1 and result.output.count("Error") == 1
        assert "[run.changed]" in result.output and "model of r" in result.output


# --- killed between two files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", ["metrics.csv", "explainer.pt", "checkpoint.pt"])
def test_killed_between_two_files_of_the_last_checkpoint(here, monkeypatch, notices, after):
    """Whatever was written last, the resumed run ends as the unbroken one."""
    unbroken = torch.load("r/explainer.pt", weights_only=True)["weights"]
    replaced, count = os.replace, [0]

    def dying(source, to):
        replaced(source, to)
        count[0] += Path(to).name == after
        if Path(to).name == after and count[0] == 3:  # the last of three epochs
            raise Killed

    monkeypatch.setattr(os, "replace", dying)
    words = ["train", "--dataset", "graph.npz", "--target", "f.pt", *QUICK, "--out", "k"]
    with pytest.raises(Killed):
        CliRunner().invoke(main, list(map(str, words)), catch_exceptions=False)
    monkeypatch.setattr(os, "replace", replaced)
    resumed = run("train", "--resume", "k")
    again = after != "checkpoint.pt"
    assert resumed.exit_code == 0
    assert notices.has("training.resumed", step=2, total=3) if again else notices.once("training.was_finished")
    assert ("repetitions" in resumed.output) == again
    torch.testing.assert_close(torch.load("k/explainer.pt", weights_only=True)["weights"], unbroken, rtol=0, atol=0)
    assert Path("k/metrics.csv").read_text() == Path("r/metrics.csv").read_text()


def test_a_finished_run_with_an_older_explainer_is_mended_by_resuming(here):
    good = Path("r/explainer.pt").read_bytes()
    run("train", "--dataset", "graph.npz", "--target", "f.pt", *QUICK, "--seed", 1, "--out", "other")
    Path("r/explainer.pt").write_bytes(Path("other/explainer.pt").read_bytes())
    succeeds("train", "--resume", "r")
    assert torch.load("r/explainer.pt", weights_only=True)["weights"].keys()
    stored = torch.load("r/explainer.pt", weights_only=True)["weights"]
    Path("good.pt").write_bytes(good)
    torch.testing.assert_close(stored, torch.load("good.pt", weights_only=True)["weights"], rtol=0, atol=0)


@pytest.fixture
def with_samples(here):
    """A run with enough shared coalitions for corrected scores and their errors."""
    words = ["--hidden", 8, "--dim", 4, "--masks", 8, "--epochs", 3, "--out", "s"]
    succeeds("train", "--dataset", "graph.npz", "--target", "f.pt", *words)
    return Path("s")


@pytest.mark.parametrize("damage", ["truncated", "shorter", "of more nodes", "NaN", "lacks unit"])
def test_damaged_samples_are_left_out_with_a_notice(with_samples, damage, notices):
    words = ["explain", "--run", "s", "--node", 5, "--out", "o.csv"]
    path, good = Path("s/samples.pt"), torch.load("s/samples.pt", weights_only=True)
    stored = torch.load("s/explainer.pt", weights_only=True)
    stored.pop("samples_file")  # an older one does not know which file is its own
    torch.save(stored, "s/explainer.pt")
    succeeds(*words)
    corrected = Path("o.csv").read_text()
    changes = {
        "shorter": {"inside": good["inside"][:, :-1]}, "of more nodes": {"inside": torch.cat([good["inside"]] * 2)},
        "NaN": {"responses": good["responses"] * torch.nan}, "lacks unit": {"unit": None},
    }  # fmt: skip
    if damage == "truncated":
        path.write_bytes(path.read_bytes()[:-100])
    else:
        torch.save({**good, **changes[damage]}, path)
    succeeds(*words)
    assert notices.once("run.samples_skipped")
    path.unlink()
    without = Path("o.csv").read_text()
    assert run(*words).exit_code == 0 and Path("o.csv").read_text() == without != corrected


def test_samples_of_another_training_are_left_out_with_a_notice(with_samples, notices):
    words = ["explain", "--run", "s", "--all", "--amortised", "--top", 3, "--out", "o.csv"]
    succeeds(*words)
    amortised = pd.read_csv("o.csv")["score"]
    words.remove("--amortised")
    assert run(*words).exit_code == 0 and not pd.read_csv("o.csv")["score"].equals(amortised)
    path = Path("s/samples.pt")
    content = torch.load(path, weights_only=True)
    for code in ("run.samples_skipped", "run.samples_missing"):
        if notices.has("run.samples_skipped"):
            path.unlink()
        else:
            torch.save({**content, "responses": -content["responses"]}, path)
        assert run(*words).exit_code == 0 and notices.once(code)
        assert pd.read_csv("o.csv")["score"].equals(amortised)


def test_an_explainer_that_lacks_what_it_was_written_with_is_refused(with_samples):
    stored = torch.load("s/explainer.pt", weights_only=True)
    for name in ("errors", "cost", "code", "value"):
        torch.save({key: value for key, value in stored.items() if key != name}, "s/explainer.pt")
        result = run("explain", "--run", "s", "--node", 5)
        refused(result, "file.content", 1)
        assert name in result.output


def test_nan_is_found_in_any_block(monkeypatch):
    monkeypatch.setattr(schema, "BLOCK_SIZE", 7)
    values = torch.zeros(5, 4)
    assert schema.matrix(5, 4)(values) is None and schema.tensor(torch.float, 5, 4)(values) is None
    values[3, 3] = torch.nan
    assert schema.tensor(torch.float, 5, 4, gaps=True)(values) is None
    assert schema.matrix(5, 4)(values) and schema.tensor(torch.float, 5, 4)(values)


def test_an_explainer_whose_errors_are_damaged_is_refused(with_samples):
    stored = torch.load("s/explainer.pt", weights_only=True)
    for changes in ({"stretch": 50}, {"slope": stored["errors"]["slope"][:-1]}, {"weights": stored["errors"]["slope"]}):
        torch.save({**stored, "errors": {**stored["errors"], **changes}}, "s/explainer.pt")
        refused(run("explain", "--run", "s", "--node", 5), "file.content", 1)


def test_shared_coalitions_of_a_checkpoint_are_checked(with_samples):
    stored = torch.load("s/checkpoint.pt", weights_only=True)
    for changes in ({"seen": 1}, {"rows": stored["shared"]["rows"][:, :-1]}, {"d": None}):
        torch.save({**stored, "shared": {**stored["shared"], **changes}}, "s/checkpoint.pt")
        refused(run("train", "--resume", "s"), "checkpoint.invalid", 1)


def test_a_run_that_is_being_trained_is_not_deleted(here):
    before = sorted(path.name for path in Path("r").iterdir())
    with locked(Path("r")):
        refused(run("runs", "delete", "r", "--yes"), "folder.locked", 1)
    assert sorted(path.name for path in Path("r").iterdir()) == before
    assert run("runs", "delete", "r", "--yes").exit_code == 0 and not Path("r").exists()


def test_a_folder_that_is_removed_while_it_is_trained_is_no_run(here, monkeypatch):
    checkpoint = Run.checkpoint

    def without_a_folder(run, state):
        shutil.rmtree(run.folder)
        checkpoint(run, state)

    monkeypatch.setattr(Run, "checkpoint", without_a_folder)
    refused(run("train", "--dataset", "graph.npz", "--target", "f.pt", *QUICK, "--out", "gone"), "run.removed", 1)
    assert not Path("gone").exists()


# --- two at once ------------------------------------------------------------------------------------------------------


def test_a_folder_that_is_being_trained_in_is_refused(here):
    with locked(Path("r")):
        refused(run("train", "--resume", "r"), "folder.locked", 1)
        refused(run("train", "--dataset", "graph.npz", "--target", "f.pt", *QUICK, "--out", "r"), "run.exists")
    succeeds("train", "--resume", "r")


def test_two_runs_with_one_folder(here, monkeypatch):
    """Both look before either has written. One of them fails, and the folder is of one run."""
    both, results = threading.Barrier(2, timeout=30), []
    fingerprint = vars(Dataset)["fingerprint"].func
    # create_run asks for it after its first look at the folder
    monkeypatch.setattr(Dataset, "fingerprint", property(lambda data: (both.wait(), fingerprint(data))[1]))

    def create(seed):
        dataset = load("graph.npz")
        model, details = load_gnn(Path("f.pt"), dataset)
        config = RunConfig("graph.npz", Options(), 3, "logit", TrainingConfig(seed=seed), "default")
        try:
            create_run(Path("two"), config, dataset, LARA(model, dataset.graph, dataset.features), details)
        except LaraError as error:
            results.append(error.code)
        except threading.BrokenBarrierError:
            results.append(seed)  # the one that got further

    threads = [threading.Thread(target=create, args=(seed,)) for seed in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(1)
    both.abort()
    for thread in threads:
        thread.join()
    (winner,) = [result for result in results if isinstance(result, int)]
    (code,) = [result for result in results if isinstance(result, str)]
    assert code in ("folder.locked", "run.exists")
    config = json.loads(Path("two", "config.json").read_text())
    assert config["training"]["seed"] == winner


def test_two_explains_into_one_file(tmp_path, monkeypatch):
    """They take turns; both end well, and the file is whole."""
    monkeypatch.setattr(export, "TARGETS_A_PART", 30)
    one, out, failures = bulk("walk", False), tmp_path / "e.csv", []
    export.explain_to_file(one, torch.arange(80), 4, tmp_path / "alone.csv", ABOUT)

    def explain():
        try:
            export.explain_to_file(one, torch.arange(80), 4, out, ABOUT)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=explain) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert out.read_text() == (tmp_path / "alone.csv").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alone.csv", "e.csv"]
