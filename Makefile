# Everything a fresh machine needs: Python 3.11 or newer, make, and a package index.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready

.PHONY: demo demo-distributed test lint types check bench clean

demo: $(READY)  ## the paper's synthetic experiment: a table, demo/synthetic.png, demo/report.html
	$(BIN)/hypergossip demo

demo-distributed: $(READY)  ## the same over four processes, and how far it is from one
	$(BIN)/hypergossip launch -n 4 examples/distributed.py

test: $(READY)  ## the tests
	$(BIN)/pytest --numprocesses 2 --dist loadfile

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/pyright

check: lint types test

bench: $(READY)  ## speed beside NumPy and PyTorch (if installed), and gossip on large rings
	$(BIN)/python benchmarks/synthetic.py
	$(BIN)/python benchmarks/large_ring.py

clean:
	rm -rf .venv demo

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "hypergossip needs Python 3.11 or newer, found " + sys.version.split()[0] + "; name one with: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@
