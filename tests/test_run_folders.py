"""`dgl-lara runs`: lists, shows, compares, hands back settings, deletes; `--config`; evaluations stay."""

import json
import os
import shutil
import sys
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from dgl_lara._util.atomic import locked
from dgl_lara.cli import main
from dgl_lara.cli.config_file import to_toml
from dgl_lara.errors import message
from dgl_lara.runs.folder import newest_run, resume_command
from dgl_lara.runs.overview import OURS, RunSummary

QUICK = ["--targets", "6", "--pairs", "0"]
AGREEMENT = ["eval", "--run", "one", "--metric", "agreement", *QUICK, "--reference-pairs", "100"]


def run(*words):
    return CliRunner().invoke(main, [str(word) for word in words])


@pytest.fixture
def here(quick_runs, tmp_path, monkeypatch):
    """A folder with two runs: 'one', and the newer 'two', which differs in a setting."""
    monkeypatch.chdir(tmp_path)
    for place, name in enumerate(("one", "two")):
        other_tests = shutil.ignore_patterns("eval*", "report*")  # what they have written into the shared run
        shutil.copytree(quick_runs["ba-shapes"], f"runs/{name}", ignore=other_tests)
        os.utime(f"runs/{name}/config.json", (place, place))
    config = json.loads(Path("runs/two/config.json").read_text())
    config["training"]["masks"] = 7
    Path("runs/two/config.json").write_text(json.dumps(config))
    os.utime("runs/two/config.json", (9, 9))
    return tmp_path


def test_the_list(here):
    lines = run("runs").stdout.splitlines()
    assert lines[0].split() == [
        "run",
        "started",
        "data",
        "set",
        "model",
        "steps",
        "agreement",
        "delta",
        "targets",
        "MB",
    ]
    assert [line.split()[0] for line in lines[2:4]] == ["two", "one"]  # the newest first
    best = pd.read_csv("runs/one/metrics.csv").agreement.max()
    assert "ba-shapes" in lines[3] and " 60 " in lines[3] and f"{best:.3f}" in lines[3]
    Path("runs/one/config.json").write_text("{")
    Path("runs/two/explainer.pt").unlink()
    again = run("runs")
    assert again.exit_code == 0 and "one" in again.stdout and "not trained yet" in again.stdout


def test_an_explainer_that_has_learned_little_is_told_of(here):
    assert "learned little" not in run("explain", "--run", "one", "--node", 5).stderr
    history = pd.read_csv("runs/one/metrics.csv")
    history.assign(agreement=0.18).to_csv("runs/one/metrics.csv", index=False)
    for words in (
        ["--node", 5],
        ["--split", "test", "--out", "e.csv"],
        ["--split", "test", "--shard", "0/2", "--out", "s"],
    ):
        found = run("explain", "--run", "one", *words)
        assert found.exit_code == 0 and "learned little: its agreement on validation targets is 0.18" in found.stderr


def test_a_stopped_run_is_noted(here, notices):
    words = (["explain", "--node", 5], [*AGREEMENT[:1], *AGREEMENT[3:]], ["summary", "--targets", 20])
    assert all(run(each[0], "--run", "one", *each[1:]).exit_code == 0 for each in words)
    assert "run.stopped" not in notices.codes
    history = pd.read_csv("runs/one/metrics.csv")
    history[:-1].to_csv("runs/one/metrics.csv", index=False)
    done = history.epoch.iloc[-2]
    for each in words:
        notices.records.clear()
        assert run(each[0], "--run", "one", *each[1:]).exit_code == 0
        assert notices.fields("run.stopped")["done"] == f"{done} of 60 epochs"
    assert "dgl-lara train --resume runs/one" in run("runs", "show", "one").stdout
    told = {line.split()[0]: f"{done} (stopped)" in line for line in run("runs").stdout.splitlines()[2:4]}
    assert told == {"one": True, "two": False}
    with locked(Path("runs/one")):
        assert f"{done} (in training)" in run("runs").stdout and "in training" in run("runs", "show", "one").stdout
        notices.records.clear()
        assert run("explain", "--run", "one", "--node", 5).exit_code == 0
        assert notices.fields("run.in_training")["done"] == f"{done} of 60 epochs"
        assert "run.stopped" not in notices.codes


def test_figures_of_an_earlier_explainer_are_not_those_of_now(here):
    """Evaluated when it was interrupted, then trained to its end: the old figure stood for the new explainer."""
    history = pd.read_csv("runs/one/metrics.csv")
    history[:-1].to_csv("runs/one/metrics.csv", index=False)
    assert run(*AGREEMENT).exit_code == 0
    assert "R2 corrected" in run("runs", "compare", "one", "two").stdout
    history.to_csv("runs/one/metrics.csv", index=False)
    step = history.step.iloc[-2]
    assert f"after {step} steps" in run("runs", "show", "one").stdout
    assert "R2 corrected" not in run("runs", "compare", "one", "two").stdout
    assert run(*AGREEMENT).exit_code == 0 and Path("runs/one/eval-agreement-2.json").exists()
    assert "R2 corrected" in run("runs", "compare", "one", "two").stdout


def test_an_untrained_run_is_refused_before_its_code_is_run(here):
    Path("runs/one/explainer.pt").unlink()
    config = json.loads(Path("runs/one/config.json").read_text())
    config["model"] = {"module": "helper", "function": "build", "file": "helper.py"}
    Path("runs/one/config.json").write_text(json.dumps(config))
    for words in (["explain", "--node", 5], ["eval"], ["report"], ["summary"]):
        found = run(words[0], "--run", "one", *words[1:])
        assert found.exit_code == 1 and "[run.not_trained]" in found.stderr
        assert "dgl-lara train --resume runs/one --trust" in found.stderr


def test_figures_over_other_targets_do_not_stand_side_by_side(here):
    rows = [{"method": "lara", "sparsity": "average", "definition": "kept", "fidelity+": 1, "fidelity-": 0, "delta": 1}]
    for name, file, targets, delta in (("one", "eval-fidelity", 100, 4.25), ("one", "eval-fidelity-2", 6, 9.5),
                                       ("two", "eval-fidelity", 6, 7.75)):  # fmt: skip
        content = {"what": "-", "question": {"targets": targets}, "fidelity": [{**rows[0], "delta": delta}]}
        Path(f"runs/{name}/{file}.json").write_text(json.dumps(content))
    two, one = run("runs").stdout.splitlines()[2:4]
    assert one.split()[-3:-1] == ["4.250", "100"] and two.split()[-3:-1] == ["7.750", "6"]
    told = [line.split() for line in run("runs", "compare", "one", "two").stdout.splitlines() if "delta" in line]
    assert told == [
        ["delta,", "kept", "(100", "targets)", "4.250", "-"],
        ["delta,", "kept", "(6", "targets)", "-", "7.750"],
    ]


def test_steps_are_not_shown_where_epochs_decide(here):
    shown = run("runs", "show", "one").stdout
    assert "training: epochs" in shown and "training: steps" not in shown and "checksum of the data" in shown


def table_of(node, top):
    """Rows of the table that `explain` prints, without its title, and the notes below them."""
    lines = run("explain", "--run", "one", "--node", node, "--top", top).stdout.splitlines()
    below = lines[next(place for place, line in enumerate(lines) if line.startswith("---")) + 1 :]
    rows = [line for line in below if line[0].isdigit() or "more)" in line]
    return rows, below[len(rows) :]


def test_what_a_short_table_leaves_out_is_counted(here):
    short, every = table_of(5, 4)[0], table_of(5, "all")[0]
    (gap,) = [place for place, line in enumerate(short) if "more)" in line]
    assert short[gap].split() == [f"({len(every) - 7:,}", "more)"] and (gap, len(short)) == (4, 4 + 1 + 3)
    assert [line.split()[0] for line in short[:gap] + short[gap + 1 :]] == [
        line.split()[0] for line in every[:4] + every[-3:]
    ]


def test_a_run_that_is_not_there_is_refused_before_anything_is_loaded(here, monkeypatch):
    monkeypatch.setattr("dgl_lara.runs.open_run", lambda *a, **b: pytest.fail("it was opened"))
    for words in (["explain", "--node", 5], ["eval"], ["report"], ["train"]):
        option = "--resume" if words == ["train"] else "--run"
        found = run(words[0], option, "three", *words[1:])
        assert found.exit_code == 2 and "[run.no_folder]" in found.stderr


def test_a_graph_file_is_asked_for_by_what_is_missing(here):
    found = run("explain", "--run", "one", "--graph", "nope.npz")
    assert found.exit_code == 2 and "[explain.no_graph_file]" in found.stderr
    Path("g.npz").write_bytes(b"")
    found = run("explain", "--run", "one", "--graph", "g.npz")
    assert found.exit_code == 2 and "[options.missing]" in found.stderr


def test_refined_scores_say_how_good_they_are(here):
    found = run("explain", "--run", "one", "--node", 5, "--refine", 4, "--verify")
    assert found.exit_code == 0 and "fidelity+" in found.stdout and "fidelity-" in found.stdout
    run("explain", "--run", "one", "--split", "test", "--refine", 4, "--out", "refined.csv")
    frame = pd.read_csv("refined.csv")
    assert set(frame.source) == {"corrected"} and frame.confidence.between(0, 1).all() and frame.moved.min() > 0


def test_who_is_removed_to_check_the_scores_is_listed(here):
    for node in range(5, 700, 70):  # some have nobody to remove but who is named already
        notes = [note for note in table_of(node, 3)[1] if note.startswith("removed together")]
        if notes:
            break
    (listed,) = [note.partition(": ")[2].split(", ") for note in notes]
    ranked = [line.split()[0] for line in table_of(node, "all")[0]]
    assert listed == [player for player in ranked if player != str(node)][:5]


def test_a_run_goes_by_its_name_in_the_list(here):
    by_name, by_folder = run("explain", "--run", "one", "--node", 5), run("explain", "--run", "runs/one", "--node", 5)
    assert by_name.exit_code == 0 and by_name.stdout == by_folder.stdout
    Path("one").mkdir()  # a folder of that name is what is meant, whatever it holds
    assert "[run.no_folder]" in run("explain", "--run", "one", "--node", 5).stderr


def test_a_taken_folder_is_refused_before_anything_is_trained(here, monkeypatch):
    module = sys.modules["dgl_lara.cli.train"]
    monkeypatch.setattr(module, "load_dataset", lambda *a: pytest.fail("the data was read first"))
    found = run("train", "--dataset", "ba-shapes", "--out", "runs/one")
    assert found.exit_code == 2 and "[run.exists]" in found.stderr


@pytest.mark.parametrize("words", [["datasets"], ["runs"], AGREEMENT])
def test_tables_fit_a_terminal(here, monkeypatch, words):
    in_a_file = run(*words).stdout
    for module in ("datasets", "runs", "eval"):
        monkeypatch.setattr(sys.modules[f"dgl_lara.cli.{module}"], "width", lambda: 60)
    assert max(map(len, in_a_file.splitlines())) > 80
    lines = run(*words).stdout.splitlines()
    assert max(len(line) for line in lines if "  " in line) <= 60


def test_several_metrics_are_measured_at_once(here):
    found = run("eval", "--run", "one", "--metric", "fidelity", *AGREEMENT[3:], "--json", "-")
    assert found.exit_code == 0 and {"agreement", "fidelity"} < set(json.loads(found.stdout))


def test_a_metric_that_cannot_be_had_is_refused_alone_and_left_out_among_others(here, monkeypatch):
    monkeypatch.setattr("dgl_lara.metrics.auc.GroundTruthAUC.unavailable", lambda *_: "auc.no_ground_truth")
    alone = run("eval", "--run", "one", "--metric", "auc", "--metric", "auc", "--json", "auc.json")
    assert alone.exit_code == 2 and alone.stdout == ""
    assert "[metric.unavailable]" in alone.stderr.splitlines()[-1]
    assert not Path("auc.json").exists() and not [*Path("runs/one").glob("eval-auc*")]
    words = ["--metric", "auc", "--metric", "latency", "--targets", 5, "--json", "both.json"]
    both = run("eval", "--run", "one", *words)
    assert both.exit_code == 0 and both.output.count("no auc: ") == 1
    assert "eval-auc" not in both.output and "auc" not in json.loads(Path("both.json").read_text())


def test_what_the_reference_is_stands_below_the_table(here):
    lines = run(*AGREEMENT).stdout.splitlines()
    (header,) = [line for line in lines if line.startswith("method")]
    assert (
        "reference" not in header and len([line for line in lines if line.startswith("The true attribution is ")]) == 1
    )


def test_an_empty_list_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "dgl-lara train" in run("runs").stdout


def test_show_tells_settings_and_figures(here):
    assert run("eval", "--run", "runs/one", *QUICK).exit_code == 0
    shown = run("runs", "show", "one").stdout
    assert "training: masks" in shown and "eval-fidelity: ba-shapes" in shown and "validation agreement" in shown
    table = pd.read_csv("runs/one/eval-fidelity.csv")
    own = table[(table.method == "lara") & (table.sparsity == "average")].set_index("definition")
    assert f"{own.delta['kept']:.3f}" in shown
    assert run("eval", "--run", "runs/one", "--metric", "throughput", "--targets", 5).exit_code == 0
    below = run("runs", "show", "one").stdout.split("eval-throughput: ")[1]
    assert "throughput" in below and "lara" in below
    assert f"{own.delta['kept']:.3f}" in run("runs").stdout


def test_compare_shows_what_differs(here):
    shown = run("runs", "compare", "one", "runs/two").stdout.splitlines()
    assert shown[0].split() == ["one", "two"]
    rows = {line.rsplit(None, 2)[0].strip(): line.split()[-2:] for line in shown[2:]}
    assert rows["training: masks"] == ["2", "7"] and "training: hidden" not in rows
    assert rows["steps"] == ["60", "60"]


def test_a_run_is_not_compared_with_itself(here):
    found = run("runs", "compare", "one", "runs/one")
    assert (found.exit_code, found.stdout) == (2, "") and "[run.same]" in found.stderr


def test_settings_are_words(here):
    config = json.loads(Path("runs/one/config.json").read_text())
    groups = [["colour", [0, 1]], ["size", [2]]]
    held = [{"name": "nodes"}, {"name": "features", "of": "field", "groups": groups}]
    Path("runs/one/config.json").write_text(json.dumps({**config, "players": held}))
    shown = run("runs", "show", "one").stdout
    assert "nodes, features (of field, groups 2)" in shown and str(config["training"]["lr"]) in shown
    assert not {"{", "[", "None", "True", "False"} & set(shown.split())


@pytest.mark.parametrize(
    ("content", "missing"),
    [("{}", "dataset, options, hops"), ('{"dataset": "ba-shapes", "hops": 3}', "options, value, training, preset")],
)
def test_a_damaged_run_is_refused_and_can_be_deleted(here, content, missing):
    Path("runs/one/config.json").write_text(content)
    for words in (["show", "one"], ["compare", "two", "one"], ["config", "one"]):
        found = run("runs", *words)
        assert found.exit_code == 1 and not found.stdout
        assert "[run.damaged]" in found.stderr and missing in found.stderr
    assert [line for line in run("runs").stdout.splitlines() if "damaged" in line][0].startswith("one")
    assert run("runs", "delete", "one", "--yes").exit_code == 0


def test_an_unknown_run_gets_the_closest(here):
    result = run("runs", "show", "tow")
    assert result.exit_code == 2 and "[run.unknown]" in result.stderr and "'two'" in result.stderr


@pytest.mark.long
def test_settings_handed_back_make_the_same_run(here):
    result = run("runs", "config", "one")
    assert result.exit_code == 0 and result.stdout.startswith("[train]\n")
    Path("run.toml").write_text(result.stdout)
    again = run("train", "--config", "run.toml", "--out", "again")
    assert again.exit_code == 0, again.output
    first, second = (json.loads(Path(f"{folder}/config.json").read_text()) for folder in ("runs/one", "again"))
    assert first == second
    assert Path("runs/one/metrics.csv").read_text() == Path("again/metrics.csv").read_text()


def test_the_command_line_goes_before_the_file(here):
    text = run("runs", "config", "one").stdout
    Path("run.toml").write_text(text + '\n[eval]\ntargets = 4\npairs = 0\nmetric = "fidelity"\n')
    made = run("train", "--config", "run.toml", "--dim", 3, "--epochs", 1, "--index", "keep-0.9", "--out", "again")
    assert made.exit_code == 0, made.output
    assert 'index = "keep-0.9"' in run("runs", "config", "again").stdout
    training = json.loads(Path("again/config.json").read_text())["training"]
    assert (training["dim"], training["hidden"]) == (3, 16)
    result = run("eval", "--run", "again", "--config", "run.toml")
    assert "4 test nodes" in result.output and "sampled" not in result.output


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[train", "[config.not_toml]"),
        ("dataset = 'cora'", "[config.no_table]"),
        ("", "[config.no_table]"),
        ("[train]\n[evall]\ntargets = 3", "'eval'? [config.no_command]"),
        ("[train]\nplayers = []", "[config.empty]"),
        ("[train]\ndatast = 'cora'", "'dataset'? [config.no_option]"),
        ("[train]\ndim = 'wide'", "'--dim'"),
        ("[train]\ndim = {a = 1}", "[config.type]"),
        ("[train]\ndim = [1]", "[config.type]"),
        ("[train]\nout = [1, 2]", "[config.type]"),
        ("[train]\nplayers = [[1]]", "[config.type]"),
        ("[train]\ndataset = 1979-05-27", "1979-05-27"),
    ],
)
def test_invalid_config_files(tmp_path, monkeypatch, text, expected):
    monkeypatch.chdir(tmp_path)
    Path("run.toml").write_text(text)
    result = run("train", "--config", "run.toml")
    assert result.exit_code == 2 and expected in " ".join(result.stderr.split()) and "Traceback" not in result.output


def test_every_kind_of_value_survives_a_file():
    tomllib = pytest.importorskip("tomllib")
    options = {"a": 'quoted "name"\\ü', "b": True, "c": 1e-05, "d": 3, "e": None, "f": Path("x/y")}
    assert tomllib.loads(to_toml("train", options)) == {
        "train": {"a": 'quoted "name"\\ü', "b": True, "c": 1e-05, "d": 3, "f": "x/y"}
    }


def test_delete_removes_what_is_ours_and_nothing_else(here):
    assert run("eval", "--run", "runs/one", *QUICK).exit_code == 0
    assert all(OURS.fullmatch(path.name) for path in Path("runs/one").iterdir())  # whatever a run gets is known
    assert OURS.fullmatch("report.html") and not OURS.fullmatch("my-report.html")
    refused = run("runs", "delete", "one")
    assert refused.exit_code == 2 and "[runs.no_terminal]" in refused.stderr and Path("runs/one/config.json").exists()
    assert run("runs", "delete", "one", "--yes").exit_code == 0
    assert not Path("runs/one").exists() and Path("runs/two/explainer.pt").exists()
    Path("runs/two/notes.txt").write_text("mine")
    Path("runs/two/figures").mkdir()
    Path("runs/two/figures/config.json").write_text("mine too")
    result = run("runs", "delete", "two", "--yes")
    assert "config.json, notes.txt" in result.stdout
    assert sorted(str(path.relative_to("runs")) for path in Path("runs").rglob("*") if path.is_file()) == [
        "two/figures/config.json",
        "two/notes.txt",
    ]


# --- evaluations ------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_an_earlier_evaluation_stays(here):
    words = ["eval", "--run", "runs/one", "--pairs", "0"]
    first = run(*words, "--targets", 8)
    assert first.exit_code == 0 and "runs/one/eval-fidelity.csv" in first.stdout
    kept = Path("runs/one/eval-fidelity.csv").read_text()
    second = run(*words, "--targets", 5)
    assert "runs/one/eval-fidelity-2.csv" in second.stdout and "eval-fidelity.csv" not in second.stdout
    assert Path("runs/one/eval-fidelity.csv").read_text() == kept
    assert json.loads(Path("runs/one/eval-fidelity-2.json").read_text())["question"]["targets"] == 5
    third = run(*words, "--targets", 8)  # the same question again: the same place
    assert "runs/one/eval-fidelity.csv" in third.stdout and not Path("runs/one/eval-fidelity-3.csv").exists()


def test_json_to_standard_output(here):
    result = run("eval", "--run", "runs/one", *QUICK, "--json", "-")
    assert result.exit_code == 0 and not Path("-").exists()
    content = json.loads(result.stdout)
    assert {"random", "lara"} <= {row["method"] for row in content["fidelity"]}
    assert "fidelity+ (high)" in result.stderr and "written: " in result.stderr


def test_a_run_that_was_never_trained_is_not_the_newest(tmp_path, monkeypatch):
    """Where there is one that was: whoever asks for explanations means that one."""
    monkeypatch.chdir(tmp_path)
    for name, trained in (("done", True), ("begun", False)):
        folder = Path("runs", name)
        folder.mkdir(parents=True)
        (folder / "config.json").write_text('{"dataset": "ba-shapes"}')
        if trained:
            (folder / "explainer.pt").touch()
    assert newest_run() == Path("runs/done")
    Path("runs/done/explainer.pt").unlink()
    assert newest_run() == Path("runs/begun")


def test_the_cost_of_refining_is_printed(quick_runs):
    words = ("explain", "--run", quick_runs["ba-shapes"], "--node", 512, "--refine", "auto", "--at-least")
    assert message("refine.none", least=0.001) in run(*words, 0.001).output
    cost = message("refine.still_doubtful", count=1, least=0.999, coalitions=896, left=1)
    assert cost in run(*words, 0.999).output


def test_a_player_set_is_resumed_with_its_run(here):
    """Explainers of further player sets are in folders within the run."""
    part = Path("runs/one/edges")
    part.mkdir()
    for name in ("metrics.csv", "explainer.pt"):
        shutil.copy(f"runs/one/{name}", part)
    rows = (part / "metrics.csv").read_text().splitlines()
    (part / "metrics.csv").write_text("\n".join(rows[:-1]) + "\n")
    found = RunSummary(part)
    assert found.stopped and found.resume_command == "dgl-lara train --resume runs/one"
    config = json.loads(Path("runs/one/config.json").read_text())
    own = {"module": "m", "function": "f", "file": "m.py"}
    Path("runs/one/config.json").write_text(json.dumps({**config, "model": own}))
    assert RunSummary(part).resume_command.endswith(" --trust")
    assert resume_command(Path("my runs/one"), False) == "dgl-lara train --resume 'my runs/one'"
