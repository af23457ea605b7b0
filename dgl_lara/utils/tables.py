"""Tables, as plain text, Markdown and HTML."""

from __future__ import annotations

import html
from collections.abc import Sequence


def text_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Columns padded to their widest cell; numbers to the right, words to the left."""
    cells = [[_cell(value) for value in row] for row in rows]
    columns = list(zip(header, *cells, strict=True))
    widths = [max(map(len, column)) for column in columns]
    right = [all(_is_number(row[place]) for row in rows) for place in range(len(header))]

    def line(row: Sequence[str]) -> str:
        padded = (
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(row, widths, right, strict=True)
        )
        return "  ".join(padded).rstrip()

    return "\n".join([line(header), line(["-" * width for width in widths]), *map(line, cells)])


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    def line(cells: Sequence[str]) -> str:
        return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"  # a bar within a cell: \\|

    return "\n".join([line(header), line(["---"] * len(header)), *(line([_cell(v) for v in row]) for row in rows)])


def html_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """The same as an HTML table; whatever the cells hold is text."""

    def line(cells: Sequence[object], tag: str) -> str:
        numbers = (' class="number"' if tag == "td" and _is_number(value) else "" for value in cells)
        return "".join(
            f"<{tag}{number}>{html.escape(_cell(value))}</{tag}>" for value, number in zip(cells, numbers, strict=True)
        )

    body = "".join(f"<tr>{line(row, 'td')}</tr>\n" for row in rows)
    return f"<table><thead><tr>{line(header, 'th')}</tr></thead>\n<tbody>{body}</tbody></table>"


def _is_number(value: object) -> bool:
    return value is None or isinstance(value, int | float)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.3f}" if isinstance(value, float) else str(value)
