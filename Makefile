# What one types in this repository. `make help` lists it.

.DELETE_ON_ERROR:
.SUFFIXES:
MAKEFLAGS += --no-builtin-rules
SHELL := /bin/sh
# Images for containers often set it. The tests start hundreds of Pythons, which would all compile.
unexport PYTHONDONTWRITEBYTECODE

# The interpreter that the environment is made with: PYTHON=… chooses, otherwise the first of
# these that runs, is a Python from 3.11 to 3.13, and can make virtual environments.
CANDIDATES := $(if $(PYTHON),$(PYTHON),python3.13 python3.12 python3.11 python3 python)

VENV := .venv
BIN := $(VENV)/bin
# PEP 517: older versions of pip would run the setup.py of PySpark in the environment itself.
PIP := PIP_USE_PEP517=1 $(BIN)/python -m pip install --quiet --disable-pip-version-check
# Installs in a third of the time, and shares files between environments.
UV := $(BIN)/uv pip install --quiet --native-tls --compile-bytecode --python $(BIN)/python
STAMP := $(VENV)/made-from-lock
NBVAL_CFG := $(wildcard notebooks/nbval.cfg)
PYTEST_ARGS ?=
LAB_ARGS ?=
CONFORMANCE_ARGS ?=
RECORDED_ARGS ?=
# Where `make lab` keeps the copies of the notebooks that one works on. Ignored by git.
LAB_FOLDER ?= my-notebooks
# How many processes `make test` spreads the tests over; each has a Spark of its own (2 GB). One more
# than most machines of CI have cores: what kills and waits needs none.
WORKERS ?= 3

.PHONY: help
help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(firstword $(MAKEFILE_LIST)) | \
	  awk -F'|' '{ printf "%-14s %s\n", $$1, $$2 }'
	@echo "Variables: PYTHON=… (interpreter for .venv), PYTEST_ARGS=…, LAB_ARGS=…, LAB_FOLDER=… (for lab), PAIMON_SOURCE=…, CONFORMANCE_ARGS=… (for conformance), RECORDED_ARGS=… (for recorded), WORKERS=… (for test), UPGRADE=1 (for lock), SEEDS=… and BASE=… (for simulate)"

.PHONY: env
env: $(STAMP)  ## make .venv from requirements.lock; does nothing when it is up to date

# Shell text that leaves the interpreter's path in $python, or says what is missing and ends.
define FIND_PYTHON
python=; \
for candidate in $(CANDIDATES); do \
  if "$$candidate" -c 'import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' >/dev/null 2>&1; then \
    python=$$(command -v "$$candidate"); break; \
  fi; \
done; \
if [ -z "$$python" ]; then { \
  echo "No Python from 3.11 to 3.13 that can make virtual environments was found."; \
  echo "Tried: $(strip $(CANDIDATES))."; \
  echo "On Debian and Ubuntu: apt-get install python3 python3-venv"; \
  echo "Or name one: make env PYTHON=/path/to/python3.12"; \
  } >&2; exit 1; fi
endef

# A virtual environment holds absolute paths. The stamp says where it was made: one that was moved
# here, or whose interpreter went away, is made anew.
ifneq ($(shell test -x $(BIN)/python && cat $(STAMP) 2>/dev/null),$(CURDIR))
$(STAMP): FORCE
endif
FORCE:

$(STAMP): requirements.lock pyproject.toml
	@set -e; \
	if ! test -x $(BIN)/python || test "$$(cat $@ 2>/dev/null)" != "$(CURDIR)"; then \
	  $(FIND_PYTHON); \
	  echo "Making $(VENV) with $$("$$python" --version) ($$python)"; \
	  rm -rf $(VENV); \
	  "$$python" -m venv $(VENV); \
	fi
	@echo "Installing requirements.lock (the first time this downloads about 1 GB)"
	@sed -n '/^uv==/,/[^\\]$$/p' requirements.lock > $(VENV)/uv.txt
	@$(PIP) --require-hashes -r $(VENV)/uv.txt
	@index=$${PIP_INDEX_URL:-$$($(BIN)/python -m pip config get global.index-url 2>/dev/null)}; \
	UV_DEFAULT_INDEX=$${UV_DEFAULT_INDEX:-$$index} $(UV) --require-hashes -r requirements.lock || { \
	  echo "uv can't; pip, which takes longer, may have other settings for indexes and proxies"; \
	  $(PIP) --require-hashes -r requirements.lock; \
	}
	@$(PIP) --no-deps --no-build-isolation --editable .
	@echo "$(CURDIR)" > $@
	@echo "$(VENV) is ready"

.PHONY: python
python:  ## print the interpreter that `make env` would make .venv with
	@$(FIND_PYTHON); echo "$$python"

# Lab asks no host for news or newer versions, and nobody whether it may.
QUIET_LAB := {"@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": false}}

# A default of ours, where LAB_ARGS doesn't say otherwise: of two values JupyterLab takes neither.
lab_default = $(if $(filter $(addsuffix =%,$(1)) $(1),$(LAB_ARGS)),,$(2))

.PHONY: lab
lab: $(STAMP)  ## open copies of the notebooks in JupyterLab, on this machine only
	@rm -rf $(VENV)/share/jupyter/labextensions/paimon-magics
	@cp -r labextension $(VENV)/share/jupyter/labextensions/paimon-magics
	@mkdir -p $(LAB_FOLDER)
	@set -e; for notebook in notebooks/*.ipynb; do \
	  copy="$(LAB_FOLDER)/$$(basename "$$notebook")"; test -e "$$copy" || cp "$$notebook" "$$copy"; \
	done
	@mkdir -p $(VENV)/etc/jupyter/labconfig
	@echo '$(QUIET_LAB)' > $(VENV)/etc/jupyter/labconfig/default_setting_overrides.json
	@$(BIN)/python -m jupyter lab $$(test "$$(id -u)" != 0 || echo --allow-root) \
	  $(call lab_default,--ServerApp.ip --ip,--ServerApp.ip=127.0.0.1) \
	  $(call lab_default,--ServerApp.root_dir --ServerApp.notebook_dir --notebook-dir,--ServerApp.root_dir="$(LAB_FOLDER)") \
	  $(LAB_ARGS)

.PHONY: check
check: $(STAMP)  ## style, types and the ladder of imports: seconds
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

# Processes take whole files, in the order of tests/durations.json: the dearest first. One that died
# gets no successor, which would begin with the test that the first has died in.
SPREAD := -n $(WORKERS) --dist loadfile --no-loadscope-reorder --max-worker-restart=0
# pytest-timeout ends a test by a signal, which a library's own code may never look at. Some minutes
# later Python itself shows where all threads are and ends the process.
BOUNDED := -o faulthandler_timeout=720 -o faulthandler_exit_on_timeout=true

# What the tests' JVMs map in place of loading it: tests/backends/jvm.py says how it is made.
CLASSES := build/spark-classes.jsa
$(CLASSES): $(STAMP) tests/backends/jvm.py
	@$(BIN)/python -m tests.backends.jvm

.PHONY: test
test: $(STAMP)  ## check, and the tests and notebooks: of files that take long, one lot in eight
	@$(MAKE) --no-print-directory --jobs=2 check tests LOT=--lot

.PHONY: test-all
test-all: $(STAMP)  ## check, every test and every notebook: an hour on two cores
	@$(MAKE) --no-print-directory --jobs=2 check tests

# mypy takes a minute in a clean clone, and one core: that much of the tests is done by then.
.PHONY: tests
tests: $(CLASSES)
	@$(BIN)/python -m pytest $(LOT) $(SPREAD) $(BOUNDED) --slowest-files=10 \
	  --nbval --nbval-current-env --nbval-cell-timeout=600 \
	  $(if $(NBVAL_CFG),--nbval-sanitize-with $(NBVAL_CFG)) $(wildcard tests notebooks) $(PYTEST_ARGS)

.PHONY: test-fast
test-fast: $(STAMP)  ## the tests that start no Spark and no other process
	@$(BIN)/python -m pytest $(SPREAD) --fast -p no:nbval -q tests $(PYTEST_ARGS)

.PHONY: durations
durations:  ## make test-all, and write what each file took into tests/durations.json
	@$(MAKE) --no-print-directory test-all PYTEST_ARGS="--write-durations $(PYTEST_ARGS)"

# A real S3 server, in a folder of its own, for the long runs: built where there is Go.
MINIO := build/minio/bin/minio
$(MINIO):
	@GOPATH=$(CURDIR)/build/minio GOBIN=$(CURDIR)/build/minio/bin GOFLAGS=-modcacherw \
	  go install github.com/minio/minio@latest

# An emulator of Google Cloud Storage, likewise.
FAKE_GCS := build/fake-gcs-server/bin/fake-gcs-server
$(FAKE_GCS):
	@GOPATH=$(CURDIR)/build/fake-gcs-server GOBIN=$(CURDIR)/build/fake-gcs-server/bin \
	  GOFLAGS=-modcacherw go install github.com/fsouza/fake-gcs-server@latest

# A server that cuts and slows connections, likewise.
TOXIPROXY := build/toxiproxy/bin/server
$(TOXIPROXY):
	@GOPATH=$(CURDIR)/build/toxiproxy GOBIN=$(CURDIR)/build/toxiproxy/bin GOFLAGS=-modcacherw \
	  go install github.com/Shopify/toxiproxy/v2/cmd/server@latest

.PHONY: soak
soak: $(STAMP)  ## what takes long: every crash, long races of writers, on S3 too (MinIO where there is Go)
	@! command -v go >/dev/null || $(MAKE) --no-print-directory $(FAKE_GCS) $(TOXIPROXY)
	@$(BIN)/python -m pytest -m soak tests $(PYTEST_ARGS)
	@PAIMON_MAGICS_TEST_SOAK=1 $(BIN)/python -m pytest tests/faults/test_commits_on_s3.py \
	  tests/faults/test_commits_in_clouds.py -k append -m "soak or not soak"
	@PAIMON_MAGICS_EXAMPLES=100 $(BIN)/python -m pytest --timeout=0 tests/oracle/test_filters_in_java.py \
	  tests/oracle/test_file_indexes_in_java.py
	@PAIMON_MAGICS_EXAMPLES=300 $(BIN)/python -m pytest --timeout=0 tests/columnar/test_compaction.py
	@! command -v go >/dev/null || $(MAKE) --no-print-directory soak-minio

.PHONY: soak-minio
soak-minio: $(STAMP) $(MINIO)
	@set -e; folder=$$(mktemp -d); \
	MINIO_ROOT_USER=minio-user MINIO_ROOT_PASSWORD=minio-password \
	  $(MINIO) server --quiet --address 127.0.0.1:9123 --console-address 127.0.0.1:9124 "$$folder" & \
	server=$$!; trap 'kill $$server; rm -rf "$$folder"' EXIT; sleep 5; \
	PAIMON_MAGICS_TEST_S3='{"endpoint": "http://127.0.0.1:9123", "key": "minio-user", "secret": "minio-password"}' \
	  PAIMON_MAGICS_TEST_SOAK=1 $(BIN)/python -m pytest tests/faults/test_commits_on_s3.py \
	  tests/faults/test_mixed_writers.py -m "soak or not soak" -k "append and not disk or S3"

.PHONY: fuzz
fuzz: $(STAMP)  ## send every endpoint of the coordinator hundreds of requests made from its OpenAPI document
	@PAIMON_MAGICS_EXAMPLES=300 $(BIN)/python -m pytest --timeout=0 tests/coordinator/routes/test_openapi.py $(PYTEST_ARGS)

# It asks the public database of known faults, which CI can't reach.
.PHONY: audit
audit: $(STAMP)  ## look the locked packages up among those with known faults; needs the network
	@$(BIN)/uv tool run pip-audit --strict --disable-pip --require-hashes --requirement requirements.lock

# Seeds from a random base, so that each call looks at others; BASE repeats one.
SEEDS ?= 100000
BASE ?= $(shell od -An -N3 -tu4 /dev/urandom | tr -d ' ')
.PHONY: simulate
simulate: $(STAMP)  ## run the coordinator SEEDS times on simulated disks, networks and clocks
	@echo "seeds $(BASE)..$$(($(BASE) + $(SEEDS)))"
	@$(BIN)/python -m tests.simulation --seeds $(BASE)..$$(($(BASE) + $(SEEDS))) --processes 2

# The jar of Paimon's Spark connector, and a Python with the PySpark that it was made for.
CONNECTOR ?=
CONNECTOR_PYTHON ?= python3
.PHONY: conformance-connector
conformance-connector: $(STAMP)  ## compare the coordinator with a file system, as Paimon's Spark connector sees them; CONNECTOR=jar
	@test -n "$(CONNECTOR)" || { echo "Name the connector: make $@ CONNECTOR=…/paimon-spark-….jar CONNECTOR_PYTHON=…" >&2; exit 1; }
	@$(CONNECTOR_PYTHON) tests/conformance/connector.py --connector "$(CONNECTOR)" --python $(BIN)/python

# A checkout of Paimon, whose tests `make conformance` runs: fetched where none is given.
PAIMON_SOURCE ?= build/conformance/paimon
build/conformance/paimon:
	@git -c advice.detachedHead=false clone --quiet --depth 1 --branch release-2.0.0 https://github.com/apache/paimon.git $@

.PHONY: conformance
conformance: $(STAMP) | $(PAIMON_SOURCE)  ## Paimon's own tests of a REST catalog, against ours; needs a JDK and git
	@$(BIN)/python -m tests.conformance --source $(PAIMON_SOURCE) --build build/conformance $(CONFORMANCE_ARGS)

# Where `make peer-tests` clones Paimon's source from.
PAIMON_REPOSITORY ?= https://github.com/apache/paimon
PEER_ARGS ?=

.PHONY: peer-tests
peer-tests: $(STAMP)  ## the SQL of the connector's own tests, on the connector and on us; CONNECTOR=jar
	@test -n "$(CONNECTOR)" || { echo "Name the connector: make $@ CONNECTOR=…/paimon-spark-….jar CONNECTOR_PYTHON=…" >&2; exit 1; }
	@$(BIN)/python -m tests.peer --repository "$(PAIMON_REPOSITORY)" --build build/peer \
	  --connector "$(CONNECTOR)" --connector-python "$(CONNECTOR_PYTHON)" $(PEER_ARGS)

.PHONY: bench
bench: $(STAMP)  ## measure every speed that the documentation claims
	@set -e; for benchmark in $(sort $(wildcard benchmarks/bench_*.py)); do \
	  echo "== $$benchmark"; $(BIN)/python "$$benchmark"; \
	done

.PHONY: recorded
recorded: $(STAMP)  ## compare all recorded scenarios with what Paimon's Spark connector did: minutes
	@$(BIN)/python -m tests.recorded $(RECORDED_ARGS)

.PHONY: gallery
gallery: $(STAMP)  ## make the pictures of docs/gallery.md anew; needs Chromium
	@PYTHONPATH=.:widgets $(BIN)/python -m tests.browser.gallery

.PHONY: lock
lock: $(STAMP)  ## compile requirements.lock from pyproject.toml; UPGRADE=1 takes newer versions
	@env -u UV_INDEX_URL -u UV_EXTRA_INDEX_URL -u UV_INDEX -u UV_DEFAULT_INDEX -u UV_FIND_LINKS \
	  $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --all-extras --generate-hashes \
	  --no-emit-index-url --no-emit-find-links --no-emit-build-options \
	  --custom-compile-command "make lock" $(if $(UPGRADE),--upgrade) \
	  --output-file requirements.lock pyproject.toml
	@! grep -n '://' requirements.lock || { echo "requirements.lock must hold no address" >&2; exit 1; }

.PHONY: wheel
wheel: $(STAMP)  ## build dist/paimon_magics-*.whl
	@rm -rf dist
	@$(BIN)/python -m build --wheel --no-isolation --outdir dist .
	@ls dist/*.whl

.PHONY: clean
clean:  ## remove .venv and everything that was built or cached
	@rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
