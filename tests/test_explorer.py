"""The explorer page, clicked through in a headless Chromium on a real service."""

import csv
import re
import shutil
import threading
import time
from contextlib import contextmanager

import pytest
import uvicorn
from browser import Window, needs_browser

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
    assert window.ask("document.querySelectorAll('#list li').length") == 50
    window.press("/")
    window.type("640")
    window.press("Enter")
    window.until(SHOWN.format(640))
    assert window.ask("$('title').textContent").startswith("Node 640 is class")
    assert "%" in window.ask("$('sure').textContent")
    rows = window.ask("[...document.querySelectorAll('#best tr')].map(row => row.innerText)")
    assert len(rows) > 4 and rows[0].startswith("640")
    # the strongest neighbour, in the picture
    place = window.ask("data.players.findIndex(player => player.order === 0)")
    neighbour = window.ask(f"data.links[{place}]")
    window.ask(f"nodes[{place}].id = 'strongest'")
    window.click("#strongest")
    window.until(SHOWN.format(neighbour))
    assert window.ask("location.search") == f"?model=ba-shapes&target={neighbour}"
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
    told = service.explain("ba-shapes", {"node": 640, "top": 1000})[0]
    scores = {player["id"]: player["score"] for player in told["players"]}
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
    told = window.ask("$('title').textContent")  # which of the two depends on what the neighbours do
    assert re.search(f"class {other} (rather than|and) class {predicted}", told), told
    open_node(window, service, 640, f"&class={other}&rather_than={predicted}")  # a link that somebody sent
    assert window.ask("[$('asked').value, $('rival').value]") == [str(other), str(predicted)]


def test_the_slider_shows_what_the_model_says(service, window):
    open_node(window, service, 640)
    untouched = window.ask("$('state').textContent")
    window.click("input[value=remove]")
    window.ask("slider.value = slider.max; slider.dispatchEvent(new Event('input'))")
    assert window.ask("$('state').textContent") != untouched
    assert window.ask("nodes.filter(node => node.classList.contains('gone')).length") > 0
    said = service.ask("/v1/models/ba-shapes:predict", {"instances": [{"node": 640}]})[1]["predictions"][0]
    first = window.ask("data.output")
    assert first == pytest.approx(said["logits"][said["class"]], rel=1e-3)
    assert window.ask("values.remove[0]") == pytest.approx(first, rel=1e-3)


def test_lists(service, window):
    """Wrong predictions are wrong, low confidence rises, classes are as chosen, pages turn."""
    open_node(window, service, 640)
    window.click("[data-list=wrong]")
    window.until("[...document.querySelectorAll('#list li')].every(item => !!item.querySelector('.wrong'))")
    assert window.ask("document.querySelectorAll('#list li').length") > 0
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
    assert window.ask("document.querySelector('#list .sure').textContent") == f"{share} explained"
    assert f" {share} " in window.ask("document.querySelector('#list .sure').title")
    window.click("[data-list=all]")
    window.ask("$('class').value = '1'; $('class').dispatchEvent(new Event('change'))")
    window.until("[...document.querySelectorAll('#list li')].every(item => item.innerText.includes('class 1'))")
    before = window.ask("document.querySelector('#list li').dataset.target")
    window.click("#more")
    window.until(f"document.querySelector('#list li').dataset.target !== '{before}'")


def test_the_last_that_was_asked_for_is_shown(service, window):
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
    assert window.ask("document.querySelectorAll('#list li .wrong').length") < 50
    assert window.ask("document.querySelector('[data-list=unsure]').ariaPressed") == "true"
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
    told = service.explain("ba-shapes", {"node": 640, "top": 10_000})[0]["players"]
    assert [int(row["player"]) for row in rows] == [player["id"] for player in told]
    assert float(rows[0]["score"]) == told[0]["score"]
    picture = expected[1].read_text()
    assert "var(--" not in picture and "<circle" in picture and "Node 640 is class" in picture
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
    assert window.ask("document.documentElement.scrollWidth") <= 390  # nothing sticks out
    assert window.ask("graph.getBoundingClientRect().width") > 300
    assert window.ask("getComputedStyle(document.querySelector('aside')).display") == "block"


def test_a_gallery_of_graphs(service, window):
    window.open(f"{service.address}/?model=molecules")
    window.until("document.querySelectorAll('#list.cards li svg circle').length > 50")
    assert window.ask("getComputedStyle(document.querySelector('main')).display") == "none"
    window.click("#list li:nth-child(3)")
    target = window.ask("+document.querySelector('#list li:nth-child(3)').dataset.target")
    window.until(SHOWN.format(target))
    assert window.ask("$('title').textContent").startswith(f"Graph {target} is class")
    assert window.ask("nodes.length") > 3
    window.click("#browse")
    window.until("document.body.classList.contains('gallery')")


def test_mistakes_are_told(service, window):
    window.open(f"{service.address}/?model=ba-shapes&target=99999")
    window.until("!$('trouble').hidden")
    assert message("target.range", noun="node", most=699, got=99999) in window.ask("$('trouble').innerText")
    window.problems.clear()  # the browser notes the 400


def test_nothing_in_a_name_becomes_markup(quick_runs, tmp_path):
    from dgl_lara.serve.explorer import explorer_page

    page = explorer_page()
    assert "innerHTML" not in page and "default-src 'none'" in page
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in page


def test_a_token_is_asked_for(quick_runs, tmp_path, window):
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
