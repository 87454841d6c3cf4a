# Everything a developer or a build machine does here. `make` alone lists it.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
READY_FOR_DEMO := $(VENV)/.ready-for-demo

.DEFAULT_GOAL := help
.PHONY: help setup servers demo lint format test test-spark-matrix soak bench wheel clean

help: ## list what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo "  PYTHON=…                                        the Python to build .venv with (3.11 or newer)"
	@echo "  HOLDFAST_SOAK_ROUNDS=… HOLDFAST_SOAK_SEED=…     how long the soaks run (make soak HOLDFAST_SOAK_ROUNDS=50), and which run to repeat"

setup: $(READY) ## make .venv with the package and all development tools

# Of pip, not of python: where Debian's python3-venv is missing, an environment is left half made.
$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "Holdfast needs Python 3.11 or newer, and '$(PYTHON)' is $$($(PYTHON) --version 2>&1)." >&2; \
	  echo "Name another one: make setup PYTHON=python3.12" >&2; exit 1; }
	@echo "$(PYTHON) -m venv $(VENV)"; $(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "No environment could be made. On Debian and Ubuntu that takes a package: sudo apt install python3-venv" >&2; exit 1; }

$(READY): pyproject.toml constraints.txt | $(BIN)/pip
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --group dev --editable .
	@touch $@

# All that the demo needs, and nothing of what only developers do.
$(READY_FOR_DEMO): pyproject.toml constraints.txt | $(BIN)/pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[demo]'
	@touch $@

servers: setup ## install the real servers that the tests talk to
	$(BIN)/python scripts/install_servers.py

demo: $(if $(wildcard $(READY)),setup,$(READY_FOR_DEMO)) ## see it work: a pipeline is killed, loses its Spark directory, is rewound, and loses nothing
	@$(BIN)/holdfast demo

lint: setup ## style, format, types and the order of the rooms
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup ## put the code into its format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test: setup servers lint ## all of the above, then every test
	$(BIN)/pytest -n 2 --dist loadfile

test-spark-matrix: setup servers ## the tests marked so on older Sparks too (by hand: makes environments of 5 GB)
	$(BIN)/python scripts/spark_matrix.py $(SPARK)

soak: setup servers ## the long proofs with crashes and races
	$(BIN)/pytest -m soak --timeout=0 -s

bench: setup servers ## run every benchmark, one after the other
	@set -e; for file in $$(grep -l '^if __name__ == "__main__":' benchmarks/*.py); do \
	  echo "== $$file"; $(BIN)/python -m benchmarks.$$(basename $$file .py); \
	done

wheel: setup ## build the wheel into dist/
	$(BIN)/python -m build --wheel --no-isolation

clean: ## remove everything that can be made again
	rm -rf $(VENV) .venvs .servers dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
