"""A headless Chromium for tests: open a page, run a script in it, get its answer back.

One for all tests of a process, since starting it takes longer than asking. It is spoken to over its debugging pipe
(messages of the DevTools protocol, each ended by a zero byte) and ends when the pipe is closed.
"""

import base64
import fcntl
import functools
import json
import os
import re
import select
import shlex
import shutil
import subprocess
import tempfile
import time

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PATIENCE = 90  # seconds
WIDTH, HEIGHT = 1000, 700

needs_browser = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="needs a browser: install chromium"),
]


def is_self_contained(page):
    """Check that a page loads nothing from elsewhere. The namespace of SVG is a name, not an address."""
    assert set(re.findall(r"https?://[^\s\"'<)]+", page)) <= {"http://www.w3.org/2000/svg"}
    assert "default-src 'none'" in page and "@import" not in page and "{{" not in page


class Browser:
    def __init__(self):
        self.profile = tempfile.TemporaryDirectory()
        words = [
            str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-pipe",
            f"--user-data-dir={self.profile.name}", "about:blank",
        ]  # fmt: skip
        (theirs_in, self.send_to), (self.hear_from, theirs_out) = os.pipe(), os.pipe()
        theirs = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (theirs_in, theirs_out)]  # out of the way of 3 and 4

        def at_three_and_four():
            os.dup2(theirs[0], 3)
            os.dup2(theirs[1], 4)

        subprocess.Popen(
            words, preexec_fn=at_three_and_four, pass_fds=(3, 4), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for end in (theirs_in, theirs_out, *theirs):
            os.close(end)
        self.number, self.heard, self.events = 0, b"", []

    def message(self):
        deadline = time.monotonic() + PATIENCE
        while b"\0" not in self.heard:
            assert select.select([self.hear_from], [], [], deadline - time.monotonic())[0], "Chromium does not answer"
            more = os.read(self.hear_from, 1 << 20)
            assert more, "Chromium has ended"
            self.heard += more
        text, _, self.heard = self.heard.partition(b"\0")
        return json.loads(text)

    def call(self, method, session=None, **parameters):
        self.number += 1
        asked = {"id": self.number, "method": method, "params": parameters}
        asked |= {"sessionId": session} if session else {}
        os.write(self.send_to, json.dumps(asked).encode() + b"\0")
        while (found := self.message()).get("id") != self.number:
            self.events.append(found)
        assert "error" not in found, found
        return found["result"]

    def answer(self, address, script, dark):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        here = functools.partial(self.call, session=session)
        here("Emulation.setDeviceMetricsOverride", width=WIDTH, height=HEIGHT, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        here("Emulation.setEmulatedMedia", features=[scheme])
        here("Page.enable")
        here("Runtime.enable")
        self.events.clear()
        here("Page.navigate", url=address)
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self.message())
        wrong = [event["params"] for event in self.events if event["method"] == "Runtime.exceptionThrown"]
        assert not wrong, wrong
        found = here("Runtime.evaluate", expression=f"(() => {{ {script} }})()", returnByValue=True)
        assert "exceptionDetails" not in found, found
        self.call("Target.closeTarget", targetId=target)
        return found["result"].get("value")


browser = functools.cache(Browser)


def ask(page, script, folder, dark=False):
    """What `script` (the body of a function) returns when run in the page; errors of the page fail."""
    path = folder / "asked.html"
    path.write_text(page)
    return browser().answer(path.as_uri(), script, dark)


class Window:
    """A page that is clicked through: real pointer and key events, by the DevTools protocol over a pipe."""

    def __init__(self, folder, width=1280, height=860, dark=False):
        to_read, self.outbox = os.pipe()
        self.inbox, to_write = os.pipe()
        words = [
            str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
            "--hide-scrollbars", f"--user-data-dir={folder / 'window'}", "about:blank",
        ]  # fmt: skip
        line = f"exec {shlex.join(words)} 3<&{to_read} 4>&{to_write}"
        quiet = subprocess.DEVNULL
        self.process = subprocess.Popen(["bash", "-c", line], pass_fds=(to_read, to_write), stdout=quiet, stderr=quiet)
        os.close(to_read)
        os.close(to_write)
        self.rest, self.number, self.session = b"", 0, None
        self.problems = []
        pages = [one for one in self.send("Target.getTargets")["targetInfos"] if one["type"] == "page"]
        found = self.send("Target.attachToTarget", targetId=pages[0]["targetId"], flatten=True)
        self.session = found["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.send(f"{domain}.enable")
        self.downloads = folder / "downloads"
        self.send("Page.setDownloadBehavior", behavior="allow", downloadPath=str(self.downloads))
        self.look(width, height, dark)

    def look(self, width, height, dark=False):
        phone = width < 600
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.send("Emulation.setEmulatedMedia", features=scheme)

    def send(self, method, **given):
        self.number += 1
        message = {"id": self.number, "method": method, "params": given}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.outbox, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self.number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]

    def _receive(self):
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.inbox], [], [], 60)
            assert ready, "the browser does not answer"
            self.rest += os.read(self.inbox, 2**20)
        text, self.rest = self.rest.split(b"\0", 1)
        message = json.loads(text)
        if message.get("method") == "Runtime.exceptionThrown":
            self.problems.append(message["params"]["exceptionDetails"])
        if message.get("method") == "Log.entryAdded" and message["params"]["entry"]["level"] == "error":
            self.problems.append(message["params"]["entry"])
        return message

    def ask(self, script):
        """What an expression is."""
        found = self.send("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def count(self, selector):
        return self.ask(f"document.querySelectorAll('{selector}').length")

    def display(self, selector):
        return self.ask(f"getComputedStyle(document.querySelector('{selector}')).display")

    def until(self, script, seconds=60):
        end = time.monotonic() + seconds
        while not self.ask(script):
            assert time.monotonic() < end, (
                f"{script} in vain; the page says: {self.ask('document.body.innerText')[:500]}"
            )
            time.sleep(0.05)

    def open(self, address):
        self.ask("window.left = true")  # until the next page is there, scripts still run in this one
        self.send("Page.navigate", url=address)
        self.until("!window.left && document.readyState === 'complete'")

    def click(self, selector):
        """In the middle of the first element that it names."""
        place = self.ask(f"""(() => {{ const one = document.querySelector({json.dumps(selector)});
            one.scrollIntoView({{block: "nearest"}});
            const box = (one.querySelector(".disc, .hit") ?? one).getBoundingClientRect();
            return [box.x + box.width / 2, box.y + box.height / 2]; }})()""")
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left", clickCount=1)

    def press(self, key):
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        codes = {"Enter": 13, "ArrowDown": 40, "ArrowUp": 38, "ArrowRight": 39, "ArrowLeft": 37}
        more = {"windowsVirtualKeyCode": codes[key]} if key in codes else {}
        self.send("Input.dispatchKeyEvent", type="keyDown", key=key, text=text, **more)
        self.send("Input.dispatchKeyEvent", type="keyUp", key=key, **more)

    def type(self, text):
        self.send("Input.insertText", text=text)

    def picture(self, path, whole=False):
        found = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))

    def close(self):
        self.process.terminate()
        self.process.wait(30)
        os.close(self.inbox)
        os.close(self.outbox)
