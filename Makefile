# `make run` starts the studio, `make test` checks it; both set up .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=

.PHONY: run test lint format browser clean

run: $(VENV)/run.stamp
	$(BIN)/python app.py $(ARGS)

test: $(VENV)/dev.stamp browser lint
	OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m pytest $(ARGS)

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/dev.stamp
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# A Chromium of the machine, of Debian, or Playwright's own.
browser: $(VENV)/dev.stamp
	PLAYWRIGHT=$(BIN)/playwright sh tests/browser/install.sh

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or newer is needed; try: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(VENV)/run.stamp: requirements.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	touch $@

$(VENV)/dev.stamp: requirements.txt requirements-dev.txt $(VENV)/run.stamp
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	touch $@

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
