"""Trainings that several processes do as one and that one process does alone, for the tests of both."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import dgl
import torch
from games import PooledGCN, SmallGCN, gcn_game, random_graph

from dgl_lara._util.distributed import ALONE, ProcessLost
from dgl_lara.errors import InputError
from dgl_lara.game.game import Game
from dgl_lara.training import loop
from dgl_lara.training.backend import InMemory
from dgl_lara.training.config import TrainingConfig

SMALL = TrainingConfig(hidden=8, dim=3, masks=2, steps=6)
LONGER = {"steps": 12}
OBJECTIVES = ("balanced", "least-squares", "running-mean", "mutual-information")
CASES = [("all", "balanced"), ("all", "running-mean"), (16, "balanced"), (16, "least-squares"), (16, "running-mean")]
CASES += [(16, "mutual-information"), ("all", "edges"), ("all", "pool"), (16, "graphs"), (2, "features")]


def game_of(name):
    if name == "graphs":
        batch = dgl.batch([random_graph(5, 6, seed) for seed in range(24)])
        features = torch.randn(120, 3, generator=torch.Generator().manual_seed(2))
        return Game.create(PooledGCN(), batch, features, "graph", hops=2, memory=10**9)
    whole = gcn_game(nodes=40, edges=50, seed=3)
    players = name if name in ("edges", "features") else "nodes"
    return Game.create(SmallGCN(), whole.graph, whole.features, hops=2, memory=10**9, players=players)


def trained(size, name, ranks=ALONE, resume=None, checkpoint=lambda state: None, **more):
    game = game_of(name)
    objective = name if name in OBJECTIVES else "balanced"
    more = {"pool": 5, **more} if name == "pool" else more
    config = replace(SMALL, objective=objective, batch_size=0 if size == "all" else size, **more)
    targets = torch.arange(game.num_targets)
    return loop.train(InMemory(game, config, ranks), targets[::2], targets[1::2], resume, checkpoint)


def start(count, folder, *words, changed=()):
    """The processes, each told its number; the last one is given more words than the others."""
    place = {"WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count, "DGL_LARA_MEETING": Path(folder) / "meeting"}
    given = {**os.environ, "OMP_NUM_THREADS": "1", **{name: str(value) for name, value in place.items()}}
    return [
        subprocess.Popen(
            [sys.executable, *map(str, words), *(changed if rank == count - 1 else ())],
            env={**given, "RANK": str(rank)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(count)
    ]  # fmt: skip


def work(ranks, folder):
    """What each of the processes does."""
    states = {case: trained(*case, ranks=ranks).to_dict() for case in CASES}
    weights = [torch.cat([part.flatten() for part in state["explainer"].values()]) for state in states.values()]
    every = [ranks.of_first(own) for own in weights]
    assert all(torch.equal(*both) for both in zip(weights, every, strict=True)), "processes have drifted apart"
    try:
        ranks.agree({"colour": "blue" if ranks.is_first else "red"})
    except InputError as error:
        Path(folder, f"refused-{ranks.rank}.txt").write_text(str(error))
    if ranks.is_first:
        torch.save(states, f"{folder}/states.pt")


def work_until_one_dies(ranks, folder, at=7):
    """The last process is killed within a step; the first must keep what is done."""
    if ranks.rank == ranks.count - 1:
        count, update = [], loop.update

        def deadly(*given):
            count.append(1)
            if len(count) == at:
                os.kill(os.getpid(), signal.SIGKILL)
            return update(*given)

        loop.update = deadly
    try:
        trained(
            "all",
            "balanced",
            ranks,
            checkpoint=lambda state: torch.save(state.to_dict(), f"{folder}/kept.pt"),
            **LONGER,
        )
    except ProcessLost as lost:
        Path(folder, f"lost-{ranks.rank}.txt").write_text(lost.code)
