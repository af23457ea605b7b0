# Every target sets up .venv by itself; a second run finds it ready.
PYTHON ?= python3.11
BIN := .venv/bin

.PHONY: install demo test lint docs clean

install: .venv/ready

.venv/ready: setup.py constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "Python 3.11 is needed ($(PYTHON) not found); name yours with PYTHON=..."; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[test]'
	@touch $@

demo: install
	$(BIN)/dgl-lara target --dataset ba-shapes
	rm -rf runs/demo
	$(BIN)/dgl-lara train --dataset ba-shapes --out runs/demo
	$(BIN)/dgl-lara eval --run runs/demo --metric fidelity

test: install
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The site, into site/: every link and every name of the API is checked.
docs: .venv/docs-ready
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

.venv/docs-ready: .venv/ready
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[docs]'
	@touch $@

clean:
	rm -rf .venv site build *.egg-info .pytest_cache .mypy_cache .ruff_cache
