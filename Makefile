# `make run` starts the studio, `make test` checks it, `make bench` measures it; all set up .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
BENCHMARKS := floor first_picture decode batching cache_quality text text_quality

.PHONY: run test bench lint format browser clean

run: $(VENV)/run.stamp
	$(BIN)/python app.py $(ARGS)

test: $(VENV)/dev.stamp browser lint
	OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m pytest $(ARGS)

# About half an hour on two cores with nothing else to do. One alone: BENCHMARKS=floor
bench: $(VENV)/dev.stamp
	for name in $(BENCHMARKS); do $(BIN)/python -m benchmarks.$$name || exit 1; done

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
