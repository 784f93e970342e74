# What one types in this repository. `make help` lists it. What takes more than a line is in tools/.

.DELETE_ON_ERROR:
.SUFFIXES:
MAKEFLAGS += --no-builtin-rules
SHELL := /bin/sh
# Images for containers often set it. The tests start hundreds of Pythons, which would all compile.
unexport PYTHONDONTWRITEBYTECODE
export PYTHON PYTEST_ARGS UPGRADE SEEDS BASE

.PHONY: help env python lab check test test-all tests test-fast durations soak audit conformance \
  peer-tests recorded bench gallery lock wheel clean

BIN := .venv/bin
STAMP := .venv/made-from-lock
LAB_FOLDER ?= my-notebooks
WORKERS ?= 3

help:  ## list the targets and their variables
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | \
	  awk -F'|' '{ printf "%-14s %s\n", $$1, $$2 }'

env: $(STAMP)  ## make .venv from requirements.lock, if it is not up to date; PYTHON=interpreter

# A virtual environment holds absolute paths: the stamp says where it was made.
ifneq ($(shell test -x $(BIN)/python && cat $(STAMP) 2>/dev/null),$(CURDIR))
$(STAMP): FORCE
endif
FORCE:
$(STAMP): requirements.lock pyproject.toml
	@tools/env

python:  ## print the interpreter that `make env` would make .venv with
	@tools/python

lab: $(STAMP)  ## open copies of the notebooks in JupyterLab; LAB_ARGS=…, LAB_FOLDER=… for the copies
	@tools/lab $(LAB_FOLDER) $(LAB_ARGS)

check: $(STAMP)  ## style, types and the ladder of imports: seconds
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

test: $(STAMP)  ## check, tests, notebooks: one lot in ten of long files; WORKERS=…, PYTEST_ARGS=…
	@$(MAKE) --no-print-directory --jobs=2 check tests LOT=--lot

test-all: $(STAMP)  ## check, every test and every notebook: an hour and a half on two cores
	@$(MAKE) --no-print-directory --jobs=2 check tests

# Each of WORKERS processes takes whole files, the dearest first, and has a Spark of its own (2 GB).
# There is one more than most machines of CI have cores: what kills and waits needs none. A process
# that died gets no successor, which would begin with the test that the first has died in.
# pytest-timeout ends a test by a signal, which a library's own code may never look at: some minutes
# later Python itself shows where all threads are and ends the process.
SPREAD := -n $(WORKERS) --dist loadfile --no-loadscope-reorder --max-worker-restart=0
BOUNDED := -o faulthandler_timeout=720 -o faulthandler_exit_on_timeout=true
NBVAL_CFG := $(wildcard notebooks/nbval.cfg)

# What the tests' JVMs map in place of loading it: tests/backends/jvm.py says how it is made.
CLASSES := build/spark-classes.jsa
$(CLASSES): $(STAMP) tests/backends/jvm.py
	@$(BIN)/python -m tests.backends.jvm

# mypy takes a minute in a clean clone, and one core: that much of the tests is done by then.
tests: $(CLASSES)
	@$(BIN)/python -m pytest $(LOT) $(SPREAD) $(BOUNDED) --slowest-files=10 \
	  --nbval --nbval-current-env --nbval-cell-timeout=600 \
	  $(if $(NBVAL_CFG),--nbval-sanitize-with $(NBVAL_CFG)) $(wildcard tests notebooks) $(PYTEST_ARGS)

test-fast: $(STAMP)  ## the tests that start no Spark and no other process
	@$(BIN)/python -m pytest $(SPREAD) --fast -p no:nbval -q tests $(PYTEST_ARGS)

durations:  ## make test-all, and write what each file took into tests/durations.json
	@$(MAKE) --no-print-directory test-all PYTEST_ARGS="--write-durations $(PYTEST_ARGS)"

soak: $(STAMP)  ## what takes hours; RUNS="crashes notebooks …", all of them in tools/soak
	@tools/soak $(RUNS)

# It asks the public database of known faults, which CI can't reach.
audit: $(STAMP)  ## look the locked packages up among those with known faults; needs the network
	@$(BIN)/uv tool run pip-audit --strict --disable-pip --require-hashes --requirement requirements.lock

conformance: $(STAMP)  ## Paimon's tests of a REST catalog on ours; CONFORMANCE_ARGS=…, a JDK, git
	@$(BIN)/python -m tests.conformance --build build/conformance $(CONFORMANCE_ARGS)

peer-tests: $(STAMP)  ## the SQL of the connector's tests, there and here; PEER_ARGS=--connector=jar …
	@$(BIN)/python -m tests.peer --build build/peer $(PEER_ARGS)

recorded: $(STAMP)  ## compare recorded scenarios of Paimon's Spark connector: minutes; RECORDED_ARGS=…
	@$(BIN)/python -m tests.recorded $(RECORDED_ARGS)

bench: $(STAMP)  ## measure every speed that the documentation claims; BENCH=capacity for one of them
	@for file in benchmarks/bench_$(or $(BENCH),*).py; do echo "== $$file"; $(BIN)/python "$$file" || exit 1; done

gallery: $(STAMP)  ## make the pictures of docs/gallery.md anew; needs Chromium
	@PYTHONPATH=.:widgets $(BIN)/python -m tests.browser.gallery

lock: $(STAMP)  ## compile requirements.lock from pyproject.toml; UPGRADE=1 takes newer versions
	@tools/lock

wheel: $(STAMP)  ## build dist/paimon_magics-*.whl
	@rm -rf dist
	@$(BIN)/python -m build --wheel --no-isolation --outdir dist .
	@ls dist/*.whl

clean:  ## remove .venv and everything that was built or cached
	@rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
