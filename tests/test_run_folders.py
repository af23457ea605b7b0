"""`dgl-lara runs`: lists, shows, compares, hands back settings, deletes; `--config`; evaluations stay."""

import json
import os
import shlex
import shutil
import sys
from pathlib import Path

import pandas as pd
import pytest
from codes import refused, run, succeeds

from dgl_lara._util.atomic import locked
from dgl_lara.cli.config_file import to_toml
from dgl_lara.errors import message
from dgl_lara.runs.folder import newest_run, resume_command
from dgl_lara.runs.overview import OURS, RunSummary

QUICK = ["--targets", "6", "--pairs", "0"]
AGREEMENT = ["eval", "--run", "one", "--metric", "agreement", *QUICK, "--reference-pairs", "100"]


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
    columns = ["run", "started", "data", "set", "model", "steps", "agreement", "delta", "targets", "MB"]
    assert lines[0].split() == columns
    assert [line.split()[0] for line in lines[2:4]] == ["two", "one"]  # the newest first
    best = pd.read_csv("runs/one/metrics.csv").agreement.max()
    assert "ba-shapes" in lines[3] and " 60 " in lines[3] and f"{best:.3f}" in lines[3]
    Path("runs/one/config.json").write_text("{")
    Path("runs/two/explainer.pt").unlink()
    again = succeeds("runs")
    assert "one" in again.stdout and "not trained" in again.stdout


def test_an_explainer_that_has_learned_little_is_noted(here, notices):
    succeeds("explain", "--run", "one", "--node", 5)
    assert not notices.has("explainer.low_agreement")
    history = pd.read_csv("runs/one/metrics.csv")
    history.assign(agreement=0.18).to_csv("runs/one/metrics.csv", index=False)
    for words in (
        ["--node", 5],
        ["--split", "test", "--out", "e.csv"],
        ["--split", "test", "--shard", "0/2", "--out", "s"],
    ):
        notices.records.clear()
        succeeds("explain", "--run", "one", *words)
        assert notices.has("explainer.low_agreement", agreement=0.18)


def test_a_stopped_run_is_noted(here, notices):
    words = (["explain", "--node", 5], [*AGREEMENT[:1], *AGREEMENT[3:]], ["summary", "--targets", 20])
    assert all(run(each[0], "--run", "one", *each[1:]).exit_code == 0 for each in words)
    assert not notices.has("run.stopped")
    history = pd.read_csv("runs/one/metrics.csv")
    history[:-1].to_csv("runs/one/metrics.csv", index=False)
    done = history.epoch.iloc[-2]
    for each in words:
        notices.records.clear()
        succeeds(each[0], "--run", "one", *each[1:])
        assert notices.has("run.stopped", done=f"{done} of 60 epochs")
    assert resume_command(Path("runs/one"), False) in run("runs", "show", "one").stdout
    stopped = {line.split()[0]: f"{done} (stopped)" in line for line in run("runs").stdout.splitlines()[2:4]}
    assert stopped == {"one": True, "two": False}
    with locked(Path("runs/one")):
        assert f"{done} (in training)" in run("runs").stdout and "in training" in run("runs", "show", "one").stdout
        notices.records.clear()
        succeeds("explain", "--run", "one", "--node", 5)
        assert notices.has("run.in_training", done=f"{done} of 60 epochs")
        assert not notices.has("run.stopped")


def test_figures_of_an_earlier_explainer_are_not_those_of_now(here):
    """Evaluated when it was interrupted, then trained to its end: the old figure stood for the new explainer."""
    history = pd.read_csv("runs/one/metrics.csv")
    history[:-1].to_csv("runs/one/metrics.csv", index=False)
    succeeds(*AGREEMENT)
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
        refused(found, "run.not_trained", 1)
        assert resume_command(Path("runs/one"), True) in found.stderr


def test_figures_over_other_targets_do_not_stand_side_by_side(here):
    rows = [{"method": "lara", "sparsity": "average", "definition": "kept", "fidelity+": 1, "fidelity-": 0, "delta": 1}]
    for name, file, targets, delta in (("one", "eval-fidelity", 100, 4.25), ("one", "eval-fidelity-2", 6, 9.5),
                                       ("two", "eval-fidelity", 6, 7.75)):  # fmt: skip
        content = {"what": "-", "question": {"targets": targets}, "fidelity": [{**rows[0], "delta": delta}]}
        Path(f"runs/{name}/{file}.json").write_text(json.dumps(content))
    two, one = run("runs").stdout.splitlines()[2:4]
    assert one.split()[-3:-1] == ["4.250", "100"] and two.split()[-3:-1] == ["7.750", "6"]
    reported = [line.split() for line in run("runs", "compare", "one", "two").stdout.splitlines() if "delta" in line]
    assert reported == [
        ["delta,", "kept", "(100", "targets)", "4.250", "-"],
        ["delta,", "kept", "(6", "targets)", "-", "7.750"],
    ]


def test_steps_are_not_shown_where_epochs_decide(here):
    shown = run("runs", "show", "one").stdout
    assert "training: epochs" in shown and "training: steps" not in shown and "checksum" in shown


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
        refused(run(words[0], option, "three", *words[1:]), "run.no_folder")


def test_a_missing_graph_file_and_missing_targets_are_refused(here):
    refused(run("explain", "--run", "one", "--graph", "nope.npz"), "explain.no_graph_file")
    Path("g.npz").write_bytes(b"")
    refused(run("explain", "--run", "one", "--graph", "g.npz"), "options.missing")


def test_refined_scores_have_fidelity_and_confidence(here):
    found = succeeds("explain", "--run", "one", "--node", 5, "--refine", 4, "--verify")
    assert "fidelity+" in found.stdout and "fidelity-" in found.stdout
    run("explain", "--run", "one", "--split", "test", "--refine", 4, "--out", "refined.csv")
    frame = pd.read_csv("refined.csv")
    assert set(frame.source) == {"corrected"} and frame.confidence.between(0, 1).all() and frame.moved.min() > 0


def test_players_removed_to_check_the_scores_are_listed(here):
    for node in range(5, 700, 70):  # for some all removed players are named already
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
    refused(run("explain", "--run", "one", "--node", 5), "run.no_folder")


def test_a_taken_folder_is_refused_before_anything_is_trained(here, monkeypatch):
    module = sys.modules["dgl_lara.cli.train"]
    monkeypatch.setattr(module, "load_dataset", lambda *a: pytest.fail("the data was read first"))
    refused(run("train", "--dataset", "ba-shapes", "--out", "runs/one"), "run.exists")


@pytest.mark.parametrize("words", [["datasets"], ["runs"], AGREEMENT])
def test_tables_fit_a_terminal(here, monkeypatch, words):
    in_a_file = run(*words).stdout
    for module in ("datasets", "runs", "eval"):
        monkeypatch.setattr(sys.modules[f"dgl_lara.cli.{module}"], "width", lambda: 60)
    assert max(map(len, in_a_file.splitlines())) > 80
    lines = run(*words).stdout.splitlines()
    assert max(len(line) for line in lines if "  " in line) <= 60


def test_several_metrics_are_measured_at_once(here):
    found = succeeds("eval", "--run", "one", "--metric", "fidelity", *AGREEMENT[3:], "--json", "-")
    assert {"agreement", "fidelity"} < set(json.loads(found.stdout))


def test_a_metric_that_cannot_be_had_is_refused_alone_and_left_out_among_others(here, monkeypatch):
    monkeypatch.setattr("dgl_lara.metrics.auc.GroundTruthAUC.unavailable", lambda *_: "auc.no_ground_truth")
    alone = run("eval", "--run", "one", "--metric", "auc", "--metric", "auc", "--json", "auc.json")
    assert alone.exit_code == 2 and alone.stdout == ""
    assert "[metric.unavailable]" in alone.stderr.splitlines()[-1]
    assert not Path("auc.json").exists() and not [*Path("runs/one").glob("eval-auc*")]
    words = ["--metric", "auc", "--metric", "latency", "--targets", 5, "--json", "both.json"]
    both = succeeds("eval", "--run", "one", *words)
    assert both.output.count("no auc: ") == 1
    assert "eval-auc" not in both.output and "auc" not in json.loads(Path("both.json").read_text())


def test_what_the_reference_is_stands_below_the_table(here):
    lines = run(*AGREEMENT).stdout.splitlines()
    (header,) = [line for line in lines if line.startswith("method")]
    note = message("agreement.reference", description="").removesuffix(".")
    assert "reference" not in header and sum(line.startswith(note) for line in lines) == 1


def test_an_empty_list_has_a_remedy(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    remedy = message("run.none", of="", dataset="ba-shapes")
    assert remedy in run("runs").stdout


def test_show_prints_settings_and_figures(here):
    succeeds("eval", "--run", "runs/one", *QUICK)
    shown = run("runs", "show", "one").stdout
    assert "training: masks" in shown and "eval-fidelity: " in shown and "validation agreement" in shown
    table = pd.read_csv("runs/one/eval-fidelity.csv")
    own = table[(table.method == "lara") & (table.sparsity == "average")].set_index("definition")
    assert f"{own.delta['kept']:.3f}" in shown
    succeeds("eval", "--run", "runs/one", "--metric", "throughput", "--targets", 5)
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
    succeeds("runs", "delete", "one", "--yes")


def test_an_unknown_run_gets_the_closest(here):
    result = run("runs", "show", "tow")
    refused(result, "run.unknown")
    assert "'two'" in result.stderr


@pytest.mark.long
def test_settings_handed_back_make_the_same_run(here):
    result = succeeds("runs", "config", "one")
    assert result.stdout.startswith("[train]\n")
    Path("run.toml").write_text(result.stdout)
    succeeds("train", "--config", "run.toml", "--out", "again")
    for name in ("config.json", "metrics.csv"):
        first, second = (Path(folder, name).read_text() for folder in ("runs/one", "again"))
        assert json.loads(first) == json.loads(second) if name == "config.json" else first == second


def test_the_command_line_goes_before_the_file(here):
    text = run("runs", "config", "one").stdout
    Path("run.toml").write_text(text + '\n[eval]\ntargets = 4\npairs = 0\nmetric = "fidelity"\n')
    index = ("--index", "keep-0.9", "--objective", "least-squares")
    succeeds("train", "--config", "run.toml", "--dim", 3, "--epochs", 1, *index, "--out", "again")
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
    succeeds("eval", "--run", "runs/one", *QUICK)
    assert all(OURS.fullmatch(path.name) for path in Path("runs/one").iterdir())  # whatever a run gets is known
    assert OURS.fullmatch("report.html") and not OURS.fullmatch("a-report.html")
    refused(run("runs", "delete", "one"), "runs.no_terminal")
    assert Path("runs/one/config.json").exists()
    succeeds("runs", "delete", "one", "--yes")
    assert not Path("runs/one").exists() and Path("runs/two/explainer.pt").exists()
    Path("runs/two/notes.txt").write_text("mine")
    mine = [Path("runs/two/figures/config.json"), Path("runs/two/notes.txt")]
    mine[0].parent.mkdir()
    mine[0].write_text("mine too")
    result = run("runs", "delete", "two", "--yes")
    assert "notes.txt" in result.stdout and "config.json" in result.stdout
    assert sorted(path for path in Path("runs").rglob("*") if path.is_file()) == mine


# --- evaluations ------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_an_earlier_evaluation_stays(here):
    words = ["eval", "--run", "runs/one", "--pairs", "0"]
    earlier, later, further = (Path(f"runs/one/eval-fidelity{number}.csv") for number in ("", "-2", "-3"))
    first = succeeds(*words, "--targets", 8)
    assert str(earlier) in first.stdout
    kept = earlier.read_text()
    second = run(*words, "--targets", 5)
    assert str(later) in second.stdout and earlier.name not in second.stdout
    assert earlier.read_text() == kept
    assert json.loads(later.with_suffix(".json").read_text())["question"]["targets"] == 5
    third = run(*words, "--targets", 8)  # the first question once more, into its own file
    assert str(earlier) in third.stdout and not further.exists()


def test_json_to_standard_output(here):
    result = succeeds("eval", "--run", "runs/one", *QUICK, "--json", "-")
    assert not Path("-").exists()
    content = json.loads(result.stdout)
    assert {"random", "lara"} <= {row["method"] for row in content["fidelity"]}
    assert "fidelity+ (high)" in result.stderr and "written: " in result.stderr


def test_a_run_that_was_never_trained_is_not_the_newest(tmp_path, monkeypatch):
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
    assert found.stopped and found.resume_command == resume_command(Path("runs/one"), False)
    config = json.loads(Path("runs/one/config.json").read_text())
    own = {"module": "m", "function": "f", "file": "m.py"}
    Path("runs/one/config.json").write_text(json.dumps({**config, "model": own}))
    assert RunSummary(part).resume_command.endswith(" --trust")
    assert shlex.split(resume_command(Path("my runs/one"), False))[1:] == ["train", "--resume", "my runs/one"]
