# make demo: a federated study, end to end.  make test: everything CI checks.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: setup demo test lint types check bench clean
setup: $(VENV)/.installed

# Installed again only when what it is made from changed.
$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Accord needs Python 3.11 or newer; found " + sys.version.split()[0] + ". Set PYTHON=/path/to/python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: setup
	$(BIN)/accord run studies/quickstart.yaml --out runs/quickstart
	$(BIN)/accord report runs/quickstart

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

check: setup
	$(BIN)/pytest

test: lint types check

bench: setup
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV)
