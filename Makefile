# `make chat` and `make test` work on a fresh clone: both set up .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: setup chat test test-all lint fix clean

setup: $(STAMP)

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --editable . --group dev
	@touch $@

chat: setup
	@$(BIN)/mirror-mlx chat $(ARGS)

# One process for each core; a file's tests stay together, since its fixtures are made once.
test: setup lint
	$(BIN)/pytest --numprocesses auto --dist loadfile $(ARGS)

test-all: setup lint
	$(BIN)/pytest -m "not metal and not ane" $(ARGS)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

fix: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
