# Every target sets up what it needs: Python >= 3.11, pip and make are enough.
# EXTRAS names one more extra of pyproject.toml for the tests: `EXTRAS=all make test` also has every optional adapter.
# SOAK holds options of the soak: `SOAK="--kills 20 --seed 7" make soak`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
EXTRAS ?=
SOAK ?=
DEV := $(VENV)/.dev$(EXTRAS:%=-%)
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable
export RAY_USAGE_STATS_ENABLED := 0

.DEFAULT_GOAL := help

.PHONY: help
help:  ## Show the targets.
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

.PHONY: demo
demo: $(VENV)/.platform  ## Run configs/demo.yaml: a real sweep with a served policy, tracking and a report.
	$(BIN)/memcon sweep configs/demo.yaml

.PHONY: test
test: $(DEV)  ## Run all tests.
	$(BIN)/pytest

.PHONY: check
check: $(DEV)  ## Lint, types, import contracts.
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

.PHONY: bench
bench: $(VENV)/.bench  ## Measure the platform's own cost, the policy in process and served, beside its peers.
	$(BIN)/memcon bench sweep configs/bench.yaml
	$(BIN)/memcon bench policy
	$(BIN)/memcon bench serving
	$(BIN)/memcon bench sharing

.PHONY: soak
soak: $(DEV)  ## Kill owners, gateways and clients of a served policy 100 times under load; nothing may be lost.
	cd tests && ../$(BIN)/python -m soak $(SOAK)

.PHONY: format
format: $(DEV)  ## Format the sources.
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: clean
clean:  ## Remove the environment and caches; runs stay.
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A virtual environment of the project's own: nothing on the machine is changed or relied on.
$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "memcon needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V). Set PYTHON=..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.platform: $(VENV)/.made pyproject.toml constraints.txt
	@echo "installing memcon and its libraries into $(VENV), 1.4 GB; the first time it takes some minutes"
	$(INSTALL) '.[platform]'
	@touch $@

$(VENV)/.bench: $(VENV)/.platform
	$(INSTALL) '.[platform,bench]'
	@touch $@

$(DEV): $(VENV)/.platform
	$(INSTALL) '.[platform,dev$(EXTRAS:%=,%)]'
	@touch $@
