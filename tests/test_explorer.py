"""The explorer page, clicked through in a headless Chromium on a real service."""

import csv
import re
import shutil
import threading
import time
from contextlib import contextmanager

import pytest
import uvicorn
from browser import Window, is_self_contained, needs_browser

from dgl_lara.cli.reproduce import script
from dgl_lara.errors import message
from dgl_lara.runs.open import open_run
from dgl_lara.serve.app import make_app
from dgl_lara.serve.model import ServedModel
from dgl_lara.serve.supervisor import listen

pytestmark = [*needs_browser, pytest.mark.long]
serving = script("service").serving


@pytest.fixture(scope="module")
def service(quick_runs, tmp_path_factory, session_cache):
    """A run with nodes and one with graphs."""
    folder = tmp_path_factory.mktemp("explored")
    runs = [shutil.copytree(quick_runs[name], folder / name) for name in ("ba-shapes", "molecules")]
    words = [word for run in runs for word in ("--run", run)]
    with serving(*words, "--workers", 1, environment={"DGL_LARA_CACHE": str(session_cache)}) as running:
        yield running


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """One for all tests: starting it takes longer than most of them."""
    found = Window(tmp_path_factory.mktemp("browser"))
    yield found
    found.close()


@pytest.fixture
def window(browser):
    browser.open("about:blank")
    browser.look(1280, 860)
    browser.problems.clear()
    yield browser
    assert not browser.problems, browser.problems


SHOWN = "typeof data !== 'undefined' && !!data && data.target === {}"


def open_node(window, service, target, more=""):
    window.open(f"{service.address}/?model=ba-shapes&target={target}{more}")
    window.until(SHOWN.format(target))


def test_a_walk_through_a_graph(service, window):
    """Search, words, table, a neighbour by click, back and forward, and by keyboard."""
    window.open(service.address)
    window.until(SHOWN.format(0))
    assert window.count("#list li") == 50
    window.press("/")
    window.type("640")
    window.press("Enter")
    window.until(SHOWN.format(640))
    assert window.ask("$('title').textContent").startswith("Node 640 ")
    assert "%" in window.ask("$('sure').textContent")
    rows = window.ask("[...document.querySelectorAll('#best tr')].map(row => row.innerText)")
    assert len(rows) > 4 and rows[0].startswith("640")
    # the strongest neighbour, in the picture
    place = window.ask("data.players.findIndex(player => player.order === 0)")
    neighbour = window.ask(f"data.links[{place}]")
    window.ask(f"nodes[{place}].id = 'strongest'")
    window.click("#strongest")
    window.until(SHOWN.format(neighbour))
    assert window.ask("location.search").endswith(f"&target={neighbour}")
    window.click("#back")
    window.until(SHOWN.format(640))
    window.click("#forward")
    window.until(SHOWN.format(neighbour))
    # another, in the table; and by arrows and Enter
    other = window.ask("data.links[+$('best').children[2].dataset.place]")
    window.click("#best tr:nth-child(3)")
    window.until(SHOWN.format(other))
    window.ask("nodes[0].focus()")
    for key in ("ArrowRight", "ArrowDown", "ArrowLeft", "ArrowUp"):
        window.press(key)
    focused = window.ask("data.links[nodes.indexOf(document.activeElement)]")
    window.press("Enter")
    window.until(SHOWN.format(focused))


def test_scores_in_the_page_are_those_of_the_service(service, window):
    open_node(window, service, 640)
    shown = window.ask("data.players.map((player, place) => [+data.links[place], player.score])")
    listed = service.explain("ba-shapes", {"node": 640, "top": 1000})[0]
    scores = {player["id"]: player["score"] for player in listed["players"]}
    assert len(shown) > 5
    for node, score in shown:
        assert score == pytest.approx(scores[node], rel=1e-4, abs=1e-6)


def test_classes_and_their_rivals(service, window):
    open_node(window, service, 640)
    predicted = window.ask("data.predicted_class")
    other = 0 if predicted else 1
    window.ask(f"$('asked').value = {other}; $('asked').dispatchEvent(new Event('change'))")
    window.until(f"data.explained_class === {other}")
    assert f"class={other}" in window.ask("location.search")
    window.ask(f"$('rival').value = {predicted}; $('rival').dispatchEvent(new Event('change'))")
    window.until(f"data.rather_than === {predicted}")
    title = window.ask("$('title').textContent")
    assert re.search(f"class {other} .*class {predicted}", title), title
    open_node(window, service, 640, f"&class={other}&rather_than={predicted}")  # a shared link
    assert [window.ask(f"$('{name}').value") for name in ("asked", "rival")] == [str(other), str(predicted)]


def test_the_slider_shows_outputs_of_the_model(service, window):
    open_node(window, service, 640)
    untouched = window.ask("$('state').textContent")
    window.click("input[value=remove]")
    window.ask("slider.value = slider.max; slider.dispatchEvent(new Event('input'))")
    assert window.ask("$('state').textContent") != untouched
    assert window.ask("nodes.some(node => node.classList.contains('gone'))")
    output = service.ask("/v1/models/ba-shapes:predict", {"instances": [{"node": 640}]})[1]["predictions"][0]
    first = window.ask("data.output")
    assert first == pytest.approx(output["logits"][output["class"]], rel=1e-3)
    assert window.ask("values.remove[0]") == pytest.approx(first, rel=1e-3)


def test_lists(service, window):
    """Wrong predictions are wrong, low confidence rises, classes are as chosen, pages turn."""
    open_node(window, service, 640)
    window.click("[data-list=wrong]")
    window.until("[...document.querySelectorAll('#list li')].every(item => !!item.querySelector('.wrong'))")
    assert window.count("#list li") > 0
    until = time.monotonic() + 120
    listing = "/v1/models/ba-shapes/targets"
    while service.ask(listing)[1]["model"]["explained"] < 700:  # the keeper goes through them
        assert time.monotonic() < until
        time.sleep(0.2)
    rows = service.ask(f"{listing}?order=confidence&limit=200")[1]["rows"]
    found = [row["confidence"] for row in rows]
    assert found == sorted(found) and len(found) == 200
    window.click("[data-list=unsure]")
    window.until(f"document.querySelector('#list li')?.dataset.target === '{rows[0]['target']}'")
    share = f"{100 * found[0]:.0f}%"
    label, title = (window.ask(f"document.querySelector('#list .sure').{part}") for part in ("textContent", "title"))
    assert label.startswith(f"{share} ") and f" {share} " in title
    window.click("[data-list=all]")
    window.ask("$('class').value = '1'; $('class').dispatchEvent(new Event('change'))")
    window.until("[...document.querySelectorAll('#list li')].every(item => item.innerText.includes('class 1'))")
    before = window.ask("document.querySelector('#list li').dataset.target")
    window.click("#more")
    window.until(f"document.querySelector('#list li').dataset.target !== '{before}'")


def test_the_latest_request_is_shown(service, window):
    """However late the answers to what was asked before come; lists and explanations do not push each other aside."""
    open_node(window, service, 640)
    window.ask("""(() => { const real = fetch; let first = true; window.fetch = async (...asked) => {
        const slow = asked[0].includes("wrong=") || (asked[0].includes("/view") && first);
        if (asked[0].includes("/view")) first = false;
        if (slow) await new Promise(done => setTimeout(done, 600));
        return real(...asked); }; })()""")
    window.click("[data-list=wrong]")
    window.click("[data-list=all]")
    window.ask("void go({target: 3})")
    window.click("[data-list=unsure]")
    window.until(SHOWN.format(3))
    time.sleep(1)
    assert window.count("#list li .wrong") < 50 and window.count("[data-list=unsure][aria-pressed=true]") == 1
    sure = window.ask("[...document.querySelectorAll('#list .sure')].map(item => item.textContent)")
    assert all(re.fullmatch(r"(over )?\d+% explained", text) for text in sure)
    shares = [int(re.sub(r"\D", "", text)) for text in sure]
    assert shares == sorted(shares)


def test_what_can_be_taken_away(service, window):
    """A table of all players, and pictures that need no page around them."""
    open_node(window, service, 640)
    for name in ("csv", "svg", "png"):
        window.click(f"#{name}")
    expected = [window.downloads / f"ba-shapes-node-640.{ending}" for ending in ("csv", "svg", "png")]
    until = time.monotonic() + 30
    while not all(path.exists() and path.stat().st_size for path in expected):
        assert time.monotonic() < until, [path.name for path in expected if not path.exists()]
        time.sleep(0.1)
    rows = list(csv.DictReader(expected[0].open()))
    listed = service.explain("ba-shapes", {"node": 640, "top": 10_000})[0]["players"]
    assert [int(row["player"]) for row in rows] == [player["id"] for player in listed]
    assert float(rows[0]["score"]) == listed[0]["score"]
    picture = expected[1].read_text()
    assert "var(--" not in picture and "<circle" in picture and "Node 640 " in picture
    assert expected[2].read_bytes().startswith(b"\x89PNG")
    assert len(expected[2].read_bytes()) > 10_000


def test_dark_light_and_phones(service, window):
    open_node(window, service, 640)
    paper = "getComputedStyle(document.body).backgroundColor"
    assert window.ask(paper) == "rgb(255, 255, 255)"
    window.click("#theme")
    assert window.ask(paper) == "rgb(22, 24, 28)"
    window.ask("localStorage.clear()")
    window.look(1280, 860, dark=True)
    open_node(window, service, 640)
    assert window.ask(paper) == "rgb(22, 24, 28)"
    window.look(390, 844)
    open_node(window, service, 640)
    page, picture = "document.documentElement.scrollWidth", "graph.getBoundingClientRect().width"
    assert window.ask(page) <= 390 and window.ask(picture) > 300  # nothing sticks out
    assert window.display("aside") == "block"


def test_a_gallery_of_graphs(service, window):
    window.open(f"{service.address}/?model=molecules")
    window.until("document.querySelectorAll('#list.cards li svg circle').length > 50")
    assert window.display("main") == "none"
    window.click("#list li:nth-child(3)")
    target = window.ask("+document.querySelector('#list li:nth-child(3)').dataset.target")
    window.until(SHOWN.format(target))
    assert window.ask("$('title').textContent").startswith(f"Graph {target} ")
    assert window.ask("nodes.length") > 3
    window.click("#browse")
    window.until("document.body.classList.contains('gallery')")


def test_mistakes_are_shown(service, window):
    window.open(f"{service.address}/?model=ba-shapes&target=99999")
    window.until("!$('trouble').hidden")
    assert message("target.range", noun="node", most=699, got=99999) in window.ask("$('trouble').innerText")
    window.problems.clear()  # the browser notes the 400


def test_nothing_in_a_name_becomes_markup(quick_runs, tmp_path):
    from dgl_lara.serve.explorer import explorer_page

    page = explorer_page()
    is_self_contained(page)
    assert "innerHTML" not in page


def test_a_token_is_required(quick_runs, tmp_path, window):
    app = make_app([ServedModel("ba", open_run(quick_runs["ba-shapes"]), tmp_path)], token="open sesame")
    with in_thread(app) as address:
        window.open(f"{address}/?model=ba&target=5")
        window.until("$('login').open")
        window.ask("$('token').value = 'open sesame'")
        window.click("#login button")
        window.until(SHOWN.format(5))
        window.problems.clear()  # the browser notes the 401
        assert "sesame" not in window.ask("location.href")


@contextmanager
def in_thread(app):
    """Its address, while it is served here."""
    port = listen("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off"))
    thread = threading.Thread(target=server.run, args=([port],))
    thread.start()
    yield f"http://127.0.0.1:{port.getsockname()[1]}"
    server.should_exit = True
    thread.join()
