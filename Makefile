# `make` alone lists the targets. Everything is made in .venv and build/; a second run rebuilds nothing.

# The first that runs: a shim on PATH may stand for a version that is not there.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do $$p -c $(FITS) 2>/dev/null && { command -v $$p; break; }; done)
FITS := 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))'
VENV := .venv
BIN := $(VENV)/bin
SPARK_HOME_CONF := $(BIN)/spark-distribution/conf/spark-defaults.conf
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input
LOGS ?= data/samples
LAKE ?= build/lake
ENGINE ?= auto
SAMPLE := build/sample
ROWS ?= 4000000
PARTITIONS ?=
GROUPS ?=
ROUNDS ?= 3
PAGE ?=

.DEFAULT_GOAL := help
.PHONY: help run check test test-all bench setup java chromium lint type kernels sample unit spark pythons witnesses study sql doctor lock docs wheel zip archive clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: setup ## replay the sample logs: which shrinks were spurious, Delta tables, report (LOGS=..., LAKE=..., ENGINE=spark)
	$(BIN)/isr-batch run --logs $(LOGS) --lake $(LAKE) --engine $(ENGINE)

check: $(VENV)/test.stamp ## style, layers, types, and the tests that need neither Spark nor compiled kernels
	$(MAKE) --no-print-directory --jobs=2 --output-sync lint type
	$(BIN)/python -m pytest -q --numprocesses=2 -m "not spark and not compiles and not long and not nightly"

# The two jobs that take minutes run on two cores; the type check fills the time that the shorter one leaves.
# Tests of Spark wait for disks and for the JVM half of the time: three processes keep two cores busy.
test: $(VENV)/test.stamp java ## style, layers, types, the main job on the sample logs, and all tests but the long ones
	$(MAKE) --no-print-directory --jobs=2 --output-sync lint sample kernels type
	rm -rf build/witnesses
	SAMPLE_LAKE=$(SAMPLE) $(BIN)/python -m pytest --numprocesses=3 --durations=0 --durations-min=10 -m "not long and not nightly"

test-all: $(VENV)/test.stamp java chromium ## after `make test`: the long tests (tests/conftest.py lists them), and what all have shown
	SAMPLE_LAKE=$(SAMPLE) $(BIN)/python -m pytest --numprocesses=3 --durations=0 --durations-min=10 -m "long and not nightly"
	$(BIN)/python -m docs.generate.witnesses

setup: $(VENV)/run.stamp $(SPARK_HOME_CONF) java ## make .venv from the lock, with Delta's jars and compiled kernels; and Java where Debian has none

$(BIN)/python:
	@python="$(PYTHON)"; [ -n "$$python" ] && "$$python" -c $(FITS) || \
		{ echo "Python 3.11, 3.12 or 3.13 is needed, and $${python:-what is on PATH} is another: make PYTHON=/path/to/python3.11"; exit 2; }; \
		"$$python" -m venv $(VENV)

# The stamps are younger than the lock that the environment was made from. Python compiles the modules that it imports.
$(VENV)/run.stamp: requirements/run.lock | $(BIN)/python java
	$(PIP) install --quiet --no-compile --require-hashes -r requirements/run.lock
	$(PIP) install --quiet --no-deps --no-build-isolation --editable .
	$(BIN)/python -m isr_batch.replay.kernel_cache & compiled=$$!; \
		$(BIN)/python -m isr_batch.session --fetch-jars && $(BIN)/python -m isr_batch.ingest.compile_ingest && wait $$compiled
	@touch $@

$(SPARK_HOME_CONF): isr_batch/spark_home.py | $(VENV)/run.stamp
	$(BIN)/python -m isr_batch.spark_home

$(VENV)/test.stamp: requirements/test.lock $(VENV)/run.stamp | $(SPARK_HOME_CONF)
	$(PIP) install --quiet --require-hashes -r requirements/test.lock
	$(BIN)/python -m isr_batch.jvm_archive
	@touch $@

java:
	@sh .ci/java

chromium:
	@sh .ci/chromium

lint: $(VENV)/test.stamp ## style and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache --no-logo

type: $(VENV)/test.stamp ## types
	$(BIN)/mypy

kernels: $(VENV)/test.stamp ## compile what all tests need, once
	$(BIN)/python -m pytest -q tests/unit/simulation/test_simulation.py -k "same_seed or kafka-3.7"

unit: $(VENV)/test.stamp ## the tests that need no Spark
	$(BIN)/python -m pytest -m "not spark and not nightly"

spark: $(VENV)/test.stamp ## the tests that need it
	$(BIN)/python -m pytest -m "spark and not nightly"

sample: $(VENV)/run.stamp
	rm -rf $(SAMPLE)
	$(BIN)/isr-batch run --logs data/samples --lake $(SAMPLE)

witnesses: $(VENV)/test.stamp ## write what the last `make test test-all` has shown into docs/witnesses.md, docs/stories.md, docs/confusion.md and docs/answers.md
	$(BIN)/python -m docs.generate.witnesses --write
	$(BIN)/python -m docs.generate.documents --write

pythons: java ## the wheel on the other Pythons of this machine: the main job, and a quick suite (PYTHONS=...)
	.ci/pythons $(PYTHONS)
PYTHONS ?= python3.12 python3.13

study: $(VENV)/run.stamp ## compare all rules on recorded and simulated clusters, into docs/study.md (STUDIED=DIR, SEEDS=...)
	rm -rf build/study
	$(BIN)/python -m docs.generate.study --seeds $(SEEDS) --logs $(STUDIED)
STUDIED ?= data/samples
SEEDS ?= 20

bench: $(VENV)/test.stamp ## measure, against what one would write instead, into docs/benchmarks.md; some GROUPS into build/benchmarks.md (ROWS=..., LINES=..., GROUPS=..., ROUNDS=..., STALLS=..., PAGE=...)
	$(BIN)/python -m benchmarks --rows $(ROWS) --rounds $(ROUNDS) $(if $(PARTITIONS),--partitions $(PARTITIONS)) $(if $(LINES),--lines $(LINES)) $(if $(GROUPS),--groups $(GROUPS)) $(if $(STALLS),--stalls $(STALLS)) $(if $(PAGE),--page $(PAGE))

doctor: setup ## say what is wrong with this machine
	$(BIN)/isr-batch doctor

docs: $(VENV)/docs.stamp ## build/site: the pages of docs/ with a search; broken links fail (python -m http.server -d build/site)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict

$(VENV)/docs.stamp: requirements/docs.lock | $(BIN)/python
	$(PIP) install --quiet --require-hashes -r requirements/docs.lock
	@touch $@

lock: ## resolve requirements/*.lock again, within pyproject.toml (needs uv)
	uv pip compile pyproject.toml --extra build --extra test $(LOCK) -o requirements/test.lock
	uv pip compile pyproject.toml --extra build $(LOCK) -c requirements/test.lock -o requirements/run.lock
	uv pip compile pyproject.toml --extra build --extra docs $(LOCK) -c requirements/test.lock -o requirements/docs.lock
LOCK := --quiet --python-version 3.11 --generate-hashes --no-annotate --no-header --no-emit-index-url --no-emit-find-links

zip: $(VENV)/run.stamp ## build/isr_batch.zip for spark-submit --py-files
	$(PIP) wheel --quiet --no-deps --no-build-isolation --wheel-dir build/wheel .
	mv build/wheel/isr_batch-*.whl build/isr_batch.zip

wheel: isr_batch/kernels ## build/wheel/*.whl, with machine code that any processor of this kind runs without compiling (ALSO="python3.12 python3.13")
	$(PIP) wheel --quiet --no-deps --no-build-isolation --wheel-dir build/wheel .

# Machine code fits only the minor version of Python that compiled it, so each further Python has a separate environment.
isr_batch/kernels: $(wildcard udfs/*.py udfs/*/*.py) | $(VENV)/run.stamp
	rm -rf build/kernels build/also $@
	set -e; for python in $(ALSO); do made=build/also/$$(basename $$python); $$python -m venv $$made; \
		$$made/bin/python -m pip --disable-pip-version-check --no-input install --quiet --require-hashes -r requirements/run.lock; done
	set -e; export NUMBA_CPU_NAME=generic NUMBA_CPU_FEATURES= NUMBA_CACHE_DIR=$(CURDIR)/build/kernels; \
		for python in $(BIN) $(patsubst %,build/also/%/bin,$(notdir $(ALSO))); do \
		$$python/python -m isr_batch.ingest.compile_ingest; $$python/python -m isr_batch.replay.kernel_cache; done
	mv build/kernels $@
ALSO ?=

archive: isr_batch/kernels ## build/packages.tar.gz for executors that have Python alone (docs/engines-and-sizes.md)
	mkdir -p build
	$(BIN)/python .ci/executor_files | tar -czf build/packages.tar.gz --exclude '*.pyc' \
		-C $(wildcard $(VENV)/lib/python3.*/site-packages) -T - -C $(CURDIR) isr_batch udfs

clean: ## remove .venv, build/ and caches
	rm -rf $(VENV) build isr_batch/kernels .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
