"""Package metadata. Tool settings live in pyproject.toml, the tested versions in constraints.txt."""

import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent
VERSION = re.search(r'__version__ = "(.+)"', (HERE / "dgl_lara/__init__.py").read_text())[1]

# dgl 2.0-2.2 on PyPI import only with the torch releases that their graphbolt was built for (2.1.0: seven, up to
# 2.2.1); 1.1.3 (pip) and 2.4 (conda, CUDA) both work with every release in the torch range. `make test-dgl2` runs the
# tests on 2.1.0 all the same, which stands nearer to the CUDA set than 1.1.3 does.
# packaging: dgl needs it and does not say so.
RUNTIME = [
    "click>=8.1",
    "dgl>=1.1.3,!=2.0.*,!=2.1.*,!=2.2.*",
    "jinja2>=3.1",
    "matplotlib>=3.7",
    "networkx>=3.0",
    "numba>=0.59",
    "numpy>=1.26,<2.4",
    "ogb>=1.3.6",
    "packaging",
    "pandas>=2.0",
    "psutil>=5.9",
    "pyarrow>=15",
    "pydantic>=2.7",
    "scipy>=1.10",
    "torch>=2.1,<2.14",
    "tqdm>=4.60",
]
PYG = ["torch_geometric>=2.5"]  # pure Python
SERVE = [
    "httptools>=0.6",
    "orjson>=3.9",
    "prometheus_client>=0.20",
    "starlette>=0.40",
    "uvicorn>=0.30",
    "uvloop>=0.19; platform_system != 'Windows'",
]
RAY = ["ray>=2.9"]  # not among what tests need: 70 MB to load, 240 MB installed
DOCS = ["mkdocs>=1.6,<2", "mkdocs-material>=9.5,<10", "mkdocstrings[python]>=0.26,<2"]
STUBS = ["pandas-stubs", "types-PyYAML", "types-psutil", "types-tqdm"]
TEST = ["httpx2>=2", "mypy", "pytest>=7", "pytest-xdist", "pyyaml", "ruff", *STUBS, *PYG, *SERVE]

setup(
    name="dgl-lara",
    version=VERSION,
    description="Explain any graph neural network in one feed-forward pass: LARA on DGL",
    long_description=(HERE / "README.md").read_text(),
    long_description_content_type="text/markdown",
    license="MIT",
    packages=find_packages(include=["dgl_lara", "dgl_lara.*"]),
    package_data={
        "dgl_lara.explanation.plot": ["*.css", "*.html", "*.js"],
        "dgl_lara.reports": ["*.html", "*.md"],
        "dgl_lara.serve": ["*.html"],
    },
    python_requires=">=3.10,<3.12",
    install_requires=RUNTIME,
    extras_require={"molecules": ["rdkit"], "pyg": PYG, "serve": SERVE, "ray": RAY, "docs": DOCS, "test": TEST},
    entry_points={"console_scripts": ["dgl-lara = dgl_lara.__main__:run"]},
)
