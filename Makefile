# Thin names for the commands of README.md and .ci/run. `make PYTHON=python3.12` picks another one.
PYTHON ?= python3
VENV ?= .venv

.PHONY: install demo test test-all lint format ci clean

$(VENV)/installed: setup.py
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install -q --use-pep517 -e '.[test]'
	touch $@

install: $(VENV)/installed

demo:
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install -q -e '.[look]'
	$(VENV)/bin/bilm demo

test: install
	$(VENV)/bin/pytest

test-all: install
	$(VENV)/bin/pytest -m ""

lint: install
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

format: install
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

ci:
	.ci/run

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache *.egg-info
