"""A headless Chromium for tests: open a page, run a script in it, get its answer back."""

import base64
import html
import json
import os
import re
import select
import shlex
import shutil
import subprocess
import time

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

needs_browser = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="needs a browser: install chromium"),
]


def ask(page, script, folder, dark=False):
    """What `script` (the body of a function) returns when run at the end of the page; errors of the page fail."""
    probe = f"""<pre id="probe"></pre><script>
      const asked = () => {{ {script} }};
      try {{ document.getElementById("probe").textContent = JSON.stringify({{answer: asked()}}); }}
      catch (error) {{ document.getElementById("probe").textContent = JSON.stringify({{error: String(error)}}); }}
    </script></html>"""
    path = folder / "probed.html"
    path.write_text(page.replace("</html>", probe))
    words = [
        CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1000,700",
        f"--user-data-dir={folder / 'profile'}", f"--blink-settings=preferredColorScheme={0 if dark else 1}",
        "--dump-dom", path.as_uri(),
    ]  # fmt: skip
    dom = subprocess.run(words, capture_output=True, text=True, timeout=90).stdout
    (text,) = re.findall(r'<pre id="probe">(.*?)</pre>', dom, re.DOTALL)
    found = json.loads(html.unescape(text))
    assert "error" not in found, found
    return found.get("answer")


class Window:
    """A page that is clicked through: real pointer and key events, by the DevTools protocol over a pipe."""

    def __init__(self, folder, width=1280, height=860, dark=False):
        to_read, self.outbox = os.pipe()
        self.inbox, to_write = os.pipe()
        words = [
            CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--hide-scrollbars",
            f"--user-data-dir={folder / 'window'}", "about:blank",
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
        downloads = str(folder / "downloads")
        self.send("Page.setDownloadBehavior", behavior="allow", downloadPath=downloads)
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

    def until(self, script, seconds=60):
        end = time.monotonic() + seconds
        while not self.ask(script):
            assert time.monotonic() < end, (
                f"{script} in vain; the page says: {self.ask('document.body.innerText')[:500]}"
            )
            time.sleep(0.05)

    def open(self, address):
        self.send("Page.navigate", url=address)
        self.until("document.readyState === 'complete'")

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
