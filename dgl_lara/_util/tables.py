"""Tables as plain text and Markdown."""

from __future__ import annotations

from collections.abc import Sequence


def text_table(header: Sequence[str], rows: Sequence[Sequence[object]], width: int | None = None) -> str:
    """Return a table with padded columns.

    Args:
        header: Names of the columns.
        rows: Values. Numbers are aligned to the right.
        width: Largest number of columns of text. Words of the first column are shortened to fit.
    """
    cells = [[cell(value) for value in row] for row in rows]
    if width is not None and (over := _width(text_table(header, rows)) - width) > 0:
        most = max(max((len(row[0]) for row in cells), default=0) - over, 8)
        cells = [[shortened(first, most), *others] for first, *others in cells]
    columns = list(zip(header, *cells, strict=True))
    widths = [max(map(len, column)) for column in columns]
    right = [all(is_number(row[index]) or row[index] == "" for row in rows) for index in range(len(header))]

    def line(row: Sequence[str]) -> str:
        padded = (
            text.rjust(width) if to_right else text.ljust(width)
            for text, width, to_right in zip(row, widths, right, strict=True)
        )
        return "  ".join(padded).rstrip()

    return "\n".join([line(header), line(["-" * width for width in widths]), *map(line, cells)])


def text_blocks(header: Sequence[str], rows: Sequence[Sequence[object]], width: int) -> str:
    """Return a table as several tables that fit a width, each with the first column."""
    blocks, chosen = [], [0]
    for index in range(1, len(header)):
        if len(chosen) > 1 and _width(text_table(*_columns(header, rows, [*chosen, index]))) > width:
            blocks.append(chosen)
            chosen = [0]
        chosen.append(index)
    return "\n\n".join(text_table(*_columns(header, rows, block)) for block in [*blocks, chosen])


def _columns(
    header: Sequence[str], rows: Sequence[Sequence[object]], chosen: list[int]
) -> tuple[list[str], list[list[object]]]:
    return [header[index] for index in chosen], [[row[index] for index in chosen] for row in rows]


def _width(text: str) -> int:
    return max(map(len, text.splitlines()))


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table in Markdown."""

    def line(cells: Sequence[str]) -> str:
        return f"| {' | '.join(text.replace('|', chr(92) + '|') for text in cells)} |"  # a bar within a cell: \\|

    return "\n".join([line(header), line(["---"] * len(header)), *(line([cell(v) for v in row]) for row in rows)])


def shortened(text: str, most: int) -> str:
    """Cut a text to a number of characters."""
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def is_number(value: object) -> bool:
    return value is None or isinstance(value, int | float)


def cell(value: object) -> str:
    """Return a value as text. Large numbers have no decimals."""
    if value is None or value != value:  # NaN
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:z.3f}"
    return str(value)
