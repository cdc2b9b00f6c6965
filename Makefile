# The two commands: `make demo` (the main job) and `make test`. Each sets itself up in .venv first; a second call skips that.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
SHELL  := /bin/bash
# What the model in the box parses at the end of the demo.
ENGLISH := "The cat that the dogs chased was tired." "She said that the old house by the river had been sold." \
	"Most of the people in the room knew him."

.PHONY: demo test install check bench docs clean tools
.DEFAULT_GOAL := install

demo: $(STAMP)
	@$(BIN)/onlstm demo
	@if [ -d src/onlstm/models/en ]; then echo; $(BIN)/onlstm parse --format tree $(ENGLISH); fi

test: $(STAMP)
	@$(BIN)/pytest -n 2 --dist worksteal -m "not slow and not gpu"

install: $(STAMP)

check: $(STAMP)
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

bench: $(STAMP)
	@$(BIN)/python benchmarks/speed.py

# The site, in docs/_build/index.html. Two pages are written anew from the code first; a warning is an error.
docs: $(VENV)/.docs
	@$(BIN)/python docs/generate.py
	@$(BIN)/sphinx-build -W --keep-going -q docs docs/_build

clean:
	rm -rf $(VENV) build dist demo docs/_build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): pyproject.toml constraints.txt | tools
	@echo "Setting up $(VENV) (once; a few minutes)"
	@$(PYTHON) -m venv $(VENV)
	@PIP_CONSTRAINT=constraints.txt $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $@

$(VENV)/.docs: $(STAMP)
	@PIP_CONSTRAINT=constraints.txt $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev,docs]"
	@touch $@

# Only a warning for the C++ compiler: without it everything runs on the slower reference kernel.
tools:
	@command -v $(PYTHON) >/dev/null || { echo "make: $(PYTHON) not found: install Python 3.11 or newer, or name one: make PYTHON=python3.12 ..." >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "make: $(PYTHON) is older than 3.11: name a newer one: make PYTHON=python3.11 ..." >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "make: $(PYTHON) has no venv module: install it (Debian, Ubuntu: apt install python3-venv)" >&2; exit 2; }
	@command -v git >/dev/null || { echo "make: git not found: install it (Debian, Ubuntu: apt install git)" >&2; exit 2; }
	@command -v c++ >/dev/null || command -v g++ >/dev/null || [ -n "$$CXX" ] || echo "make: no C++ compiler found: the slower reference kernel will run (Debian, Ubuntu: apt install g++)" >&2
