"""Three processes that work together, and then two of which one dies: `python processes_at_work.py FOLDER`.

It runs once for all tests that read its results. The processes are forked from one that has loaded everything."""

import multiprocessing
import os
import sys
from pathlib import Path

import parts_together
import pytest
import torch
import training_together
from conftest import judge_hardly

from dgl_lara._util.distributed import join
from dgl_lara.datasets.partitioning import partition

COUNT = 3  # shares are uneven, and with two masks one process has none
fork = multiprocessing.get_context("fork")


def run(count, folder, *works):
    """Run these functions in `count` processes together, and return their exit codes."""
    place = {"WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count, "DGL_LARA_MEETING": f"{folder}/meeting-{count}"}

    def one(rank):
        os.environ.update({name: str(value) for name, value in place.items()}, RANK=str(rank))
        ranks = join()
        for work in works:
            work(ranks, folder)
        if len(works) > 1:
            ranks.leave()

    started = [fork.Process(target=one, args=(rank,)) for rank in range(count)]
    for process in started:
        process.start()
    for process in started:
        process.join()
    return [process.exitcode for process in started]


if __name__ == "__main__":
    folder = sys.argv[1]
    judge_hardly(pytest.MonkeyPatch())
    partition(parts_together.dataset_of(parts_together.whole_game()), COUNT, Path(folder, "parts"), "random")
    torch.optim.Adam([torch.zeros(1, requires_grad=True)])  # the first one loads much of torch
    codes = run(COUNT, folder, training_together.work, parts_together.work)
    assert codes == [0] * COUNT, codes
    codes = run(2, folder, training_together.work_until_one_dies)
    assert codes == [0, -9], codes
