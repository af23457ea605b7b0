"""A running service, for the load script and for tests."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager

import psutil


class Running:
    """A running service. `said` is the line with the address, `before` the output until then."""

    def __init__(self, process, address, said, before=""):
        self.process, self.address, self.said, self.before = process, address, said, before

    def ask(self, path, body=None, headers=None, timeout=60):
        """Return (status, answer) of a request on a connection of its own."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data, headers or {})
        try:
            with urllib.request.urlopen(request, timeout=timeout) as response:
                text = response.read()
                return response.status, json.loads(text) if text[:1] in (b"{", b"[") else text.decode()
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def explain(self, name, *instances):
        status, answer = self.ask(f"/v1/models/{name}:explain", {"instances": list(instances)})
        assert status == 200, answer
        return answer["explanations"]

    @property
    def children(self):
        """Return the child processes: the updater first, then the workers."""
        found = psutil.Process(self.process.pid).children()
        return sorted(found, key=lambda child: (child.create_time(), child.pid))

    @property
    def workers(self):
        return self.children[1:]

    def hang_up(self):
        self.process.send_signal(signal.SIGHUP)


def dgl_lara(*words, environment=None):
    """Start the command. Its standard error is part of its output."""
    requested = [sys.executable, "-m", "dgl_lara", *map(str, words)]
    environment = {**os.environ, **(environment or {})}
    return subprocess.Popen(requested, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)


@contextmanager
def serving(*words, command="serve", environment=None, patience=900, start=dgl_lara):
    """Run `dgl-lara serve` (or explore) on a free port until the block ends. `start` starts its process."""
    process = start(command, "--port", 0, *words, environment=environment)
    said, until = [], time.monotonic() + patience
    address = None
    assert process.stdout is not None
    while address is None and time.monotonic() < until:
        line = process.stdout.readline()
        said.append(line)
        found = re.search(r"http://[^/\s]+", line)
        address = found and found[0]
        if not line:
            break
    assert address, "".join(said)
    try:
        yield Running(process, address, line, "".join(said[:-1]))
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
        process.stdout.close()
