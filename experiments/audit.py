"""Known vulnerabilities of the installed packages, from PyPI.

    python experiments/audit.py

`pip-audit` asks PyPI for the page of each release. A mirror may have the page of the newest release only. This script
then asks for that page, which answers for the installed release only if it is the newest.
"""

import json
import urllib.error
import urllib.request
from importlib.metadata import distributions

import click

from dgl_lara._util.tables import markdown_table

PYPI = "https://pypi.org/pypi"


def page(*parts: str) -> dict | None:
    """Return PyPI's page, or None."""
    try:
        with urllib.request.urlopen("/".join([PYPI, *parts, "json"]), timeout=60) as reply:
            return json.load(reply)
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise


def known(release: str, of_release: dict | None, of_newest: dict | None) -> tuple[str, str]:
    """Return the release that PyPI answered for, and its vulnerabilities."""
    found = of_release or of_newest
    if found is None:
        return "none", "not on PyPI"
    names = ", ".join(one["id"] for one in found["vulnerabilities"] if not one.get("withdrawn")) or "none known"
    newest = found["info"]["version"]
    return ("this one", names) if of_release or newest == release else (f"only {newest}", names)


@click.command()
def main() -> None:
    installed = sorted({(one.metadata["Name"].lower(), one.version.partition("+")[0]) for one in distributions()})
    rows = []
    for name, release in installed:
        if name == "dgl-lara":
            continue
        of_release = page(name, release)
        rows.append([name, release, *known(release, of_release, None if of_release else page(name))])
    answered = sum(row[2] == "this one" for row in rows)
    click.echo(f"{len(rows)} packages; PyPI answered for the installed release of {answered}.\n")
    result = [row for row in rows if row[2] != "this one" or row[3] != "none known"]
    click.echo(markdown_table(["package", "installed", "answered for", "vulnerabilities"], result))


if __name__ == "__main__":
    main()
