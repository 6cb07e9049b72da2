# Two commands do all of their own set-up: `make sweep` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: sweep dev test test-all docs lint clean

sweep: $(STAMP)  ## Run the main job: tune the translation model
	$(BIN)/automl sweep configs/nmt.yaml

dev: $(STAMP)  ## Set up everything that a developer needs
	$(BIN)/python -m pip install -q --disable-pip-version-check -e ".[test,dev]"
	$(BIN)/python tests/browser.py

test: $(STAMP)  ## Run every test, but for those of large training libraries
	$(BIN)/python -m pip install -q --disable-pip-version-check -e ".[test]"
	$(BIN)/python tests/browser.py
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

test-all: $(STAMP)  ## Run every test, with the large training libraries (300 MB)
	$(BIN)/python -m pip install -q --disable-pip-version-check -e ".[test-all]"
	AUTOML_TEST_ALL=1 $(MAKE) test

docs: $(STAMP)  ## Build the documentation into site/
	$(BIN)/python -m pip install -q --disable-pip-version-check -e ".[docs]"
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

lint: $(STAMP)  ## Check style, spelling, words and types
	$(BIN)/python -m pip install -q --disable-pip-version-check -e ".[test,dev]"
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/typos
	$(BIN)/python scripts/readability.py
	$(BIN)/python scripts/pages.py
	$(BIN)/mypy

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -e .
	touch $(STAMP)

clean:  ## Remove the environment and caches
	rm -rf $(VENV) build site *.egg-info .mypy_cache .ruff_cache .pytest_cache
