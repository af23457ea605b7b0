"""A headless Chromium for tests: open a page, run a script in it, get its answer back."""

import html
import json
import re
import shutil
import subprocess

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
