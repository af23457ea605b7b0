"""A headless Chromium for tests: open a page, run a script in it, get its answer back.

One for all tests of a process, since starting it takes longer than asking. It is spoken to over its debugging pipe
(messages of the DevTools protocol, each ended by a zero byte) and ends when the pipe is closed.
"""

import fcntl
import functools
import json
import os
import select
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


class Browser:
    def __init__(self):
        self.profile = tempfile.TemporaryDirectory()
        words = [
            CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-pipe",
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
