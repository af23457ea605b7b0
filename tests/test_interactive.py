"""The interactive page: self-contained, safe against markup in names, and correct in a real browser."""

import json
import re

import pytest
from browser import ask, is_self_contained, needs_browser
from games import gcn_game, star_game
from test_explanation import exact_explanations

from dgl_lara.explanation.plot.html import embedded

EVIL = '</script><script>document.title="owned"</script><img src=x onerror="document.title=\'owned\'">{{data}}&amp;'


def browser(test):
    for mark in needs_browser:
        test = mark(test)
    return test


def data_of(page):
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    return json.loads(text)[0]


def test_the_page_is_self_contained(opened):
    page = opened("ba-shapes", 512)[0].to_html()
    is_self_contained(page)
    assert not any(loading in page for loading in ("src=", "href="))
    assert page.count("url(") == page.count("url(#")


def test_data_are_the_models_outputs():
    one = exact_explanations(star_game(), [0])[0]
    data = data_of(one.to_html())
    assert data["counts"] == [3, 2, 1, 0] and data["removable"] == 3
    assert data["keep"] == pytest.approx([4, 3, 1, 0]) and data["remove"] == pytest.approx([0, 0, 1, 4])
    assert data["output"] == pytest.approx(4)
    by_name = {player["name"]: player for player in data["players"]}
    assert [by_name[name]["order"] for name in "3210"] == [0, 1, 2, 3]
    assert by_name["0"]["target"] and by_name["3"]["details"] == ["x0 = 3"]
    assert {player["class"] for player in data["players"]} == {"0"} and not any(p["other"] for p in data["players"])


def test_the_slider_has_few_steps_for_many_players(opened):
    one = opened("ba-shapes", 0)[0]
    data = data_of(one.to_html())
    assert len(data["counts"]) == 41 and data["counts"][0] == len(one) - 1 and data["counts"][-1] == 0
    assert len(data["players"]) == 120 and data["count"] == len(one) and "further players" in data["rest"]


def test_features_are_the_largest_ones(opened):
    one = opened("molecules", 4)[0]
    for player in data_of(one.to_html())["players"]:
        assert player["details"] == [f"{player['mark'].rstrip('0123456789')} = 1"]  # one-hot: the atom


def test_the_page_is_reproducible(opened):
    assert opened("molecules", 4)[0].to_html() == opened("molecules", 4)[0].to_html()


def test_embedded_data_cannot_end_their_script():
    text = embedded({"name": EVIL})
    assert not set("<>&") & set(text)
    assert json.loads(text) == {"name": EVIL}


def evil_page():
    game = gcn_game()
    return exact_explanations(game, [5]).named(labels=[EVIL] * 12, columns=[EVIL] * 3)[0].to_html()


def test_markup_in_names_is_text():
    page = evil_page()
    assert "<img" not in page and page.count("<script") == 2
    assert EVIL in data_of(page)["players"][0]["name"]


# --- in a browser -----------------------------------------------------------------------------------------------


@browser
def test_browser_names_are_harmless(tmp_path):
    answer = ask(
        evil_page(),
        "return [document.title, document.images.length, nodes[0].querySelector('text').textContent, "
        "nodes[0].getAttribute('aria-label')]",
        tmp_path,
    )
    assert answer[0].startswith("Node </script>") and answer[1] == 0
    assert answer[2].startswith("</script>") and EVIL in answer[3]


@browser
def test_browser_slider_fades_players_and_shows_outputs(tmp_path):
    page = exact_explanations(star_game(), [0])[0].to_html()
    script = """
      const look = () => [nodes.map(n => n.classList.contains("gone")), $("state").textContent];
      const all = [look()];
      slider.value = 2; slider.dispatchEvent(new Event("input")); all.push(look());
      document.querySelector("[value=remove]").click(); all.push(look());
      return all;
    """
    start, keep, remove = ask(page, script, tmp_path)
    order = [player["name"] for player in data_of(page)["players"]]
    gone = [{name for name, is_gone in zip(order, state[0], strict=True) if is_gone} for state in (start, keep, remove)]
    assert gone == [set(), {"1", "2"}, {"2", "3"}]  # the target never goes; the further right, the more are gone
    figures = [[float(figure) for figure in re.findall(r"\d+(?:\.\d+)?", state[1])] for state in (start, keep, remove)]
    # players kept or removed, all players, class, output, output of the untouched graph
    assert figures == [[3, 3, 0, 4, 4], [1, 3, 0, 1, 4], [2, 3, 0, 0, 4]]


@browser
def test_browser_both_modes_of_the_slider_begin_with_the_full_graph(tmp_path):
    script = """
      return ["keep", "remove"].map(mode => {
        document.querySelector(`[value=${mode}]`).click();
        return [0, last].map(i => { slider.value = i; slider.dispatchEvent(new Event("input"));
          return [nodes.filter(n => n.classList.contains("gone")).length, values[mode][i]]; });
      });
    """
    for way in ask(exact_explanations(star_game(), [0])[0].to_html(), script, tmp_path):
        assert way == [[0, pytest.approx(4)], [3, pytest.approx(0)]]


@browser
def test_browser_long_names_do_not_break_classes_and_numbers(tmp_path):
    explanations = exact_explanations(gcn_game(), [5])
    labels = [f"a very long name {i:010}" for i in range(12)]
    page = explanations.named(labels=labels, classes=["green", "red", "blue"])[0].to_html()
    script = """
      const lines = cell => { const all = document.createRange(); all.selectNodeContents(cell);
                              return new Set([...all.getClientRects()].map(box => box.top)).size; };
      return [...document.querySelectorAll("aside tbody tr")].map(row => [...row.cells].map(lines));"""
    rows = ask(page, script, tmp_path)
    assert len(rows) > 3 and max(row[0] for row in rows) > 1
    assert {tuple(row[1:]) for row in rows} == {(1, 1)}


@browser
def test_browser_letters_have_a_fitting_size(tmp_path):
    script = """return Math.max(...nodes.map(n => n.querySelector("text").getBoundingClientRect().height))"""
    assert 8 < ask(exact_explanations(star_game(), [0])[0].to_html(), script, tmp_path) < 22  # pixels


@browser
def test_browser_shows_the_score_of_the_target_classes_and_full_circles(opened, tmp_path):
    one = opened("ba-shapes", 512)[0]
    script = """
      const box = graph.getAttribute("viewBox").split(" ").map(Number), stage = graph.getBoundingClientRect();
      const inside = [...document.querySelectorAll(".ring")].every(ring => { const b = ring.getBBox();
        return b.x >= box[0] && b.y >= box[1] && b.x + b.width <= box[0] + box[2]
          && b.y + b.height <= box[1] + box[3]; });
      return {key: $("key").textContent, inside, rings: document.querySelectorAll(".ring").length,
              rows: [...$("best").rows].map(row => [...row.cells].map(cell => cell.textContent)),
              head: document.querySelector("aside thead tr").cells[0].textContent,
              dashed: nodes.map((n, i) => n.classList.contains("other") ? data.players[i].class : null)};
    """
    answer = ask(one.to_html(), script, tmp_path)
    own = float(one.scores[one.players == 512])
    assert f" {'+' if own > 0 else '−'}{abs(own):.2f}"[:-1] in answer["key"]
    assert answer["inside"] and answer["rings"] == 3
    classes = dict(zip(map(str, one.players.tolist()), map(str, one.player_classes()), strict=True))
    assert answer["rows"][0][:2] == ["512", classes["512"]]
    assert answer["head"] == "node"  # no neighbour of its own
    assert all(classes[name] == shown for name, shown, _ in answer["rows"])
    assert str(one.explained_class) not in answer["dashed"] and any(answer["dashed"])


@browser
def test_browser_table_has_removed_players_and_counts_the_rest(opened, tmp_path):
    one = opened("ba-shapes", 0)[0]
    script = """return {rows: [...$("best").rows].map(row => row.cells[0].textContent),
      hops: [...document.querySelectorAll(".hop")].map(text => text.textContent)}"""
    found = ask(one.to_html(), script, tmp_path)
    shown = [row for row in found["rows"] if "more" not in row]
    assert len(one.removed) == 5 and {*one.removed} <= {*shown}
    assert f"({len(one) - len(shown):,} more)" in found["rows"] and found["hops"][:2] == ["1 hop", "2 hops"]


@browser
def test_browser_keyboard_hover_and_zoom(opened, tmp_path):
    script = """
      const key = name =>
        document.activeElement.dispatchEvent(new KeyboardEvent("keydown", {key: name, bubbles: true}));
      const width = () => +graph.getAttribute("viewBox").split(" ")[2];
      const shows = place => !tip.hidden && tip.textContent.includes("rank " + data.players[place].rank + " of");
      const start = width();
      const left = data.players.reduce((best, p, i) => p.x < data.players[best].x ? i : best, 0);
      nodes[left].dispatchEvent(new PointerEvent("pointerenter"));
      const hovered = shows(left);
      nodes[left].dispatchEvent(new PointerEvent("pointerleave"));
      const hidden = tip.hidden;
      nodes[left].focus();
      key("ArrowRight");
      const moved = nodes.indexOf(document.activeElement);
      const right = data.players[moved].x > data.players[left].x && shows(moved);
      key("+");
      const closer = width();
      key("0");
      const back = width() === start;
      key("Escape");
      return {hovered, hidden, right, tab: nodes.map(n => n.tabIndex + 1).indexOf(1) === moved,
              only: nodes.filter(n => n.tabIndex === 0).length, ratio: start / closer, back, closed: tip.hidden};
    """
    answer = ask(opened("ba-shapes", 512)[0].to_html(), script, tmp_path)
    assert answer.pop("ratio") == pytest.approx(1.25) and answer.pop("only") == 1
    assert answer == dict.fromkeys(["hovered", "hidden", "right", "tab", "back", "closed"], True)


@browser
@pytest.mark.parametrize("dark", [False, True])
def test_browser_light_and_dark_can_be_read(opened, tmp_path, dark):
    """WCAG's contrast: at least 7 for text, 3 for the marks on the nodes."""
    script = """
      const linear = v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
      const light = colour => {
        const unit = colour.startsWith("color(") ? 1 : 255;  // color-mix answers with color(srgb 0..1)
        const [r, g, b] = colour.match(/[\\d.]+/g).map(v => linear(v / unit));
        return .2126 * r + .7152 * g + .0722 * b;
      };
      const contrast = (a, b) => (Math.max(light(a), light(b)) + .05) / (Math.min(light(a), light(b)) + .05);
      const style = getComputedStyle, page = style(document.body);
      const onNode = n => contrast(style(n.querySelector("text")).fill, style(n.querySelector(".disc")).fill);
      return [light(page.backgroundColor), contrast(page.color, page.backgroundColor), Math.min(...nodes.map(onNode))];
    """
    background, text, marks = ask(opened("molecules", 4)[0].to_html(), script, tmp_path, dark)
    assert background < 0.05 if dark else background > 0.9
    assert text > 7
    assert marks > 3
