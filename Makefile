# make search   find a network on a fresh machine
# make test     lint, types and tests
# make bench    speed as ratios within one run; time and memory of every proxy; a table of 423,624 rows
# make clean    forget the environment

PYTHON ?= python3
BIN := .venv/bin

.PHONY: search test lint bench clean

search: .venv/installed
	@mkdir -p runs
	$(BIN)/epochzero search --space nb201 --proxy dextr --budget 300 --store runs/nb201.db --out runs/nb201

test: .venv/installed lint
	$(BIN)/pytest

lint: .venv/installed
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

bench: .venv/installed
	$(BIN)/python benchmarks/speed.py
	$(BIN)/python benchmarks/costs.py --space nb201 --batch-size 64 --kernels
	$(BIN)/python benchmarks/costs.py --space autoformer_tiny --arch smallest --batch-size 8 --kernels
	$(BIN)/python benchmarks/tables.py

clean:
	rm -rf .venv

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@
