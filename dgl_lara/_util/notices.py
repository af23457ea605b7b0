"""Notices: what a user should know while the work goes on."""

from __future__ import annotations

import logging

from dgl_lara._util.progress import log_info
from dgl_lara.errors import message

LOGGER = logging.getLogger("dgl_lara")
LOGGER.addHandler(logging.NullHandler())
LOGGER.setLevel(logging.INFO)
LOGGER.propagate = False


def notice(code: str, **fields: object) -> None:
    """Print a text of the catalogue and log it as a record with `code` and `fields`.

    Args:
        code: Key of the text in the catalogue.
        fields: Values of its placeholders.
    """
    text = message(code, **fields)
    log_info(text)
    LOGGER.info(text, extra={"code": code, "fields": fields})
