"""HTML pages from jinja2 templates. Values are escaped unless they are `Markup`. Missing values are errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined

from dgl_lara._util.tables import cell, is_number


@dataclass(frozen=True)
class HtmlTable:
    """Header and rows for the macro `table` of a page."""

    header: Sequence[str]
    rows: Sequence[Sequence[object]]


def rendered(room: str, name: str, **parts: Any) -> str:
    """Return a page with its values.

    Args:
        room: Package that holds the template.
        name: File name of the template.
        parts: Values of the template.
    """

    def read(name: str) -> str:
        """Read `page.html` of the package, or `room/part.js` of another one."""
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
