# Everything a person or a machine runs, by one name each. `make` alone lists it.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup venv map map-test demo unit test test-real soak lint bench plot-rtt plot-placer plot-scale proto proto-check openapi openapi-check constraints docs docs-assets docs-reference man dist packages manifests images kube-assets lab-assets real-parts bench-nodes e2e-volcano

BIN := .venv/bin
# Containers like to set this. Without bytecode each of the thousands of processes that the tests start would
# compile its modules anew.
unexport PYTHONDONTWRITEBYTECODE
# A file's tests stay on one worker; files start in the order of their collection (`tests/conftest.py`).
PYTEST := $(BIN)/pytest --dist loadfile --no-loadscope-reorder --durations=30
NARROW := -n auto --maxprocesses=8
# Integration and real tests wait for processes more than they compute, so there are more workers than cores.
WIDE := -n $(shell echo $$((2 * $$(nproc)))) --maxprocesses=8
# `$(call step,name,command)`: say what runs and how long it took.
step = @printf '== %s\n' '$(1)'; TIMEFORMAT='== $(1): %R s'; time { $(2); }

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup:  ## make .venv, and (as root) install the Debian packages that some tests use
	@bash .ci/setup all

venv:  ## the Python part of setup alone
	@bash .ci/setup python

map: venv  ## build the map that the collector serves at / (Node.js and npm; once for each state of its sources)
	@$(BIN)/python collector/map/build.py

map-test: venv  ## check the types of the map's sources, and run its tests
	$(call step,map-test,$(BIN)/python collector/map/build.py --test)

# `DEMO_STAY=1 make demo` keeps it running.
# The map is optional. If npm is missing, has no network or takes too long, the demo runs without the map and prints why.
demo: venv  ## a simulated cluster through the real path, a cut cable, a dead switch; KUBE=1: and a real API server
	@HYPERSCOUT_REQUIRE_REAL= timeout 60 $(BIN)/python collector/map/build.py --if-possible || printf '== no map (see above)\n'
	@$(if $(filter-out 0,$(KUBE)),$(BIN)/python tests/kube/run.py -- sh -c 'exec $(BIN)/hyperscout demo --kubeconfig "$$KUBECONFIG"',$(BIN)/hyperscout demo)

kube-assets: venv  ## the programs of a Kubernetes for tests, built with Go into ~/.cache (ten minutes, once)
	@$(BIN)/python tests/kube/assets.py

lab-assets: kube-assets  ## likewise, and what a cluster of real nodes on this machine needs besides (tests/lab)
	@$(BIN)/python tests/lab assets

unit: venv  ## the unit tests alone: no root, no process, no socket (a minute)
	$(call step,unit tests,$(BIN)/python tests/run_unit.py --durations=30 -m "not slow")

test: setup lint proto-check openapi-check unit  ## setup, lint, stubs, unit and integration tests (ten minutes; root for all of it)
	$(call step,integration tests,$(PYTEST) $(WIDE) tests/integration -m "not slow")

# The programs that the real tests need. Where one cannot be built, the tests that need it are skipped.
real-parts: setup
	@$(BIN)/python tests/kube/assets.py || printf '== no Kubernetes to test on (see above)\n'
	@$(BIN)/python tests/lab assets || printf '== no real nodes to test on (see above)\n'
	@$(BIN)/python collector/map/build.py --if-possible
	@$(BIN)/python deploy/images.py || printf '== no images to test (see above)\n'

test-real: real-parts  ## Kubernetes, kubelets, images, browser, Prometheus; properties in depth (a quarter of an hour; root)
	$(call step,map-test,$(BIN)/python collector/map/build.py --test --if-possible)
	$(call step,real tests and properties in depth,$(BESIDE_LAB))

# There is one lab at a time, so its tests have a process of their own beside the workers of the others.
REAL = -m "real or slow or hypothesis" --hypothesis-profile=thorough
define BESIDE_LAB
  status=0; log=$$(mktemp); $(PYTEST) -n 0 tests/real/nodes $(REAL) > $$log 2>&1 & lab=$$!; \
  $(PYTEST) $(WIDE) tests/real tests/unit tests/integration --ignore=tests/real/nodes $(REAL) || status=1; \
  wait $$lab || status=1; cat $$log; rm $$log; test $$status = 0
endef

soak: MINUTES ?= 60
soak: SOAK = -o faulthandler_timeout=$$(($(MINUTES) * 60 + 1800))
soak: real-parts  ## random kills and chaos for MINUTES=60, then fuzzing, with fresh seeds
	$(call step,faults on real nodes,HYPERSCOUT_SOAK_MIN=$(MINUTES) $(PYTEST) $(SOAK) -n 0 -s tests/real/nodes -m soak)
	$(call step,long runs,HYPERSCOUT_SOAK_MIN=$(MINUTES) $(PYTEST) $(SOAK) $(WIDE) tests/integration tests/real -m soak --ignore=tests/real/nodes)
	$(call step,fuzzing,HYPERSCOUT_FUZZ=$$(($(MINUTES) * 50)) $(PYTEST) $(NARROW) tests/unit -m hypothesis)

bench-nodes: setup lab-assets images  ## a cable pulled 50 times, and an agent at rest, on six real kubelets; root
	$(call step,bench-nodes,$(BIN)/python tests/bench nodes)

# Its programs are in no package registry, so nothing here fetches or builds them.
e2e-volcano: venv  ## Volcano's own scheduler on discovered HyperNodes; VOLCANO_BIN=folder has it (docs/volcano.md)
	@if test -z "$(VOLCANO_BIN)"; then \
	  printf '== e2e-volcano: SKIPPED. Set VOLCANO_BIN to a folder with vc-scheduler and vc-controller-manager; docs/volcano.md\n'; \
	else \
	  $(BIN)/python tests/kube/assets.py && HYPERSCOUT_REQUIRE_REAL=1 $(BIN)/pytest tests/real/kubernetes/test_volcano.py -p no:xdist -s; \
	fi

lint: venv  ## ruff, mypy strict, the layers, the wording
	$(call step,ruff check,$(BIN)/ruff check)
	$(call step,ruff format,$(BIN)/ruff format --check)
	$(call step,mypy,$(BIN)/mypy)
	$(call step,layers,$(BIN)/lint-imports)
	$(call step,wording,$(BIN)/python tests/lint_words.py)

bench: venv  ## measure against the budgets (minutes; never part of the tests)
	@$(BIN)/python tests/bench

plot-rtt: venv  ## draw round trips by tier, measured between network namespaces (root; a minute)
	@$(BIN)/python tests/bench/plot_rtt.py

plot-placer: venv  ## draw how the time of a placement grows with the cluster (some minutes)
	@$(BIN)/python tests/bench/plot_placer.py

plot-scale: venv  ## draw how memory, restart and the cost of a change grow with the agents (half an hour)
	@$(BIN)/python tests/bench/plot_scale.py

proto: venv  ## write the stubs anew from proto/hyperscout/v1/*.proto
	@$(BIN)/python proto/generate.py

proto-check: venv  ## fail when the committed stubs are stale
	$(call step,stubs,$(BIN)/python proto/generate.py --check)

docs:  ## the documentation as a static site with search, into build/site (makes .venv first, then one for the site: minutes the first time)
	@bash .ci/setup site
	@PYTHONPATH= NO_MKDOCS_2_WARNING=1 "$$(bash .ci/setup site-python)" -m mkdocs build --quiet --strict -f deploy/site/mkdocs.yml
	@printf '== build/site/index.html\n'

docs-assets: docs-reference man  ## write reference, man, examples/, the outputs in the pages, and with a browser the screenshots
	@$(BIN)/python deploy/examples.py
	@$(BIN)/python deploy/console.py
	@if $(BIN)/python tests/kube/assets.py --where >/dev/null; then \
	  $(BIN)/python tests/kube/run.py -- $(BIN)/python deploy/console.py --kubernetes; \
	else printf '== the outputs of kubectl in the pages stay as they are: they need `make kube-assets`\n'; fi
	@HYPERSCOUT_WRITE_SCREENSHOTS=1 $(BIN)/pytest -q -n 0 tests/real/test_map.py -k looks_as_the_docs || \
	  { status=$$?; ((status == 5)) && printf '== the screenshots stay as they are (see above)\n' || exit $$status; }

docs-reference: venv  ## write docs/reference anew: settings, metrics, commands and REST operations, from the code
	@$(BIN)/python deploy/reference.py

man: venv  ## write deploy/share anew: manual pages and completion scripts (man -l deploy/share/man/man1/hyperscout.1)
	@$(BIN)/python deploy/share.py

dist: map man  ## the wheel and the source archive, with the map, manual pages and completion scripts, into dist/
	@rm -rf dist && $(BIN)/python -m hatchling build -d dist

packages: dist  ## Debian packages of agent and collector for clusters without Kubernetes, into dist/ (Debian; docs/install.md)
	@$(BIN)/python deploy/packages.py dist

manifests: venv  ## render deploy/: the plain manifest, the chart's schema, what the images install (needs helm)
	@$(BIN)/python deploy/render.py

images: venv  ## build the agent's and the collector's image (buildah, docker or podman) into ~/.cache
	@$(BIN)/python collector/map/build.py --if-possible
	@$(BIN)/python deploy/images.py

openapi: venv  ## write REST's OpenAPI document anew from proto/ and the table of its operations
	@$(BIN)/python proto/openapi.py

openapi-check: venv  ## fail when the committed document is stale
	$(call step,openapi,$(BIN)/python proto/openapi.py --check)

constraints:  ## lock the newest allowed versions, with hashes, into constraints.txt (fetches uv into a throw-away venv)
	@bash .ci/setup lock
