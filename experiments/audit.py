"""What PyPI knows of vulnerabilities in the packages that are installed here.

    python experiments/audit.py

`pip-audit` asks PyPI for the page of each release. A mirror may have the page of the newest release alone; then this
asks for that one. It answers for an installed release only if that is the newest: of an older one, nothing is known.
"""

import json
import urllib.error
import urllib.request
from importlib.metadata import distributions

import click

from dgl_lara._util.tables import markdown_table

PYPI = "https://pypi.org/pypi"


def page(*parts: str) -> dict | None:
    """PyPI's page, None where there is none."""
    try:
        with urllib.request.urlopen("/".join([PYPI, *parts, "json"]), timeout=60) as reply:
            return json.load(reply)
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise


def known(release: str, of_release: dict | None, of_newest: dict | None) -> tuple[str, str]:
    """(which release PyPI answered for, what it knows of it)."""
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
    told = [row for row in rows if row[2] != "this one" or row[3] != "none known"]
    click.echo(markdown_table(["package", "installed", "answered for", "vulnerabilities"], told))


if __name__ == "__main__":
    main()
