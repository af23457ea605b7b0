"""What several processes with a part of a graph each find out, for the tests that compare it with one process."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from games import SmallGCN, gcn_game
from training_together import SMALL

from dgl_lara._util.randomness import generator
from dgl_lara.datasets.dataset import Dataset
from dgl_lara.explainer.inputs import encoder_graph
from dgl_lara.game.distributed_game import DistributedGame
from dgl_lara.game.game import Game
from dgl_lara.graphs.remote import RemoteGraph
from dgl_lara.training.distributed import BatchShare, DistributedBackend, part_graph
from dgl_lara.training.loop import new_explainer, train
from dgl_lara.training.objectives import OBJECTIVES

sys.path.append(str(Path(__file__).parents[1] / "experiments"))
from fetched_scores import explain_across  # noqa: E402

CONFIG = replace(SMALL, batch_size=10, steps=12, gate="walk")
STEP = torch.tensor([5, 30, 12, 7, 22, 39, 1])
ASKED = torch.tensor([3, 38, 17, 0, 21])


def whole_game():
    made = gcn_game(nodes=40, edges=60, seed=3)
    return Game.create(SmallGCN(), made.graph, made.features, hops=2, memory=10**9)


def dataset_of(game):
    return Dataset(
        name="small", source="generated", graph=game.graph, features=game.features, num_classes=3, task="node",
        labels=torch.zeros(40, dtype=torch.long), key={"dataset": "small"}, train=torch.arange(0, 40, 2),
        val=torch.arange(1, 40, 2), test=torch.empty(0, dtype=torch.long),
    )  # fmt: skip


def some_explainer():
    """Its weights are what they were made as."""
    game = whole_game()
    seen = encoder_graph(game, "rich")
    return new_explainer(game, CONFIG, seen.inputs, torch.arange(0, 40, 2)), game, seen


def gradients_of(explainer, embeddings):
    """Of a function of all p and t."""
    sum(rows.sin().sum() for rows in embeddings).backward()


def work(ranks, folder):
    """What each of the processes does."""
    view = RemoteGraph(f"{folder}/parts", ranks)
    explainer, *_ = some_explainer()
    across: Any = DistributedGame(SmallGCN(), view, 2, "logit", 10**9)
    seen = part_graph(across, "rich")
    p, t = explainer(seen)
    gradients_of(explainer, (p, t))
    ranks.sum_gradients(explainer.parameters())
    content = {
        "nodes": view.nodes,
        "p": p.detach(),
        "t": t.detach(),
        "answer": across.full_outputs,
        "unit": across.value_scale,
    }
    content["gradients"] = [part.grad for part in explainer.parameters()]
    everyone = torch.arange(40)
    content["degrees"], content["features"] = view.in_degrees(everyone), view.features(everyone)
    content["edges"] = view.in_edges(everyone)
    content["scores"] = explain_across(across, explainer, p.detach(), t.detach(), ASKED[ranks.rank :: ranks.count])
    lesson = BatchShare.on(across, STEP, 3, generator(5 + ranks.rank))
    explainer.zero_grad()
    loss = OBJECTIVES["balanced"].loss(lesson.step(across, explainer, seen), None)
    loss.backward()
    ranks.sum_gradients(explainer.parameters())
    content["loss"], content["step gradients"] = loss.item(), [part.grad for part in explainer.parameters()]
    ground = DistributedBackend(across, CONFIG)
    state = train(ground, everyone[::2], everyone[1::2])
    content["trained"], content["history"] = state.explainer.state_dict(), state.history
    content["sent"] = ranks.sent
    torch.save(content, f"{folder}/part-{ranks.rank}.pt")
