"""Pages from the .html files beside the modules that fill them, by jinja2: whatever is put in is text unless it is
`Markup`, and a part that is missing is an error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined

from dgl_lara._util.tables import cell, is_number


@dataclass(frozen=True)
class HtmlTable:
    """For the macro `table` of a page."""

    header: Sequence[str]
    rows: Sequence[Sequence[object]]


def rendered(room: str, name: str, **parts: Any) -> str:
    """The page `name` of that package."""

    def read(name: str) -> str:
        """`page.html` of the room itself, `drawing/part.js` of another."""
        other, _, file = name.rpartition("/")
        home = f"dgl_lara.{other}" if other else room
        return resources.files(home).joinpath(file).read_text(encoding="utf-8")

    pages = Environment(
        loader=FunctionLoader(read),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    pages.filters["cell"], pages.tests["a_number"] = cell, is_number
    return pages.get_template(name).render(**parts)
