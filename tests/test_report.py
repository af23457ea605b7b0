"""The report: figures of the run, twelve examples, caveats, deviations from the paper, one file."""

import html
import json
import re
import shlex
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest
import torch
from browser import ask, needs_browser
from click.testing import CliRunner
from codes import run

from dgl_lara.cli import main
from dgl_lara.game.tasks import GRAPH, NODE
from dgl_lara.metrics import METRICS
from dgl_lara.metrics.fidelity import fidelity_per_target
from dgl_lara.reports import html as report
from dgl_lara.reports import measurements
from dgl_lara.reports.deviations import deviations, deviations_of
from dgl_lara.runs.open import open_run
from dgl_lara.runs.overview import find_run
from dgl_lara.runs.tables import setting_text, settings_of
from dgl_lara.training.config import default, paper

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module", params=["ba-shapes", "molecules"])
def found(request, quick_runs, session_cache):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DGL_LARA_CACHE", str(session_cache))
        patch.delenv("DGL_LARA_DATA", raising=False)
        run = open_run(quick_runs[request.param], torch.device("cpu"))
        return measurements.measure(run, "test", 16, pairs=10, reference_pairs=100, seed=0)


@pytest.fixture(scope="module")
def page(found):
    return report.render(found)


class Outline(HTMLParser):
    """Headings and captions. Fails if elements are closed in the wrong order."""

    def __init__(self, text):
        super().__init__()
        self.open, self.texts = [], {"h2": [], "h3": [], "figcaption": [], "li": []}
        self.feed(text)
        assert self.open == [], "elements left open"

    def handle_starttag(self, tag, attributes):
        if tag not in ("meta", "br"):
            self.open.append(tag)
        if tag in self.texts:
            self.texts[tag].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in self.texts:
            self.texts[self.open[-1]][-1] += data


# --- measurements -----------------------------------------------------------------------------------------------


def test_examples_are_best_typical_and_worst(found):
    assert {name: len(group) for name, group in found.examples.items()} == {"best": 4, "typical": 4, "worst": 4}
    targets = [explanation.target for group in found.examples.values() for explanation, _ in group]
    assert len(set(targets)) == 12
    delta = {name: [value for _, value in group] for name, group in found.examples.items()}
    assert min(delta["best"]) >= max(delta["typical"]) and min(delta["typical"]) >= max(delta["worst"])
    assert delta["best"][0] > delta["worst"][-1]
    explanation, value = found.examples["best"][0]
    plus, minus = fidelity_per_target(found.run.game, explanation.batch, keep_target=True)
    assert value == pytest.approx(float((plus - minus).mean()), abs=1e-5)


def test_unavailable_metrics_are_not_announced(found, monkeypatch, capsys):
    monkeypatch.setattr(type(METRICS["auc"]), "unavailable", lambda self, case: "auc.no_motif")
    without = measurements.measure(found.run, "test", 3, pairs=0, reference_pairs=100, seed=0)
    lines = capsys.readouterr().err
    assert "agreement" in lines and "auc" not in lines and without.tables["auc"].empty


def test_fewer_targets_than_examples(found):
    lara = found.examples["best"][0][0].batch
    assert {name: len(group) for name, group in measurements.examples_of(found.run, lara).items()} == {
        "best": 1, "typical": 0, "worst": 0,
    }  # fmt: skip


def test_every_method_is_in_every_table(found):
    for metric in ("fidelity", "agreement", "auc"):
        amortised = {"lara, amortised"} if "kept" in set(found.tables["fidelity"].definition) else set()  # nodes
        assert set(found.tables[metric].method) == {"random", "sampled 10", "lara", *amortised}
    assert found.speed.method.tolist() == ["lara, embeddings stored"] * 2 + ["sampled 10"]
    assert found.speed.targets.tolist() == [1, 16, 10]


# --- the page -------------------------------------------------------------------------------------------------


def plain(page):
    return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page)))


def test_the_page_has_its_sections_and_the_figures(found, page):
    assert len(Outline(page).texts["h2"]) == 6
    text = plain(page)
    r2 = found.tables["agreement"].set_index("method").loc["lara", "R2 corrected"]
    assert f"R² = {r2:.3f} on 16 test" in text and f"{found.accuracy['test']:.1%}" in text
    average = found.tables["fidelity"].query("sparsity == 'average'")
    for _, row in average.iterrows():
        assert f"{row['delta']:.2f} ± {row['delta error']:.2f}" in text
    history = pd.read_csv(found.run.folder / "metrics.csv")
    assert f"{history.step.max()} steps" in text
    stored = json.loads((found.run.folder / "environment.json").read_text())
    assert stored["command"] in text and stored["versions"]["torch"] in text


def test_all_texts_are_on_the_page(found, page):
    for codes in (report._summary(found, report._averages(found)), report._what(found), report._caveats(found)):
        assert all(line in html.unescape(page) for line in report._texts(codes))


def test_settings_are_those_of_the_run(found):
    settings = dict(report._settings(found.run))
    stored = settings_of(find_run(str(found.run.folder)))
    assert {name: settings[name] for name in stored} == {name: setting_text(value) for name, value in stored.items()}
    assert settings["model: features are divided by their row sum"] in ("yes", "no")
    assert "training: all-classes" in settings and not [name for name in settings if "_" in name]


def test_ground_truth_of_fewer_targets_has_a_note(found, page):
    count = int(found.tables["auc"].targets.iloc[0])
    assert 0 < count < 16 and report._truth_note(found.tables["auc"], 16) in page
    assert report._truth_note(found.tables["auc"], count) == "" == report._truth_note(pd.DataFrame(), 16)


def test_the_page_states_whether_scores_are_corrected(found, monkeypatch):
    lara = found.run.trained()
    if lara.samples_ is not None:
        assert report._explainer(found.run)["report.corrected_explainer"]["pairs"] == lara.samples_.pairs
        monkeypatch.setattr(lara, "fitted_", replace(lara.fitted, errors=None))
    assert list(report._explainer(found.run)) == ["report.explainer"]


def test_the_page_has_the_costs(found, page):
    assert f"lara {found.run.trained().cost_:,.0f} (in training" in page and found.cost in html.unescape(page)


def test_eval_with_the_options_of_the_page_gives_the_same_figures(found, page):
    assert found.eval_options in html.unescape(page)
    words = ["eval", "--metric", "agreement", *shlex.split(found.eval_options), "--json", "-"]
    table = json.loads(run(*words).stdout)["agreement"]
    (own,) = [row for row in table if row["method"] == "lara"]
    (expected,) = found.tables["agreement"].query("method == 'lara'").to_dict("records")
    assert own["R2 corrected"] == pytest.approx(expected["R2 corrected"], abs=1e-9)


def test_what_matters_in_general(found, page):
    ((summary, explanations),) = found.summaries
    text = plain(page)
    assert summary.title in text and f"{summary.groups[0]['for'].iloc[0]:.3f}" in text
    for row in summary.typical["row"]:
        assert explanations[row].in_words() in text


def test_examples_have_sentences_and_pictures(found, page):
    captions = Outline(page).texts["figcaption"][1:]
    sentences = [one.in_words() for group in found.examples.values() for one, _ in group]
    assert [caption[: len(words)] for caption, words in zip(captions, sentences, strict=True)] == sentences
    assert page.count("<svg") == page.count("</svg>") == 15
    assert not re.findall(r' id="([a-z]+(2d)?_\d+)"', page)


def test_captions_mark_wrong_predictions(found):
    (explanation, delta), *_ = found.examples["best"]
    labels = found.run.dataset.labels.clone()
    labels[explanation.target] = explanation.predicted_class
    ((_, caption),) = report._examples("best", [(explanation, delta)], labels)
    labels[explanation.target] = 1 - explanation.predicted_class
    ((_, marked),) = report._examples("best", [(explanation, delta)], labels)
    assert "wrong" not in caption and "wrong" in marked


def test_the_page_has_one_font(page):
    style = page[page.index("<style>") : page.index("</style>")]
    assert "Georgia" not in style and set(re.findall(r"font(?:-family)?:[^;]*?([a-z-]+-ui, sans-serif)", style)) == {
        "system-ui, sans-serif"
    }


def test_the_page_is_self_contained(page):
    assert not re.findall('(?:src|href)="[^#d]', page)
    assert "<script" not in page and "@import" not in page and "{{" not in page


def test_caveats_follow_the_figures(found):
    caveats = report._caveats(found)
    r2 = found.tables["agreement"].set_index("method").loc["lara", "R2 corrected"]
    expected = {
        "caveat.low_agreement": r2 < report.MIN_AGREEMENT,
        "caveat.few_targets": True,
        "caveat.own_attribution": found.run.game.player_set.includes_target,
        "caveat.other_data": found.run.dataset.name == "molecules",
        "caveat.trained_on_targets": False,
    }
    assert {code: code in caveats for code in expected} == expected
    (few,) = [fields for code, fields in caveats.items() if code.endswith("few_targets")]
    assert few == {"count": 16}


def test_learners_are_named(found):
    config = found.run.config
    every = replace(found.run, config=replace(config, training=replace(config.training, train_on="all")))
    learners = [next(iter(report._explainer(run).values()))["learners"] for run in (found.run, every)]
    assert "train" in learners[0] and learners[1] == f"all {found.run.game.task}s"


@pytest.mark.parametrize(
    ("lara", "sampled", "outcome"), [(2.0, 1.0, "better"), (1.0, 2.0, "worse"), (1.0, 1.1, "equal")]
)
def test_verdict(lara, sampled, outcome):
    rows = [("random", 0.0), ("sampled 9", sampled), ("lara", lara)]
    table = pd.DataFrame([{"method": name, "delta": value, "delta error": 0.1} for name, value in rows])
    assert list(report._verdict(table)) == [f"verdict.{outcome}"]
    assert list(report._verdict(table[table.method != "sampled 9"])) == ["verdict.unknown"]


def test_markup_in_names_is_text(found, monkeypatch):
    bad = "<script>alert(1)</script>"
    monkeypatch.setattr(report, "_model_name", lambda run: bad)
    monkeypatch.setattr(report, "_caveats", lambda data: {bad: {}})
    monkeypatch.setattr(report, "_settings", lambda run: [[bad, 1234]])
    monkeypatch.setattr(report, "_examples", lambda name, group, labels: [("", bad)])
    page = report.render(found)
    assert bad not in page and page.count("&lt;script&gt;") >= 6
    assert '"number">1,234</td>' in page


# --- deviations -------------------------------------------------------------------------------------------------


def test_the_papers_preset_has_few_deviations():
    numbers = [f"D{number}" for number in range(1, 14)]
    assert [one.number for one in deviations()] == numbers
    assert [one.number for one in deviations_of(paper("node"), NODE)] == ["D1", "D2", "D3", "D4", "D11"]
    assert deviations_of(default("node", 100), NODE) == deviations()
    graphs = {one.number for one in deviations_of(default("graph", 100), GRAPH)}
    assert {*numbers} - graphs == {"D2", "D4", "D6", "D10", "D12", "D13"}


# --- the command ------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_command(quick_runs, tmp_path):
    quick = ["--targets", "3", "--pairs", "5", "--reference-pairs", "100", "--out", str(tmp_path / "r.html")]
    result = CliRunner().invoke(main, ["report", "--run", str(quick_runs["ba-shapes"]), *quick])
    assert result.exit_code == 0, result.output
    assert result.stdout == f"written: {tmp_path / 'r.html'}\n"
    assert "a GCN (3 layers" in (tmp_path / "r.html").read_text()
    bad = CliRunner().invoke(main, ["report", "--run", str(quick_runs["ba-shapes"]), "--out", "r.pdf"])
    assert bad.exit_code == 2 and ".html" in bad.output


def in_browser(test):
    for mark in needs_browser:
        test = mark(test)
    return test


@in_browser
def test_browser_shows_every_picture_inside_the_page(page, tmp_path):
    script = """
      const boxes = [...document.querySelectorAll("svg")].map(svg => svg.getBoundingClientRect());
      return [boxes.length, Math.min(...boxes.map(b => b.width)), Math.max(...boxes.map(b => b.right)), innerWidth,
              document.documentElement.scrollWidth];
    """
    # the page allows no script, but the probe is one
    open_page = re.sub(r"<meta http-equiv=\"Content-Security-Policy\".*?>", "", page)
    count, narrowest, right, width, scroll = ask(open_page, script, tmp_path)
    assert count == 15 and narrowest > 200 and right <= width and scroll <= width
