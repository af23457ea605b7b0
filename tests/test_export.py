"""`dgl-lara explain`: whole files or none, the same rows in every format, resumed after a kill."""

import json
import re
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch
from click.testing import CliRunner
from codes import raises
from test_bulk import bulk

from dgl_lara.cli import main
from dgl_lara.errors import InputError
from dgl_lara.inference import export
from dgl_lara.inference.request import ExplainRequest
from dgl_lara.runs.explain_job import open_job, read_targets
from dgl_lara.runs.open import open_run

ABOUT = {"run": "a", "seed": 0}
pytestmark = pytest.mark.usefixtures("hardly_judged")


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr("dgl_lara.inference.export.TARGETS_A_PART", 30)


def test_every_format_holds_the_same_rows(tmp_path):
    one, frames = bulk("walk", False), []
    for ending, read in (
        (".parquet", pd.read_parquet),
        (".csv", pd.read_csv),
        (".jsonl", lambda p: pd.read_json(p, lines=True)),
    ):
        out = tmp_path / f"e{ending}"
        count = export.explain_to_file(one, torch.arange(80), 4, out, ABOUT)
        frames.append(read(out).astype({"kind": str}))
        assert len(frames[-1]) == count
    for frame in frames[1:]:
        pd.testing.assert_frame_equal(frame, frames[0], check_dtype=False, atol=1e-5)
    assert frames[0].columns.tolist() == ["target", "player", "hop", "score", "rank", "explained_class", "kind"]
    assert frames[0].groupby("target").size().max() == 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["e.csv", "e.jsonl", "e.parquet"]
    assert json.loads(pq.read_schema(tmp_path / "e.parquet").metadata[b"dgl-lara"]) == ABOUT


def test_all_players(tmp_path):
    one = bulk("walk", False)
    export.explain_to_file(one, torch.arange(80), None, tmp_path / "e.parquet", ABOUT)
    frame = pd.read_parquet(tmp_path / "e.parquet")
    expected = one.explain(torch.arange(80)).to_frame()
    pd.testing.assert_frame_equal(frame, expected, check_dtype=False)


class Killed(BaseException):
    pass


def counted_rows(monkeypatch, stops=()):
    """Note the size of each part that is computed. `stops`: (number of parts, exception) pairs, raised in order."""
    made, stops, original = [], list(stops), export.amortised_rows

    def rows(scorer, targets, top):
        if stops and len(made) == stops[0][0]:
            raise stops.pop(0)[1]
        made.append(len(targets))
        return original(scorer, targets, top)

    monkeypatch.setattr(export, "amortised_rows", rows)
    return made


def test_an_export_resumes_after_a_kill(tmp_path, monkeypatch):
    scorer, out, made = bulk("walk", False), tmp_path / "e.parquet", counted_rows(monkeypatch, [(2, Killed)])
    with pytest.raises(Killed):
        export.explain_to_file(scorer, torch.arange(80), 4, out, ABOUT)
    assert not out.exists() and made == [30, 30]
    export.explain_to_file(scorer, torch.arange(80), 4, out, ABOUT)
    assert made == [30, 30, 20]  # only what was missing
    export.explain_to_file(scorer, torch.arange(80), 4, tmp_path / "unbroken.parquet", ABOUT)
    pd.testing.assert_frame_equal(pd.read_parquet(out), pd.read_parquet(tmp_path / "unbroken.parquet"))


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".jsonl"])
def test_an_interrupted_export_reports_the_parts_it_keeps(tmp_path, monkeypatch, notices, ending):
    scorer, out = bulk("walk", False), tmp_path / f"e{ending}"
    made = counted_rows(monkeypatch, [(0, KeyboardInterrupt), (2, KeyboardInterrupt)])
    for kept in (0, 2):
        with pytest.raises(KeyboardInterrupt):
            export.explain_to_file(scorer, torch.arange(80), 4, out, ABOUT)
        assert notices.codes == (["export.interrupted"] if kept else [])
    fields = notices.fields("export.interrupted")
    assert (fields["kept"], fields["total"], str(fields["folder"])) == (2, 3, f"{out}.parts")
    export.explain_to_file(scorer, torch.arange(80), 4, out, ABOUT)
    assert made == [30, 30, 20]
    export.explain_to_file(scorer, torch.arange(80), 4, tmp_path / f"unbroken{ending}", ABOUT)
    assert out.read_text("latin1") == (tmp_path / f"unbroken{ending}").read_text("latin1")


def test_parts_are_small_if_the_model_is_called():
    game, targets = bulk("walk", False).game, torch.arange(80).repeat(10)
    parts = list(export.split_targets(game, targets, None, pairs=2))
    assert [len(part) for part in parts] == [200] * 4 and torch.equal(torch.cat(parts), targets)
    assert [len(part) for part in export.split_targets(game, targets, 4)] == [30] * 26 + [20]


def test_the_progress_bar_shows_the_pace(tmp_path, monkeypatch):
    notes = []
    monkeypatch.setattr(export.Progress, "note", lambda bar, *words, **figures: notes.append((words, figures)))
    export.explain_to_file(bulk("walk", False), torch.arange(80), 4, tmp_path / "e.csv", ABOUT)
    assert notes and all(re.fullmatch(r"[\d,.]+ a second", *words) and not more for words, more in notes)


def test_parts_of_another_export_are_not_reused(tmp_path, monkeypatch):
    scorer, out = bulk("walk", False), tmp_path / "e.parquet"
    monkeypatch.setattr(export, "TARGETS_A_PART", 100)
    with monkeypatch.context() as patch:
        patch.setitem(export.WRITERS, ".parquet", lambda *a: (_ for _ in ()).throw(Killed()))
        with pytest.raises(Killed):
            export.explain_to_file(scorer, torch.arange(80), 4, out, ABOUT)
    made = counted_rows(monkeypatch)
    export.explain_to_file(scorer, torch.arange(80), 3, out, ABOUT)
    assert made == [80]


def test_the_ending_of_a_file_is_checked(tmp_path):
    with raises("export.ending", got="e.txt"):
        export.explain_to_file(bulk("walk", False), torch.arange(3), 4, tmp_path / "e.txt", ABOUT)


@pytest.mark.parametrize(
    ("content", "code", "fields"),
    [
        ("3\n\nfour\n", "targets_file.line", {"line": 3, "got": "four"}),
        ("3\n1_0\n", "targets_file.line", {"line": 2, "got": "1_0"}),
        (f"{2**63}\n", "targets_file.line", {"line": 1, "got": str(2**63)}),
        ("\n \n", "text_file.empty", {}),
        ("\xff\0", "text_file.not_text", {}),
        (None, "text_file.unreadable", {}),
    ],
)
def test_invalid_lists_of_targets(content, code, fields, tmp_path):
    if content is not None:
        (tmp_path / "n.txt").write_text(content, encoding="latin-1")
    with raises(code, InputError, path=tmp_path / "n.txt", **fields):
        read_targets(tmp_path / "n.txt")


@pytest.mark.parametrize("name", ["ba-shapes", "molecules"])
def test_command(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        return CliRunner().invoke(main, list(map(str, arguments)))

    assert run("target", "--dataset", name, "--epochs", 2, "--out", "f.pt").exit_code == 0
    quick = ["--epochs", 1, "--hidden", 16, "--dim", 5, "--masks", 2]
    assert run("train", "--dataset", name, "--target", "f.pt", *quick, "--out", "r").exit_code == 0
    result = run("explain", "--run", "r", "--all", "--top", 5, "--out", "all.parquet")
    assert result.exit_code == 0, result.output
    frame = pd.read_parquet("all.parquet")
    assert frame.target.nunique() == (700 if name == "ba-shapes" else 1000)
    assert (tmp_path / "r" / "embeddings.pt").exists()
    Path("n.txt").write_bytes(b"\xef\xbb\xbf5\r\n3\r\n")  # as editors of Windows store it
    result = run("explain", "--run", "r", "--nodes", "n.txt", "--top", 5, "--out", "two.csv")
    assert result.exit_code == 0, result.output
    two = pd.read_csv("two.csv")
    assert two.target.unique().tolist() == [5, 3]
    merged = two.merge(frame, on=["target", "player"], suffixes=("", "_all"))
    assert len(merged) == len(two) and (merged.score - merged.score_all).abs().max() < 1e-5
    assert run("explain", "--run", "r", "--out", "x.csv").exit_code == 2
    assert run("explain", "--run", "r", "--all", "--split", "test", "--out", "x.csv").exit_code == 2


@pytest.fixture(scope="module")
def a_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")

    def run(*arguments):
        result = CliRunner().invoke(main, list(map(str, arguments)))
        assert result.exit_code == 0, result.output

    run("target", "--dataset", "ba-shapes", "--epochs", 2, "--out", folder / "f.pt")
    quick = ["--epochs", 1, "--hidden", 16, "--dim", 5, "--masks", 2]
    run("train", "--dataset", "ba-shapes", "--target", folder / "f.pt", *quick, "--out", folder / "r")
    run("explain", "--run", folder / "r", "--all", "--top", 5, "--out", folder / "usual.parquet")
    return folder


def assert_same(one, other, close=1e-4):
    """The same scores in the same order; only players whose scores are tied up to rounding may change places."""
    one, other = (frame.sort_values(["target", "rank"], ignore_index=True) for frame in (one, other))
    exact = ["target", "rank", "explained_class"]
    pd.testing.assert_frame_equal(one[exact], other[exact])
    pd.testing.assert_series_equal(one.score, other.score, atol=close, rtol=0)
    gap = one.groupby("target").score.diff().abs()
    tied = (gap < close) | (gap.shift(-1) < close) | (one["rank"] == one.groupby("target")["rank"].transform("max"))
    moved = (one.player != other.player) | (one.hop != other.hop)
    assert moved.mean() < 0.01 and not (moved & ~tied).any()


@pytest.mark.long
@pytest.mark.parametrize(
    "way",
    [["--memory", "0.1MB"], ["--offload"], ["--offload", "--workers", "1"], []],
    ids=["little memory", "offload", "workers", "stored"],
)
def test_every_way_gives_the_same_file(a_run, tmp_path, way):
    if way:
        (a_run / "r" / "embeddings.pt").unlink(missing_ok=True)
    out = tmp_path / "e.parquet"
    arguments = ["explain", "--run", str(a_run / "r"), "--all", "--top", "5", "--out", str(out), *way]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    assert_same(pd.read_parquet(out), pd.read_parquet(a_run / "usual.parquet"))


@pytest.mark.long
def test_all_players_with_little_memory_come_in_small_parts(a_run, tmp_path, monkeypatch):
    monkeypatch.setattr(export, "TARGETS_A_PART", 700)
    made, sizes = counted_rows(monkeypatch), {}
    for memory in ("1MB", "1GB"):
        out = str(tmp_path / f"{memory}.parquet")
        arguments = ["explain", "--run", str(a_run / "r"), "--all", "--amortised", "--top", "all", "--out", out]
        assert CliRunner().invoke(main, [*arguments, "--memory", memory]).exit_code == 0
        sizes[memory], made[:] = max(made), []
    assert sizes["1MB"] < sizes["1GB"] == 700
    assert_same(*(pd.read_parquet(tmp_path / f"{name}.parquet") for name in sizes), close=1e-5)


@pytest.mark.parametrize("bad", ["4", "lots", "-1GB", "GB"])
def test_invalid_sizes(a_run, bad):
    result = CliRunner().invoke(
        main, ["explain", "--run", str(a_run / "r"), "--all", "--out", "e.csv", "--memory", bad]
    )
    assert result.exit_code == 2 and "like 4GB" in result.output


def test_a_few_targets_from_the_store_or_without_it(a_run):
    (a_run / "r" / "embeddings.pt").unlink(missing_ok=True)
    targets, cpu = torch.tensor([650, 12]), torch.device("cpu")
    fresh = open_run(a_run / "r", cpu)
    without = fresh.trained().explain(targets)
    assert not (a_run / "r" / "embeddings.pt").exists()  # a single question makes no pass over everything
    fresh.trained().embed()
    again = open_run(a_run / "r", cpu)
    stored = again.trained().explain(targets)
    assert stored.players.player.tolist() == without.players.player.tolist()
    torch.testing.assert_close(stored.scores, without.scores, atol=1e-5, rtol=1e-4)
    with raises("targets.range", most=699):
        again.trained().explain(torch.tensor([700]))


def test_one_node_on_the_command_line_makes_no_pass_over_everything(a_run, monkeypatch):
    (a_run / "r" / "embeddings.pt").unlink(missing_ok=True)
    monkeypatch.setattr("dgl_lara.inference.embedder.embed_graph", lambda *a: pytest.fail("a pass over everything"))
    result = CliRunner().invoke(main, ["explain", "--run", str(a_run / "r"), "--node", "650"])
    assert result.exit_code == 0, result.output
    assert result.output.startswith("Node 650 ")


def test_stored_embeddings_are_taken_unless_the_explainer_changed(a_run, monkeypatch):
    run = open_run(a_run / "r", torch.device("cpu"))
    expected = run.trained().embed()
    made = []
    monkeypatch.setattr("dgl_lara.inference.embedder.embed_graph", lambda *a: made.append(a) or expected)
    again = open_run(a_run / "r", torch.device("cpu"))
    assert torch.equal(again.trained().embed().source, expected.source) and not made
    other = open_run(a_run / "r", torch.device("cpu")).trained()
    with torch.no_grad():
        other.explainer_.source_head.bias += 1
    other.embed()
    assert len(made) == 1
    (a_run / "r" / "embeddings.pt").unlink()


def test_stored_logits_spare_the_pass_of_f_unless_the_model_changed(a_run):
    run = open_run(a_run / "r", torch.device("cpu"))
    run.trained().embed()
    before = open_run(a_run / "r", torch.device("cpu")).game
    (a_run / "r" / "embeddings.pt").unlink()
    assert (
        before.caller.num_calls == open_run(a_run / "r", torch.device("cpu")).game.caller.num_calls - 2
    )  # f is asked twice: is it random?
    fresh = open_run(a_run / "r", torch.device("cpu"))
    fresh.trained().embed()
    other = open_run(a_run / "r", torch.device("cpu"))
    with torch.no_grad():
        other.model.head.bias += 1
    assert float(other.game.full_logits.sum()) > float(run.game.full_logits.sum()) + 1000


def test_a_list_is_read_before_the_run(tmp_path):
    (tmp_path / "n.txt").write_text("three\n")
    for folder, option, code in (
        (tmp_path / "no run", "nodes", "targets_file.line"),
        (tmp_path, "pairs", "text_file.empty"),
    ):
        with raises(code, InputError, path=tmp_path / "n.txt"):
            open_job(ExplainRequest(folder, **{option: tmp_path / "n.txt"}))
