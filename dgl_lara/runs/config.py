"""Configuration of a run, as `config.json` holds it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from dgl_lara._util.settings import Choice, settings
from dgl_lara.blackbox.user_model import UserModelRef
from dgl_lara.constants import PRESETS, VALUES
from dgl_lara.datasets import Options
from dgl_lara.game.index import BANZHAF
from dgl_lara.game.player_specs import Nodes, StoredPlayers
from dgl_lara.game.receptive_field import MAX_HOPS
from dgl_lara.training.config import TrainingConfig


@settings
class RunConfig:
    """What identifies a run.

    Args:
        dataset: Name of the data set, or the path of its file.
        options: Variant of the data set.
        hops: K, the reach of the model.
        value: Number that is explained.
        training: Settings of the explainer and its training.
        preset: Name of the settings that `training` started from.
        model: File and name of the user's model. None means the run holds a model of this package.
        data: Fingerprint of the data set.
        index: What a score is, see `game/index.py`.
        players: Player sets. Each has an explainer, the first one in the folder of the run itself.
    """

    dataset: str
    options: Options
    hops: Annotated[int, Field(ge=0, le=MAX_HOPS)]
    value: Annotated[str, Choice(VALUES)]
    training: TrainingConfig
    preset: Annotated[str, Choice(PRESETS)]
    model: UserModelRef | None = None
    data: str | None = None
    index: str = BANZHAF.name
    players: tuple[StoredPlayers, ...] = (Nodes(),)
