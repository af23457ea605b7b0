"""The command line: answers at once, one sentence for bad input, exit 2 for usage and 1 for failure."""

import os
import re
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from codes import run, succeeds

from dgl_lara import __version__
from dgl_lara.cli import main
from dgl_lara.datasets import DATASETS
from dgl_lara.gnns import RECIPES


def python(*words):
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=60)


def refused(result, *fragments, code=2):
    """One sentence on stderr, the right exit code, nothing raised."""
    assert result.exit_code == code, result.output
    assert isinstance(result.exception, SystemExit)
    assert "Traceback" not in result.output
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("Error: ")
    for fragment in fragments:
        assert fragment in last
    assert result.stdout == ""


# --- start ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [["--help"], ["datasets", "--help"], ["target", "--help"]])
def test_help_does_not_import_torch(words):
    result = python("-X", "importtime", "-m", "dgl_lara", *words)
    assert result.returncode == 0
    assert "Usage:" in result.stdout
    loaded = {line.rsplit("|", 1)[-1].strip().split(".")[0] for line in result.stderr.splitlines()}
    assert "click" in loaded
    assert not loaded & {"torch", "dgl", "numpy", "pandas", "scipy", "networkx"}


def test_help_answers_in_half_a_second():
    """Of processor time: a busy machine makes no difference."""

    def spent():
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    def seconds():
        start = spent()
        python("-m", "dgl_lara", "--help")
        return spent() - start

    assert min(seconds() for _ in range(5)) < 0.5


def test_help_names_every_set_and_command():
    assert all(name in run("target", "--help").output for name in DATASETS)
    assert {"datasets", "target"} <= set(main.commands)
    assert all(command.help for command in main.commands.values())


def test_version_of_module_and_script():
    expected = f"dgl-lara, version {__version__}\n"
    assert python("-m", "dgl_lara", "--version").stdout == expected
    script = os.path.join(os.path.dirname(sys.executable), "dgl-lara")
    if os.path.exists(script):
        assert subprocess.run([script, "--version"], capture_output=True, text=True).stdout == expected


# --- datasets ---------------------------------------------------------------------------------------------------


def rows_of(table):
    return {line.split()[0]: line for line in table.splitlines()[2:] if line}


def test_datasets_prints_the_table():
    result = run("datasets")
    assert result.exit_code == 0
    rows = rows_of(result.stdout)
    assert set(DATASETS) < set(rows)
    assert rows["ba-shapes"].split()[:7] == ["ba-shapes", "node", "1", "700", "4,110", "4", "10"]
    assert rows["ogbn-arxiv"].split()[:7] == ["ogbn-arxiv", "node", "1", "169,343", "1,166,243", "40", "128"]
    assert rows["mutag"].endswith("no (download)")
    assert rows["tree-cycles"].endswith("yes")


def test_datasets_sees_what_is_present(real_data):
    rows = rows_of(run("datasets", "--data-dir", real_data).stdout)
    assert rows["mutag"].endswith(" yes") and rows["ba-shapes"].endswith(" original")


# --- target -----------------------------------------------------------------------------------------------------


def test_target_trains_prints_and_stores(tmp_path):
    out = tmp_path / "model.pt"
    result = succeeds("target", "--dataset", "ba-shapes", "--epochs", 3, "--device", "cpu", "--out", out)
    lines, model = result.stdout.splitlines(), ["ba-shapes ", "generated", "seed 0", "gcn", "3 layers", "20 hidden"]
    assert re.split("[:,(] *", lines[0].replace(")", "")) == model
    assert lines[1].split() == ["accuracy", "train", "validation", "test"]
    assert lines[4].split() == ["the", "paper", "0.970", "1.000", "1.000"]
    assert lines[5].startswith(f"stored in {out}") and f"--target {out}" in lines[5]

    again = run("target", "--dataset", "ba-shapes", "--target", out, "--device", "cpu")
    assert again.stdout.splitlines()[:5] == lines[:5]


def test_the_usual_target_needs_no_name(tmp_path, monkeypatch):
    monkeypatch.setitem(RECIPES, "ba-shapes", replace(RECIPES["ba-shapes"], epochs=3))
    for words in ([], ["--epochs", 3], ["--architecture", "gcn", "--out", tmp_path / "model.pt"]):
        reported = run("target", "--dataset", "ba-shapes", "--device", "cpu", *words).stdout.splitlines()[-1]
        assert reported.startswith("stored in ") and reported.endswith(".pt")


def test_target_takes_the_options_of_data_and_model():
    words = ["--dataset", "tree-cycles", "--data-seed", 5, "--architecture", "gin", "--epochs", 1, "--device", "cpu"]
    result = run("target", *words)
    assert all(part in result.stdout.splitlines()[0] for part in ("tree-cycles ", "seed 5", "gin, 3 layers"))


def test_target_on_a_file_of_ones_own(tmp_path):
    path = tmp_path / "ring.npz"
    place = np.arange(60)
    np.savez(path, src=place, dst=(place + 1) % 60, x=np.eye(60), y=place % 3)
    result = succeeds("target", "--dataset", path, "--epochs", 2, "--device", "cpu")
    assert all(part in result.stdout.splitlines()[0] for part in ("ring (", "ring.npz", "random split", "gcn"))
    assert "the paper" not in result.stdout


# --- bad input --------------------------------------------------------------------------------------------------


def test_unknown_data_set_gets_the_list_and_the_closest_match():
    refused(run("target", "--dataset", "ba-shape"), "[dataset.unknown]", "Did you mean 'ba-shapes'?", *DATASETS)
    refused(run("target", "--dataset", "zzz"), "[dataset.unknown]")


def test_missing_files(tmp_path):
    refused(run("target", "--dataset", tmp_path / "a.npz"), "a.npz'", "[graph_file.missing]")
    refused(run("target", "--dataset", "nowhere.bin"), "'nowhere.bin'", "[graph_file.missing]")
    refused(run("target", "--dataset", "ba-shapes", "--target", tmp_path / "a.pt"), "a.pt'", "[gnn.missing]")
    refused(run("target", "--dataset", "ba-shapes", "--data-dir", tmp_path / "b"), "[dataset.data_dir]")


def test_truncated_file_is_a_failure(tmp_path):
    path = tmp_path / "a.npz"
    path.write_bytes(b"PK\x03\x04 and no more")
    refused(run("target", "--dataset", path), "a.npz", "[npz.damaged]", code=1)


def test_bad_numbers_in_a_file(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, src=[0, 1], dst=[1, 9], x=np.ones((3, 2)), y=[0, 1, 0])
    refused(run("target", "--dataset", path), "first: edge 1, 1 -> 9", "[graph_file.edges]")


@pytest.mark.parametrize(
    ("words", "fragment"),
    [
        (["--dataset", "ba-shapes", "--source", "mine"], "'mine' is not one of 'auto', 'generated', 'original'"),
        (["--dataset", "ba-shapes", "--source", "original"], "[dataset.not_found]"),
        (["--dataset", "molecules", "--source", "original"], "[dataset.no_original]"),
        (["--dataset", "mutag", "--source", "generated"], "[dataset.not_generated]"),
        (["--dataset", "ba-shapes", "--nodes", 500], "[dataset.fixed_size]"),
        (["--dataset", "citation", "--nodes", 10], "[citation.nodes]"),
        (["--dataset", "ba-shapes", "--epochs", 0], "Invalid value for '--epochs'"),
        (["--dataset", "ba-shapes", "--lr", 0], "Invalid value for '--lr'"),
        (["--dataset", "ba-shapes", "--lr", "nan"], "[option.nan]"),
        (["--dataset", "ba-shapes", "--lr", "ten"], "Invalid value for '--lr'"),
        (["--dataset", "ba-shapes", "--architecture", "mlp"], "'mlp' is not one of 'gcn', 'gat', 'gin', 'sage'"),
        ([], "Missing option '--dataset'"),
    ],
)
def test_bad_options(words, fragment):
    refused(run("target", *words), fragment, code=1 if "dataset.not_found" in fragment else 2)


def test_an_option_before_the_command():
    refused(run("-q", "train"), "'-q'", "[options.before_command]")


def test_cuda_is_refused_without_a_gpu():
    import torch

    if torch.cuda.is_available():
        pytest.skip("a CUDA device is here")
    refused(run("target", "--dataset", "ba-shapes", "--device", "cuda"), "[device.no_cuda]")


def test_checkpoint_of_another_set_names_the_field(tmp_path):
    out = tmp_path / "model.pt"
    succeeds("target", "--dataset", "ba-shapes", "--epochs", 1, "--out", out)
    refused(run("target", "--dataset", "tree-cycles", "--target", out), "[gnn.other_data]")


def test_out_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    out = tmp_path / "file" / "model.pt"
    refused(run("target", "--dataset", "ba-shapes", "--out", out), str(out), f"{tmp_path / 'file'} is not a folder")


@pytest.mark.parametrize(
    "words",
    [
        ["explain", "--node", 5, "--picture", "{}/x.png"],
        ["explain", "--all", "--out", "{}/x.parquet"],
        ["explain", "--all", "--shard", "0/2", "--out", "{}/shards"],
        ["report", "--out", "{}/x.html"],
        ["summary", "--out", "{}/x.csv"],
        ["eval", "--json", "{}/x.json"],
        ["train", "--dataset", "ba-shapes", "--out", "{}/run"],
        ["benchmark", "--dataset", "ba-shapes", "--out", "{}/results"],
        ["target", "--dataset", "ba-shapes", "--out", "{}/x.pt"],
        ["partition", "--dataset", "citation", "--out", "{}/parts"],
        ["shards", "shards", "--out", "{}/x.csv"],
        ["reproduce", "table-1", "--out", "{}/results"],
    ],
)
@pytest.mark.parametrize(
    ("place", "reason"), [("/proc", "nothing can be written in /proc"), ("file/in", "file is not a folder")]
)
def test_no_command_begins_what_it_cannot_write(words, place, reason, tmp_path, monkeypatch):
    """No data set is read, no run looked for: there is none here."""
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("kept")
    words = [str(word).format(place) for word in words]
    refused(run(*words), words[-1], reason, "[path.unwritable]")
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("file", "kept")]


def test_an_unknown_method_gets_the_closest():
    refused(run("benchmark", "--dataset", "ba-shapes", "--methods", "larra"), "'lara'", "[option.words]")


def test_standard_output_can_be_written_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir("/proc")
    refused(run("eval", "--run", tmp_path / "none", "--json", "-"), "[run.no_folder]")


@pytest.mark.parametrize(
    "words", [["train", "--dataset", "ba-shapes"], ["benchmark", "--dataset", "ba-shapes"]], ids=lambda words: words[0]
)
def test_default_output_folders_are_checked(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("runs").touch()
    refused(run(*words), "runs is not a folder", "[folder.unwritable]")


@pytest.mark.parametrize("words", [["report", "--run"], ["train", "--resume"]], ids=["report", "train"])
def test_an_unwritable_run_folder_is_reported_before_it_is_opened(words):
    refused(run(*words, "/proc/self"), "/proc/self", "[folder.unwritable]")


def test_a_repeated_option_is_refused():
    """click would silently use the last value."""
    refused(run("train", "--epochs", 5, "--dataset", "nothing", "--epochs", 6), "--epochs", "[options.repeated]")
    refused(run("explain", "--class", 1, "--node", 3, "--class", 2), "--class", "[options.repeated]")
    refused(run("explain", "--node", 1, "--node", 3, "--run", "nowhere", "-q", "-q"), "[run.no_folder]")
