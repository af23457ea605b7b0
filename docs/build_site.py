"""A hook of mkdocs: files of the repository that stand outside docs/ are part of the site too, README.md as its home.

Links in all of them are those of the repository, so that they work where it is browsed; here they are turned to where
things stand in the site.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
OUTSIDE = (
    "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "data/README.md", "experiments/*.md", "experiments/results/*.md",
    "experiments/results/*.png", "experiments/results/*.csv", "dgl_lara/reports/deviations.md",
)  # fmt: skip
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^()\s#:]+)(#[^()\s]*)?\)")


def in_site(path: str) -> str:
    """Where a file of the repository stands in the site."""
    return "index.md" if path == "README.md" else path.removeprefix("docs/")


def in_repository(path: str) -> str:
    """And back."""
    if path == "index.md":
        return "README.md"
    return path if (ROOT / path).exists() else f"docs/{path}"


def on_files(files: Files, config: Any) -> Files:
    for pattern in OUTSIDE:
        for path in sorted(ROOT.glob(pattern)):
            name = path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, in_site(name), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    here = page.file.src_uri
    folder = posixpath.dirname(in_repository(here))

    def turned(match: re.Match) -> str:
        image, text, link, anchor = match.groups()
        target = posixpath.normpath(posixpath.join(folder, link))
        way = posixpath.relpath(in_site(target), posixpath.dirname(here) or ".")
        return f"{image}[{text}]({way}{anchor or ''})"

    return LINK.sub(turned, markdown)
