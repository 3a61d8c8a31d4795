# make search   find a network on a fresh machine
# make test     lint, types and tests
# make fuzz     damaged files of every kind, 24,000 of each, a million odd texts of architectures, and
#               texts of proxies and options: hours on a busy machine
# make bench    ratios within one run; speed and memory one by one, in lockstep and in processes; the suite of two spaces;
#               the default executor beside its alternatives; what lockstep costs the host of a GPU; what executors cost
#               beside scoring; a table of 423,624 rows; what searches cost beyond scoring; CTR tables: rows a second,
#               samples a second of training, scoring; images a second of training, against a plain loop
# make docs     the documentation site, in build/docs; make check-docs looks at every page of it in Chromium
# make clean    forget the environment

PYTHON ?= python3
BUNDLES := "one batch,four batches,dextr,synflow"
BIN := .venv/bin
# many tests wait for other processes: one more of them than there are cores
TESTERS = $(shell expr $$(nproc 2>/dev/null || echo 2) + 1)

.PHONY: search test lint fuzz bench docs check-docs clean

search: .venv/installed
	@mkdir -p runs
	$(BIN)/epochzero search --space nb201 --budget 300 --store runs/nb201.db --out runs/nb201

test: .venv/installed lint
	PYTEST_XDIST_AUTO_NUM_WORKERS=$(TESTERS) $(BIN)/pytest

lint: .venv/installed
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

fuzz: .venv/installed
	EPOCHZERO_FUZZ=200 $(BIN)/pytest tests/fuzz

bench: .venv/installed
	@mkdir -p runs
	$(BIN)/python benchmarks/speed.py
	$(BIN)/epochzero bench-speed --batch-size 1 --networks 32 --row-seconds 3 --budget 300 --out runs/speed_batch1.json
	$(BIN)/epochzero bench-speed --batch-size 64 --networks 8 --alone-networks 4 --only $(BUNDLES) --out runs/speed_batch64.json
	$(BIN)/epochzero bench-speed --suite nb201,autoformer_tiny --only "one batch,dextr" --networks 16 --alone-networks 8 --row-seconds 3 --budget 120 --out runs/suite.json --markdown runs/suite.md
	$(BIN)/python benchmarks/cpu.py
	$(BIN)/python benchmarks/launches.py --rounds 3
	$(BIN)/python benchmarks/executors.py
	$(BIN)/python benchmarks/costs.py --space autoformer_tiny --arch smallest --batch-size 8 --kernels
	$(BIN)/python benchmarks/tables.py
	$(BIN)/python benchmarks/searches.py --file-store
	$(BIN)/python benchmarks/recommenders.py
	$(BIN)/python benchmarks/training.py

docs: .venv/installed
	$(BIN)/sphinx-build --quiet --fresh-env --fail-on-warning --keep-going docs build/docs
	@echo "build/docs/index.html"

check-docs: docs
	$(BIN)/python docs/check.py build/docs

clean:
	rm -rf .venv

.venv/installed: pyproject.toml papers/pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]' --editable ./papers
	@touch $@
