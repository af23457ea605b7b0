# Every target sets up .venv by itself; a second run finds it ready.
PYTHON ?= python3.11
BIN := .venv/bin

.PHONY: install demo test test-long test-dgl2 lint docs clean

install: .venv/ready

.venv/ready: setup.py constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "Python 3.11 is needed ($(PYTHON) not found); name yours with PYTHON=..."; exit 1; }
	$(PYTHON) -m venv .venv
	@echo "installing torch, dgl and what else is needed: some hundred megabytes, some minutes ..."
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[test]'
	@touch $@

demo: install
	$(BIN)/dgl-lara target --dataset ba-shapes
	rm -rf runs/demo
	$(BIN)/dgl-lara train --dataset ba-shapes --out runs/demo
	$(BIN)/dgl-lara eval --run runs/demo --metric fidelity
	$(BIN)/dgl-lara eval --run runs/demo --metric agreement
	@echo "next: . .venv/bin/activate; dgl-lara explain --run runs/demo --node 512 --picture node512.png"

# Three processes on two cores: many tests wait for processes of their own. What one of them has compiled all may load.
test: install
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --numprocesses 3 --dist worksteal

# Trainings, services and processes from end to end; CI runs them after the others.
test-long: install
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --numprocesses 3 --dist worksteal -m "long and not slow"

# dgl 2.1.0 stands nearer to the CUDA set (2.4) than 1.1.3 does; it imports only with torch up to 2.2.1. About 2 GB.
DGL2 := torch==2.2.1 dgl==2.1.0 numpy==1.26.4 pyarrow==17.0.0 torchdata==0.7.1 pydantic pandas==2.2.3 scipy==1.13.1
test-dgl2:
	$(PYTHON) -m venv .venv-dgl2
	.venv-dgl2/bin/pip install --quiet $(DGL2) click jinja2 matplotlib networkx numba ogb packaging psutil pyyaml tqdm \
		pytest pytest-xdist ruff torch_geometric httpx2 httptools orjson prometheus_client starlette uvicorn uvloop
	.venv-dgl2/bin/pip install --quiet --no-deps --editable .
	.venv-dgl2/bin/python -m pytest -m "not slow" --numprocesses 2 --dist worksteal \
		--deselect tests/test_pinned.py --deselect tests/test_score_matrix.py

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tests/house.py

# The site, into site/: every link and every name of the API is checked.
docs: .venv/docs-ready
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

.venv/docs-ready: .venv/ready
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[docs]'
	@touch $@

clean:
	rm -rf .venv .venv-dgl2 site build *.egg-info .pytest_cache .mypy_cache .ruff_cache
