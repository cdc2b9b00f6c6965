# The two commands: `make demo` (the main job) and `make test`. Each sets itself up in .venv first; a second call skips that.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
HF     := .venv-hf
GPU    := .venv-gpu
SHELL  := /bin/bash
# What the model in the box parses at the end of the demo.
ENGLISH := "The cat that the dogs chased was tired." "She said that the old house by the river had been sold." \
	"Most of the people in the room knew him."

.PHONY: demo test test-hf test-lowest test-browser test-gpu test-gpu-kernels hostile fuzz install check bench docs dist clean tools
.DEFAULT_GOAL := install

demo: $(STAMP)
	@$(BIN)/onlstm demo
	@if [ -d src/onlstm/models/en ]; then echo; $(BIN)/onlstm parse --format tree $(ENGLISH); fi

# Threads that wait leave the cores to the tests beside them.
test: $(STAMP)
	@CUDA_VISIBLE_DEVICES= OMP_WAIT_POLICY=passive $(BIN)/pytest -n 2 --dist worksteal -m "not slow and not gpu and not browser"

# The adapters: Hugging Face, with transformers' own tests if ../shared/peers has them, spaCy and Ray; in an environment
# of its own.
test-hf: $(HF)/.installed
	@$(HF)/bin/pytest tests/adapters

# The GPU's kernel without a GPU, in an environment with Triton: in its interpreter, and compiled for four processors.
test-gpu-kernels: $(GPU)/.installed
	@TRITON_INTERPRET=1 $(GPU)/bin/pytest -n 2 --dist worksteal -k triton tests/kernels tests/test_golden.py
	@$(GPU)/bin/pytest -m "not gpu" tests/kernels/test_triton.py

# On a machine that has a GPU, and a torch for it.
test-gpu: $(GPU)/.installed
	@CUBLAS_WORKSPACE_CONFIG=:4096:8 $(GPU)/bin/pytest -m gpu

# With the lowest versions that pyproject.toml promises, in an environment of its own; all else as pinned.
LOWEST := .venv-lowest
test-lowest: $(LOWEST)/.installed
	@$(LOWEST)/bin/pytest -m "not slow and not gpu and not browser" tests/text tests/parser tests/lm tests/trees tests/layer tests/cli

# In a real browser, the system's Chromium (Debian: apt install chromium).
test-browser: $(VENV)/.browser
	@$(BIN)/pytest -m "browser and not slow" tests/playground

# Every kind of bad input, against the installed command (two minutes); `make test` runs a sample.
hostile: $(STAMP)
	@$(BIN)/pytest -n 2 --dist worksteal tests/hostile

# New examples for the readers of files, for as long as you like: make fuzz EXAMPLES=1000000
EXAMPLES ?= 20000
fuzz: $(STAMP)
	@ONLSTM_EXAMPLES=$(EXAMPLES) $(BIN)/pytest -n 2 tests/hostile/test_fuzz.py --hypothesis-profile fuzz

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

# What goes to PyPI, in dist/: the wheel and the source, checked.
dist: $(VENV)/.dist
	@rm -rf dist
	@PIP_CONSTRAINT=constraints.txt $(BIN)/python -m build --outdir dist . >/dev/null
	@$(BIN)/twine check --strict dist/*
	@ls -l dist

clean:
	rm -rf $(VENV) $(HF) $(GPU) $(LOWEST) build dist demo docs/_build .mypy_cache .ruff_cache .pytest_cache .hypothesis \
		.import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): pyproject.toml constraints.txt | tools
	@echo "Setting up $(VENV) (once; a few minutes)"
	@$(PYTHON) -m venv $(VENV)
	@PIP_CONSTRAINT=constraints.txt $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $@

$(VENV)/.docs: $(STAMP)
	@PIP_CONSTRAINT=constraints.txt $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev,docs]"
	@touch $@

$(VENV)/.dist: $(STAMP)
	@$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt build twine
	@touch $@

# transformers of the version of its tests, with what that version allows; all else as pinned.
$(HF)/.installed: pyproject.toml constraints.txt | tools
	@echo "Setting up $(HF) (once; a few minutes)"
	@$(PYTHON) -m venv $(HF)
	@grep -vE '^(huggingface-hub|tokenizers|transformers)==' constraints.txt > $(HF)/constraints.txt
	@PIP_CONSTRAINT=$(HF)/constraints.txt $(HF)/bin/pip install --quiet --disable-pip-version-check -c $(HF)/constraints.txt \
		-e ".[dev,hf-suite,spacy,ray]" transformers==5.15.1

$(LOWEST)/.installed: pyproject.toml constraints.txt constraints-lowest.txt | tools
	@echo "Setting up $(LOWEST) (once; a few minutes)"
	@$(PYTHON) -m venv $(LOWEST)
	@grep -viE '^(huggingface-hub|$(subst $() ,|,$(shell sed -n 's/==.*//p' constraints-lowest.txt)))==' constraints.txt \
		| cat - constraints-lowest.txt > $(LOWEST)/constraints.txt
	@PIP_CONSTRAINT=$(LOWEST)/constraints.txt $(LOWEST)/bin/pip install --quiet --disable-pip-version-check \
		-c $(LOWEST)/constraints.txt -e ".[dev]"
	@touch $@

$(GPU)/.installed: pyproject.toml constraints.txt | tools
	@echo "Setting up $(GPU) (once; a few minutes)"
	@$(PYTHON) -m venv $(GPU)
	@PIP_CONSTRAINT=constraints.txt $(GPU)/bin/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev,gpu]"
	@touch $@

$(VENV)/.browser: $(STAMP)
	@PIP_CONSTRAINT=constraints.txt $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev,browser]"
	@touch $@

# Only a warning for the C++ compiler: without it everything runs on the slower reference kernel.
tools:
	@command -v $(PYTHON) >/dev/null || { echo "make: $(PYTHON) not found: install Python 3.11 or newer, or name one: make PYTHON=python3.12 ..." >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "make: $(PYTHON) is older than 3.11: name a newer one: make PYTHON=python3.11 ..." >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "make: $(PYTHON) has no venv module: install it (Debian, Ubuntu: apt install python3-venv)" >&2; exit 2; }
	@command -v git >/dev/null || { echo "make: git not found: install it (Debian, Ubuntu: apt install git)" >&2; exit 2; }
	@command -v c++ >/dev/null || command -v g++ >/dev/null || [ -n "$$CXX" ] || echo "make: no C++ compiler found: the slower reference kernel will run (Debian, Ubuntu: apt install g++)" >&2
