"""docs/serving.md: its container installs an extra of setup.py, its manifest fits the container, its requests parse."""

import json
import re
import shlex
from pathlib import Path

import pytest
import yaml

from dgl_lara.cli import main
from dgl_lara.serve.schemas import ExplainBody, GraphUpdate, Subgraph, parse_body

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "serving.md").read_text()


def block(kind):
    (found,) = re.findall(rf"```{kind}\n(.+?)```", TEXT, re.DOTALL)
    return found


@pytest.fixture
def dockerfile():
    lines = block("dockerfile").splitlines()
    return [line.split(" ", 1) for line in lines]


def words_of(dockerfile, instruction):
    (found,) = [json.loads(rest) for name, rest in dockerfile if name == instruction]
    return found


def test_the_container_installs_what_setup_offers(dockerfile):
    setup = (ROOT / "setup.py").read_text()
    (image,) = [rest for name, rest in dockerfile if name == "FROM"]
    low, high = re.search(r'python_requires=">=3\.(\d+),<3\.(\d+)"', setup).groups()
    version = re.fullmatch(r"python:3\.(\d+)-slim", image)[1]
    assert int(low) <= int(version) < int(high)
    (install,) = [shlex.split(rest) for name, rest in dockerfile if name == "RUN" and "pip" in rest]
    (extra,) = re.findall(r"\.\[(\w+)\]", install[-1])
    (offered,) = re.findall(r"extras_require=\{(.+?)\}", setup)
    assert f'"{extra}": SERVE' in offered
    assert install[install.index("--constraint") + 1] == "constraints.txt"
    (packages,) = re.findall(r"^SERVE = \[(.+?)\]", setup, re.DOTALL | re.MULTILINE)
    pinned = (ROOT / "constraints.txt").read_text()
    names = re.findall(r'"([\w-]+)>=', packages)
    assert {"starlette", "uvicorn", "orjson", "prometheus_client"} <= set(names)
    for name in names:
        assert re.search(rf"^{name}==", pinned, re.MULTILINE), f"{name} is not pinned"


def test_its_command_parses(dockerfile):
    program, name, *words = words_of(dockerfile, "ENTRYPOINT")
    assert f'"{program} = dgl_lara.__main__:run"' in (ROOT / "setup.py").read_text()
    context = main.commands[name].make_context(name, [*words, *words_of(dockerfile, "CMD")])
    assert context.params["host"] == "0.0.0.0"
    (exposed,) = [int(rest) for instruction, rest in dockerfile if instruction == "EXPOSE"]
    assert context.params["port"] == exposed


def test_the_manifest_fits_the_container(dockerfile):
    manifest = yaml.safe_load(block("yaml"))
    assert (manifest["apiVersion"], manifest["kind"]) == ("serving.kserve.io/v1beta1", "InferenceService")
    predictor = manifest["spec"]["predictor"]
    (container,) = predictor["containers"]
    _, name, *words = words_of(dockerfile, "ENTRYPOINT")
    context = main.commands[name].make_context(name, [*words, *container["args"]])
    port = context.params["port"]
    assert [one["containerPort"] for one in container["ports"]] == [port]
    for probe in ("readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"] == {"path": "/healthz", "port": port}
    mounts = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
    assert set(mounts) == {one["name"] for one in predictor["volumes"]}
    for path in (*context.params["folders"], context.params["state"], context.params["token_file"]):
        assert any(str(path).startswith(mount) for mount in mounts.values()), path
    (run,) = context.params["folders"]
    assert run.name == manifest["metadata"]["name"]  # KServe asks for the model under this name


def test_its_requests_parse():
    bodies = re.findall(r"-d '(.+?)'", TEXT, re.DOTALL)
    assert len(bodies) == 2
    parse_body(ExplainBody, bodies[0].encode())
    parse_body(GraphUpdate, bodies[1].encode())


def test_its_instances_and_subgraphs_parse():
    """Dots stand for rows of features."""
    text = TEXT.replace("\n", " ").replace("[[...], ...]", "[[1.0], [2.0]]").replace("[...]", "[[1.0]]")
    instances = re.findall(r'`(\{"(?:node|pair)".+?\})`', text)
    subgraphs = re.findall(r'`(\{"features".+?\})`', text)
    assert (len(instances), len(subgraphs)) == (3, 1)
    for one in instances:
        parse_body(ExplainBody, b'{"instances": [%b]}' % one.encode())
    parse_body(Subgraph, subgraphs[0].encode())


def test_its_paths_exist():
    from dgl_lara.serve.app import Service
    from dgl_lara.serve.middleware import Limits

    routes = {route.path.replace("{name}", "mine") for route in Service([], Limits()).routes}
    for path in re.findall(r"`(?:GET |POST )?(/[\w/:.]*)`", TEXT):
        if path.startswith("/v1") or path in ("/healthz", "/metrics", "/docs", "/openapi.json", "/"):
            assert path in routes, path
