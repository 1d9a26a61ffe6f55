# Two commands do everything: `make reproduce` and `make test`. Each sets up its own .venv from a bare clone and
# reuses it while pyproject.toml and constraints.txt have not changed.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
READY := .venv/.ready

.DEFAULT_GOAL := help
.PHONY: help install test lint reproduce test-gpu clean

help:
	@echo "make reproduce  run every study of the paper at pocket scale; the page is results/report.html"
	@echo "make test       linter, types and all tests"
	@echo "make test-gpu   the tests that need a CUDA device, in the Python environment that is active"
	@echo "make install    only set up .venv"
	@echo "make clean      remove .venv and results"

$(READY): pyproject.toml constraints.txt src/triune/version.py
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

install: $(READY)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	TRITON_INTERPRET=1 $(BIN)/python -m pytest -n 2 -m interpreted tests/kernels
	$(BIN)/python -m pytest -n 2 -m 'not gpu and not interpreted'

reproduce: $(READY)
	$(BIN)/triune reproduce --out results

test-gpu:
	PYTHONPATH=src python -m pytest -m gpu

clean:
	rm -rf .venv results
