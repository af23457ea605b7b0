"""The report: figures that are the run's own, twelve examples, deviations in step with the changelog, one file."""

import html
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest
import torch
from browser import ask, needs_browser
from click.testing import CliRunner

from dgl_lara.cli import main
from dgl_lara.game.tasks import GRAPH, NODE
from dgl_lara.metrics import METRICS
from dgl_lara.metrics.fidelity import fidelity_per_target
from dgl_lara.reports import html as report
from dgl_lara.reports import measurements
from dgl_lara.reports.deviations import DEVIATIONS, applying
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
    """Headings and captions; fails on elements that are closed in the wrong order."""

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


# --- what is measured -------------------------------------------------------------------------------------------


def test_examples_are_best_typical_and_worst(found):
    assert {name: len(group) for name, group in found.examples.items()} == {"best": 4, "typical": 4, "worst": 4}
    shown = [explanation.target for group in found.examples.values() for explanation, _ in group]
    assert len(set(shown)) == 12
    delta = {name: [value for _, value in group] for name, group in found.examples.items()}
    assert min(delta["best"]) >= max(delta["typical"]) and min(delta["typical"]) >= max(delta["worst"])
    assert delta["best"][0] > delta["worst"][-1]
    explanation, value = found.examples["best"][0]
    plus, minus = fidelity_per_target(found.run.game, explanation.batch, keep_target=True)
    assert value == pytest.approx(float((plus - minus).mean()), abs=1e-5)


def test_nothing_is_said_to_be_measured_that_cannot_be_had(found, monkeypatch, capsys):
    monkeypatch.setattr(type(METRICS["auc"]), "unavailable", lambda self, case: "auc.no_ground_truth")
    without = measurements.measure(found.run, "test", 3, pairs=0, reference_pairs=100, seed=0)
    said = capsys.readouterr().err
    assert "measuring agreement on 3" in said and "auc" not in said and without.tables["auc"].empty
    assert said.index("measuring agreement") < said.index("timing explanations, choosing examples")


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


# --- what is said -----------------------------------------------------------------------------------------------


def test_page_holds_its_sections_and_the_figures(found, page):
    outline = Outline(page)
    assert outline.texts["h2"] == [
        "What was explained, and how", "How good the explanations are", "What matters in general",
        "Examples: best, typical, worst", "What to keep in mind", "Settings and versions",
    ]  # fmt: skip
    text = html.unescape(re.sub(r"<[^>]+>", " ", page))
    r2 = found.tables["agreement"].set_index("method").loc["lara", "R2 corrected"]
    assert f"R² = {r2:.3f} on 16 test" in text
    assert f"right on {found.accuracy['test']:.1%} of the test" in text
    average = found.tables["fidelity"].query("sparsity == 'average'")
    for _, row in average.iterrows():
        assert f"{row['delta']:.2f} ± {row['delta error']:.2f}" in text
    history = pd.read_csv(found.run.folder / "metrics.csv")
    assert f"{history.step.max()} steps" in text
    stored = json.loads((found.run.folder / "environment.json").read_text())
    assert stored["command"] in text and stored["versions"]["torch"] in text


def test_settings_are_those_that_runs_show_tells_in_words(found):
    told = dict(report._settings(found.run))
    shown = settings_of(find_run(str(found.run.folder)))
    assert {name: told[name] for name in shown} == {name: setting_text(value) for name, value in shown.items()}
    assert told["model"] == "dgl-lara's own" and told["model: features are divided by their row sum"] in ("yes", "no")
    assert "training: all-classes" in told and not [name for name in told if "_" in name]


def test_the_page_says_why_ground_truth_is_of_fewer_targets(found, page):
    having = int(found.tables["auc"].targets.iloc[0])
    assert 0 < having < 16
    assert f"the targets with a motif, {having} of the 16 measured; the others have none to find" in page
    assert report._without_truth(found.tables["auc"], having) == "" == report._without_truth(pd.DataFrame(), 16)


def test_what_the_page_says_of_scores_is_of_those_that_are_corrected_too(found, page, monkeypatch):
    lara = found.run.trained()
    text = html.unescape(re.sub(r"\s+", " ", page))
    assert "where LARA spends none after its training" in text
    if lara.samples_ is None:
        assert "a score is a dot product, without a call" in text and "corrected scores" not in text
        return
    words = f"corrected by what the model said in training about {lara.samples_.pairs:,} pairs of coalitions"
    assert words in text and "The explainer's corrected scores agree" in text
    monkeypatch.setattr(lara, "errors_", None)
    assert "corrected" not in report._summary(found, report._averages(found))[1]


def test_page_says_what_the_model_had_to_do(found, page):
    asked = f"lara {found.run.trained().cost_:,.0f} (in training, shared by all"
    assert asked in page and "sampled 10 " in page.split("What the model had to do:")[1].split("</p>")[0]


def test_eval_measures_the_same_with_the_options_that_the_page_names(found, page):
    words = html.unescape(re.sub(r"<[^>]+>", "", page)).split("dgl-lara eval ")[1].split(" gives the same")[0].split()
    words = ["eval", *words, "--json", "-"]
    table = json.loads(CliRunner().invoke(main, words).stdout)["agreement"]
    (own,) = [row for row in table if row["method"] == "lara"]
    (here,) = found.tables["agreement"].query("method == 'lara'").to_dict("records")
    assert own["R2 corrected"] == pytest.approx(here["R2 corrected"], abs=1e-9)


def test_what_matters_in_general(found, page):
    ((summary, explanations),) = found.general
    text = html.unescape(re.sub(r"<[^>]+>", " ", page))
    assert summary.title in text and f"{summary.groups[0]['for'].iloc[0]:.3f}" in text
    for place in summary.typical["index"]:
        assert explanations[place].in_words() in text


def test_examples_carry_their_sentences_and_pictures(found, page):
    captions = Outline(page).texts["figcaption"][1:]
    sentences = [one.in_words() for group in found.examples.values() for one, _ in group]
    assert [caption[: len(words)] for caption, words in zip(captions, sentences, strict=True)] == sentences
    assert page.count("<svg") == page.count("</svg>") == 15
    ids = re.findall(r' id="((?!what|good|general|examples|caveats|settings)[^"]+)"', page)
    assert not [name for name in ids if re.fullmatch(r"[a-z]+(2d)?_\d+", name)]


def test_a_wrong_prediction_is_called_wrong(found):
    (explanation, delta), *_ = found.examples["best"]
    labels = found.run.dataset.labels.clone()
    labels[explanation.target] = explanation.predicted_class
    ((_, caption),) = report._examples("best", [(explanation, delta)], labels)
    assert "wrong" not in caption
    labels[explanation.target] = 1 - explanation.predicted_class
    ((_, caption),) = report._examples("best", [(explanation, delta)], labels)
    assert "The prediction is wrong: the label is" in caption


def test_one_family_of_letters(page):
    style = page[page.index("<style>") : page.index("</style>")]
    assert "Georgia" not in style and set(re.findall(r"font(?:-family)?:[^;]*?([a-z-]+-ui, sans-serif)", style)) == {
        "system-ui, sans-serif"
    }


def test_page_needs_nothing_from_elsewhere(page):
    addresses = re.findall(r'(?:src|href)="(?!#|data:)([^"]*)"', page)
    assert addresses == []
    assert "<script" not in page and "@import" not in page and "{{" not in page


def test_caveats_follow_the_figures(found):
    said = " ".join(report._caveats(found))
    r2 = found.tables["agreement"].set_index("method").loc["lara", "R2 corrected"]
    assert ("do not rely on these explanations" in said) == (r2 < report.LOW)
    assert "Only 16 targets were measured" in said
    assert ("neighbours alone" in said) == found.run.game.task.has_distances
    assert ("not the original" in said) == (found.run.dataset.name == "molecules")
    assert "trained on the targets measured here" not in said


def test_whoever_learned_from_all_targets_is_said_to(found):
    assert report._learners(found.run) == "the train split"
    config = found.run.config
    every = replace(config, training=replace(config.training, train_on="all"))
    assert report._learners(replace(found.run, config=every)) == f"all {found.run.game.task}s"


@pytest.mark.parametrize(
    ("lara", "sampled", "said"),
    [(2.0, 1.0, "LARA is better than sampled 9"), (1.0, 2.0, "LARA is worse"), (1.0, 1.1, "cannot be told apart")],
)
def test_verdict(lara, sampled, said):
    rows = [("random", 0.0), ("sampled 9", sampled), ("lara", lara)]
    table = pd.DataFrame([{"method": name, "delta": value, "delta error": 0.1} for name, value in rows])
    assert said in report._verdict(table)
    assert "left out" in report._verdict(table[table.method != "sampled 9"])


def test_whatever_is_put_into_a_page_is_text(found, monkeypatch):
    """Names come from users: a script in any of them stays a text."""
    bad = "<script>alert(1)</script>"
    monkeypatch.setattr(report, "_model_name", lambda run: bad)
    monkeypatch.setattr(report, "_caveats", lambda found: [bad])
    monkeypatch.setattr(report, "_settings", lambda run: [[bad, 1234]])
    monkeypatch.setattr(report, "_examples", lambda name, group, labels: [("", bad)])
    page = report.render(found)
    assert bad not in page and page.count("&lt;script&gt;alert(1)") >= 6
    assert '<td class="number">1,234</td>' in page


# --- deviations -------------------------------------------------------------------------------------------------


def test_deviations_are_those_of_the_changelog():
    text = (ROOT / "CHANGELOG.md").read_text()
    rows = re.findall(r"^\| (D\d+) \| (.+?) \| (.+?) \| (.+?) \|$", text, re.MULTILINE)
    assert len(rows) >= 11
    assert [(d.number, d.paper, d.here, d.why) for d in DEVIATIONS] == rows


def test_the_papers_preset_has_only_those_that_hold_always():
    assert [d.number for d in applying(paper("node"), NODE)] == ["D1", "D2", "D3", "D4", "D11"]
    assert applying(default("node", 100), NODE) == list(DEVIATIONS)
    graphs = {d.number for d in DEVIATIONS} - {d.number for d in applying(default("graph", 100), GRAPH)}
    assert graphs == {"D2", "D4", "D6", "D10", "D12", "D13"}


# --- the command ------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_command(quick_runs, tmp_path):
    quick = ["--targets", "3", "--pairs", "5", "--reference-pairs", "100", "--out", str(tmp_path / "r.html")]
    result = CliRunner().invoke(main, ["report", "--run", str(quick_runs["ba-shapes"]), *quick])
    assert result.exit_code == 0, result.output
    assert result.stdout == f"written: {tmp_path / 'r.html'}\n"
    assert "Explanations of a GCN (3 layers of width 20) on ba-shapes" in (tmp_path / "r.html").read_text()
    bad = CliRunner().invoke(main, ["report", "--run", str(quick_runs["ba-shapes"]), "--out", "r.pdf"])
    assert bad.exit_code == 2 and "--out must end in .html (got 'r.pdf')." in bad.output


def in_browser(test):
    for mark in needs_browser:
        test = mark(test)
    return test


@in_browser
def test_browser_shows_every_picture_within_the_page(page, tmp_path):
    script = """
      const boxes = [...document.querySelectorAll("svg")].map(svg => svg.getBoundingClientRect());
      return [boxes.length, Math.min(...boxes.map(b => b.width)), Math.max(...boxes.map(b => b.right)), innerWidth,
              document.documentElement.scrollWidth];
    """
    # the page itself allows no script; the probe needs one
    open_page = re.sub(r"<meta http-equiv=\"Content-Security-Policy\".*?>", "", page)
    count, narrowest, right, width, scroll = ask(open_page, script, tmp_path)
    assert count == 15 and narrowest > 200 and right <= width and scroll <= width
