"""Processes that are forked from one that has loaded torch and dgl, because loading takes longer than most tests.

What happens while a process loads is tested in test_hostile_places.py and test_cli.py.
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
        pipe.close()  # readers wait until all writers are closed
    sys.argv = ["dgl-lara", *words]
    exec(code, {"__name__": "__main__"})


class Forked:
    """Python code in a process, with the interface of subprocess.Popen."""

    def __init__(self, code, *words, environment=None, together=False):
        """`together`: standard error comes with the output."""
        readers, pipes = zip(*(forkserver.Pipe(duplex=False) for _ in range(2)), strict=True)
        outputs = (pipes[0], pipes[0] if together else pipes[1])
        environment = {**os.environ, **(environment or {})}
        self._process = forkserver.Process(
            target=_work, args=(code, list(map(str, words)), str(Path.cwd()), environment, *outputs)
        )
        self._process.start()
        for pipe in pipes:
            pipe.close()
        self.stdout, self.stderr = (os.fdopen(os.dup(pipe.fileno())) for pipe in readers)
        for pipe in readers:
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

    def result(self, timeout=240):
        """Wait for the end and return (exit code, output, errors), which must fit into a pipe."""
        self.wait(timeout)
        with self.stdout, self.stderr:
            return self.returncode, self.stdout.read(), self.stderr.read()


def command(*words, environment=None, together=False):
    """`dgl-lara WORDS`."""
    return Forked(COMMAND, *words, environment=environment, together=together)
