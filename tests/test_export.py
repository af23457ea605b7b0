"""`dgl-lara explain`: whole files or none, the same rows in every format, resumed after a kill."""

import json
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch
from click.testing import CliRunner
from test_bulk import bulk

from dgl_lara import export
from dgl_lara.cli import main
from dgl_lara.errors import InputError
from dgl_lara.inference import explain

ABOUT = {"run": "a", "seed": 0}


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr("dgl_lara.export.TARGETS_A_PART", 30)


def test_every_format_holds_the_same_rows(tmp_path):
    one, frames = bulk("walk", False), []
    for ending, read in (
        (".parquet", pd.read_parquet),
        (".csv", pd.read_csv),
        (".jsonl", lambda p: pd.read_json(p, lines=True)),
    ):
        out = tmp_path / f"e{ending}"
        count = export.explain_to_file(one, torch.arange(80), 4, out, ABOUT)
        frames.append(read(out))
        assert len(frames[-1]) == count
    for frame in frames[1:]:
        pd.testing.assert_frame_equal(frame, frames[0], check_dtype=False, atol=1e-5)
    assert frames[0].columns.tolist() == ["target", "player", "hop", "score", "rank", "explained_class"]
    assert frames[0].groupby("target").size().max() == 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["e.csv", "e.jsonl", "e.parquet"]
    assert json.loads(pq.read_schema(tmp_path / "e.parquet").metadata[b"dgl-lara"]) == ABOUT


def test_all_players(tmp_path):
    one = bulk("walk", False)
    export.explain_to_file(one, torch.arange(80), None, tmp_path / "e.parquet", ABOUT)
    frame = pd.read_parquet(tmp_path / "e.parquet")
    expected = explain(one.explainer, one.game, one.embeddings, torch.arange(80)).to_frame()
    pd.testing.assert_frame_equal(frame, expected, check_dtype=False)


class Killed(BaseException):
    pass


def test_killed_then_resumed(tmp_path, monkeypatch):
    one, out, made = bulk("walk", False), tmp_path / "e.parquet", []
    whole = export.rows

    def rows(bulk, targets, top):
        if len(made) == 2:
            raise Killed
        made.append(len(targets))
        return whole(bulk, targets, top)

    monkeypatch.setattr("dgl_lara.export.rows", rows)
    with pytest.raises(Killed):
        export.explain_to_file(one, torch.arange(80), 4, out, ABOUT)
    assert not out.exists() and made == [30, 30]
    monkeypatch.setattr("dgl_lara.export.rows", lambda *a: made.append("again") or whole(*a))
    export.explain_to_file(one, torch.arange(80), 4, out, ABOUT)
    assert made == [30, 30, "again"]  # only what was missing
    export.explain_to_file(one, torch.arange(80), 4, tmp_path / "unbroken.parquet", ABOUT)
    pd.testing.assert_frame_equal(pd.read_parquet(out), pd.read_parquet(tmp_path / "unbroken.parquet"))


def test_parts_of_another_question_are_not_taken(tmp_path, monkeypatch):
    one, out = bulk("walk", False), tmp_path / "e.parquet"
    whole = export.rows
    monkeypatch.setattr("dgl_lara.export.TARGETS_A_PART", 100)
    with monkeypatch.context() as patch:
        patch.setitem(export.WRITERS, ".parquet", lambda *a: (_ for _ in ()).throw(Killed()))
        with pytest.raises(Killed):
            export.explain_to_file(one, torch.arange(80), 4, out, ABOUT)
    asked = []
    monkeypatch.setattr("dgl_lara.export.rows", lambda *a: asked.append(a[2]) or whole(*a))
    export.explain_to_file(one, torch.arange(80), 3, out, ABOUT)
    assert asked == [3]


def test_bad_files(tmp_path):
    with pytest.raises(InputError, match=r"must end in .parquet, .csv, .jsonl \(got 'e.txt'\)"):
        export.explain_to_file(bulk("walk", False), torch.arange(3), 4, tmp_path / "e.txt", ABOUT)
    (tmp_path / "n.txt").write_text("3\nfour\n")
    with pytest.raises(InputError, match="one whole number a line"):
        export.read_targets(tmp_path / "n.txt")


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
    Path("n.txt").write_text("5\n3\n")
    result = run("explain", "--run", "r", "--nodes", "n.txt", "--top", 5, "--out", "two.csv")
    assert result.exit_code == 0, result.output
    two = pd.read_csv("two.csv")
    assert two.target.unique().tolist() == [5, 3]
    merged = two.merge(frame, on=["target", "player"], suffixes=("", "_all"))
    assert len(merged) == len(two) and (merged.score - merged.score_all).abs().max() < 1e-5
    assert run("explain", "--run", "r", "--out", "x.csv").exit_code == 2
    assert run("explain", "--run", "r", "--all", "--split", "test", "--out", "x.csv").exit_code == 2
