"""Processes that need not load torch and dgl: forked from one that has loaded them, and done nothing else.

Loading takes longer than what most tests ask of a process. What happens until then is tested in processes from their
first instant (test_hostile_places.py, test_cli.py).
"""

import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path

forkserver = multiprocessing.get_context("forkserver")
forkserver.set_forkserver_preload(
    ["dgl_lara.runs.run", "dgl_lara.cli.explain", "dgl_lara.explanation.plot.figure", "uvicorn"]
)
COMMAND = "from dgl_lara.__main__ import run; run()"


def _work(code, words, folder, environment, *pipes):
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for place, pipe in enumerate(pipes, start=1):
        os.dup2(pipe.fileno(), place)
    for pipe in {id(pipe): pipe for pipe in pipes}.values():
        pipe.close()  # an end that stays open would never be the end
    sys.argv = ["dgl-lara", *words]
    exec(code, {"__name__": "__main__"})


class Forked:
    """Python code in a process of its own, asked as a subprocess.Popen is."""

    def __init__(self, code, *words, environment=None, together=False):
        """`together`: what it says on standard error comes with its output."""
        there, pipes = zip(*(forkserver.Pipe(duplex=False) for _ in range(2)), strict=True)
        given = (pipes[0], pipes[0] if together else pipes[1])
        environment = {**os.environ, **(environment or {})}
        self._process = forkserver.Process(
            target=_work, args=(code, list(map(str, words)), str(Path.cwd()), environment, *given)
        )
        self._process.start()
        for pipe in pipes:
            pipe.close()
        self.stdout, self.stderr = (os.fdopen(os.dup(pipe.fileno())) for pipe in there)
        for pipe in there:
            pipe.close()

    @property
    def pid(self):
        return self._process.pid

    @property
    def returncode(self):
        return self._process.exitcode

    def send_signal(self, number):
        if self.returncode is None:
            os.kill(self.pid, number)

    def terminate(self):
        self.send_signal(signal.SIGTERM)

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout=240):
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired("dgl-lara", timeout)
        return self.returncode

    def said(self, timeout=240):
        """(code, output, errors) when it has ended; little enough for a pipe."""
        self.wait(timeout)
        with self.stdout, self.stderr:
            return self.returncode, self.stdout.read(), self.stderr.read()


def command(*words, environment=None, together=False):
    """`dgl-lara WORDS`."""
    return Forked(COMMAND, *words, environment=environment, together=together)
