# `make help` lists every target. Everything runs inside .venv, which the first target makes.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# Modules that are compiled once are kept: the tests start hundreds of processes of them.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?=
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest -q
# Tests that compute get a worker per core; a worker whose tests start processes mostly waits for them,
# so there are twice as many of those (tests/integration/conftest.py tells who gets which test).
COMPUTE := -n $(shell nproc) --dist worksteal
WAIT := -n $(shell echo $$((2 * $$(nproc)))) --dist loadscope
TRIED := .pytest_cache/integration
# With SHARES=n an n-th is taken: drawn by the commit, so the same commit has the same one again.
PARTS = $(or $(SHARES),1)
SHARE = --shares $(PARTS) --turn $(TURN)
TURN = $(shell printf '%d' 0x$$(git rev-parse --short=8 HEAD 2>/dev/null || echo 0))
RUNS ?= 20

.PHONY: help
help: ## list the targets
	@awk 'BEGIN {FS = ":.*## "} \
	  /^## / {printf "\n%s\n", substr($$0, 4)} \
	  /^[a-z0-9-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2} \
	  END {print ""}' $(MAKEFILE_LIST)

## Try it
.PHONY: demo
demo: venv ## start a cluster, take its master away three times under load, verify its tier
	@$(BIN)/gantry demo

.PHONY: bench
bench: venv ## the client's write gap, RUNS times per kind of failure (default 20)
	@$(BIN)/python -m gantry_lab bench failover --runs $(RUNS)

.PHONY: bench-controller
bench-controller: venv ## a controller quorum's throughput and failures; writes build/bench/controller.jsonl
	@mkdir -p build/bench
	@$(BIN)/python -m gantry_lab bench controller --json > build/bench/controller.jsonl

.PHONY: bench-broker
bench-broker: venv ## a broker group's throughput and failures; writes build/bench/broker.jsonl (half an hour)
	@mkdir -p build/bench
	@$(BIN)/python -m gantry_lab bench broker --json > build/bench/broker.jsonl

.PHONY: bench-kills
bench-kills: venv ## a thousand masters killed; goes on where it was interrupted (a quarter of an hour)
	@mkdir -p build/bench
	@$(BIN)/python -m gantry_lab bench broker --json --label kills --case kills-1000 --rounds build/bench/kills.rounds > build/bench/kills.jsonl

.PHONY: bench-operator
bench-operator: venv ## what GROUPS groups (default 5,000) cost the operator: its restart, a changed key, standing still
	@mkdir -p build/bench
	@cd tests && PYTHONPATH=. $(abspath $(BIN))/python -m integration.operator.fleet --groups $(or $(GROUPS),5000) | tee ../build/bench/operator.jsonl

.PHONY: bench-java
bench-java: venv ## the same load on RocketMQ's Java controllers; writes build/bench/java.jsonl (needs Java, Maven)
	@mkdir -p build/bench
	@PYTHONPATH=tests $(BIN)/python tests/interop/java_controllers/compare.py > build/bench/java.jsonl

.PHONY: bench-java-broker
bench-java-broker: venv ## the same load on RocketMQ's Java brokers; writes build/bench/java-broker.jsonl (needs Java, Maven)
	@mkdir -p build/bench
	@PYTHONPATH=tests $(BIN)/python tests/interop/java_brokers/compare.py > build/bench/java-broker.jsonl

.PHONY: measure-fronts
measure-fronts: venv ## a Java client's write gap when a front or the master behind fronts ends, KILLS (default 50) each
	@mkdir -p build/bench
	@PYTHONPATH=tests $(BIN)/python -m gantry_lab.measure.fronts --kills $(or $(KILLS),50) | tee build/bench/fronts.jsonl

.PHONY: measure-grpc
measure-grpc: venv ## a Java gRPC client at our proxy and at rocketmq-proxy, ROUNDS (default 5) each, then KILLS (default 100)
	@mkdir -p build/bench
	@PYTHONPATH=tests $(BIN)/python -m gantry_lab.measure.grpc_proxies --rounds $(or $(ROUNDS),5) --kills $(or $(KILLS),100) | tee build/bench/grpc.jsonl

.PHONY: measure-growth
measure-growth: venv ## two broker groups become four and then one, under Java clients: moves, write gaps, losses
	@mkdir -p build/bench
	@PYTHONPATH=tests $(BIN)/python -m gantry_lab.measure.growth | tee build/bench/growth.jsonl

.PHONY: measure-away
measure-away: venv ## how long changes take to settle once an operator is back that left in the middle, LAPS (default 4) each
	@mkdir -p build/bench
	@PYTHONPATH=tests $(BIN)/python -m gantry_lab.measure.away $(LAPS) | tee build/bench/away.jsonl

.PHONY: measure-groups
measure-groups: venv ## what GROUPS groups (default 300) in three processes cost: idle CPU, failover, hand-over
	@mkdir -p build/bench
	@PYTHONPATH=tests $(BIN)/python -m gantry_lab.measure.groups $(or $(GROUPS),300) | tee build/bench/groups.jsonl

.PHONY: measure-queues
measure-queues: venv ## what QUEUES queues (default a million) cost the message store by itself
	@mkdir -p build/bench
	@$(BIN)/python -m gantry_lab.measure.queues $(QUEUES) | tee build/bench/queues.jsonl

.PHONY: measure-lites
measure-lites: venv ## what TOPICS lite topics (default a million) cost a broker group, and killed masters under their consumers
	@mkdir -p build/bench
	@$(BIN)/python -m gantry_lab.measure.lites $(TOPICS) | tee build/bench/lites.jsonl

.PHONY: measure-filters
measure-filters: venv ## records per second that a filter in SQL is asked about
	@mkdir -p build/bench
	@$(BIN)/python -m gantry_lab.measure.filters | tee build/bench/filters.jsonl

.PHONY: attacks
attacks: venv ## what a producer and a consumer keep of their rate beside each of 32 attacks (twenty minutes)
	@mkdir -p build/bench
	@$(BIN)/python -m gantry_lab.measure.attacks | tee build/bench/attacks.jsonl

.PHONY: profile-broker
profile-broker: venv ## which part of a broker takes its time, by CASES of the benchmark (needs py-spy)
	@mkdir -p build/bench
	@$(BIN)/python -m gantry_lab.measure.profile $(CASES) | tee build/bench/profile.jsonl

.PHONY: performance
performance: venv ## put the figures of the last bench-…, measure-… and profile-… into docs/performance.md
	@$(BIN)/python -m gantry_lab.bench.page docs/performance.md $(filter-out %/attacks.jsonl,$(wildcard build/bench/*.jsonl))

.PHONY: measure-queue-maps
measure-queue-maps: venv ## what the maps of QUEUES queues (default a million) cost controllers
	@mkdir -p build/bench
	@$(BIN)/python -m gantry_lab.measure.queue_maps $(QUEUES) | tee build/bench/queue-maps.jsonl

## On a real cluster
.PHONY: api-binaries
api-binaries: ## etcd, kube-apiserver and kube-controller-manager for `gantry local up --api real` (Go; minutes), of VERSION if it is said; prints their directory
	@e2e/cluster/binaries.sh api $(VERSION)

.PHONY: cluster-up
cluster-up: ## a kind cluster on this machine, with Docker and node image if they are missing
	@e2e/cluster/up.sh

.PHONY: demo-kind
demo-kind: venv ## the demonstration on that cluster: Helm, a killed master, a hand-over, the account
	@e2e/demo.sh

.PHONY: cluster-down
cluster-down: ## remove that cluster; built images stay in the cache
	@e2e/cluster/down.sh

.PHONY: image
image: ## build the image gantry:dev, and load it into the cluster if one runs
	@e2e/cluster/image.sh

.PHONY: image-pipeline
image-pipeline: ## build the image gantry-pipeline:dev (Spark and Java), and load it likewise
	@e2e/cluster/pipeline-image.sh

.PHONY: e2e
e2e: venv ## Helm, failures and their gaps, seen from pods outside the group; writes build/e2e/report.md; SHARES=n an n-th of the files
	@e2e/run.sh $$(ls e2e/test_*.py | awk 'NR % $(PARTS) == $(TURN) % $(PARTS)')

.PHONY: e2e-load
e2e-load: venv ## load ×10 and back with an autoscaler, 15 minutes; writes build/load/, a picture among it
	@e2e/load.sh

.PHONY: e2e-fleet
e2e-fleet: venv ## helm upgrade of GROUPS groups (default 20) to a new image under load, 20 minutes; writes build/fleet/
	@e2e/fleet.sh --groups $(or $(GROUPS),20)

.PHONY: e2e-upgrade
e2e-upgrade: venv ## helm upgrade from version FROM (default: newest tag v*) and back under load, 15 minutes; writes build/upgrade/
	@FROM=$(FROM) e2e/upgrade.sh

.PHONY: chaos
chaos: venv ## every scenario on that cluster, each fault proved, all judged; writes build/chaos/report.html
	@e2e/chaos.sh $(SCENARIOS)

.PHONY: readme
readme: venv ## put the figures of the last make e2e into the README
	@$(BIN)/python e2e/readme.py

## Work on it
.PHONY: venv
venv: ## make .venv, or bring it up to date
	@PYTHON=$(PYTHON) .ci/venv

.PHONY: check
check: venv ## everything that needs no running code
	@$(MAKE) --jobs=$(shell nproc) --output-sync=target types layout lint imports generated

# Integration tests wait for a third of their time, and must not be kept waiting themselves: the
# simulator computes beside them, with what they leave of the processors.
.PHONY: test
test: venv unit ## unit tests, and a twentieth of simulator and integration tests; SHARES=n an n-th, SHARES=1 all (half an hour)
	@$(MAKE) --jobs=2 --output-sync=target SHARES=$(or $(SHARES),20) RANK="nice -n 19" sim integration

.PHONY: sim-coverage
sim-coverage: venv ## which lines of controllers, brokers and operator the simulator reaches (minutes)
	@cd tests && ../$(BIN)/python -m sim.reach $(SEEDS)

.PHONY: unit
unit: venv ## unit tests
	@$(PYTEST) $(COMPUTE) tests/unit

.PHONY: sim
sim: venv ## seeded simulation of controllers, replicas, network and disks; SHARES=n an n-th
	@$(RANK) $(PYTEST) $(COMPUTE) tests/sim $(SHARE)

.PHONY: seeds
seeds: venv ## seeds of the whole product under faults; SEEDS of each kind of run (default 4; minutes)
	@$(BIN)/python -m gantry_lab simulate --world 'product*' --seeds $(or $(SEEDS),4)

.PHONY: mutants
mutants: venv ## plant every known bug and see each one found (minutes); SHARES=n an n-th of them
	@PYTHONPATH=tests $(BIN)/python -m sim.mutants.gate --shares $(PARTS) --turn $(TURN)

.PHONY: integration
integration: venv ## real processes and sockets on loopback; SHARES=n an n-th
	@rm -rf $(TRIED) && $(PYTEST) $(WAIT) -o cache_dir=$(TRIED) tests/integration --ignore=tests/integration/pipeline $(SHARE) || .ci/again $$? $(TRIED)

.PHONY: spark
spark: venv ## the pipeline's jobs and data source under a real Spark session (needs Java)
	@$(PYTEST) tests/integration/pipeline

.PHONY: interop
interop: venv ## RocketMQ's own Java brokers, tools and clients; Prometheus; packages of the chart (skipped without Java, Maven, Go); SHARES=n an n-th of the files
	@$(PYTEST) -n 3 --dist loadfile $$(ls tests/interop/test_*.py | awk 'NR % $(PARTS) == $(TURN) % $(PARTS)')

.PHONY: record
record: venv ## have the conversations with Java clients anew that `make unit` replays (needs Java, Maven)
	@PYTHONPATH=tests $(BIN)/python tests/interop/record.py

.PHONY: fuzz
fuzz: venv ## every reader of foreign bytes, guided by coverage; SECONDS_EACH (default 30) per target
	@.ci/fuzz $(TARGETS)

.PHONY: format
format: venv ## rewrite the sources in the project's format
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

.PHONY: generate
generate: venv ## write the generated files (crds/, docs/settings.md, docs/reference.md, the chart's dashboards) anew
	@$(BIN)/python -m gantry_operator.models.generate
	@$(BIN)/python -m gantry_lab.dashboards

.PHONY: docs
docs: venv ## the pages of docs/ as a site, build/docs/docs/index.html; a warning is an error
	@$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going -j auto -c docs -b html . build/docs

.PHONY: wheels
wheels: venv ## write dist/: what a cluster runs, and beside it the cluster of processes
	@$(BIN)/hatchling build -t wheel -d dist
	@cd local && ../$(BIN)/hatchling build -t wheel -d ../dist

.PHONY: manifests
manifests: ## write build/gantry.yaml, the chart as one file for kubectl (needs helm)
	@.ci/manifests

.PHONY: chart
chart: ## write build/gantry-VERSION.tgz, the chart as one file (needs helm, as the next three do)
	@.ci/package chart

.PHONY: chart-push
chart-push: ## the same, and push it to REGISTRY=oci://HOST/PATH
	@.ci/package push

.PHONY: kustomize
kustomize: venv ## write build/kustomize/, the chart as a base with overlays
	@.ci/package kustomize

.PHONY: bundle
bundle: venv ## write build/bundle/, the chart for the Operator Lifecycle Manager
	@.ci/package bundle

.PHONY: constraints
constraints: ## resolve the dependencies anew and rewrite constraints.txt and constraints-moto.txt
	@PYTHON=$(PYTHON) .ci/venv --freeze

.PHONY: clean
clean: ## remove everything that make and the tools have made
	@rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .gantry build dist
	@find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
	@rm -rf tests/interop/*/target

## Parts of `make check`
.PHONY: lint
lint: venv ## ruff: rules and format
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

.PHONY: types
types: venv ## mypy --strict
	@$(BIN)/mypy

.PHONY: imports
imports: venv ## who may import whom
	@$(BIN)/lint-imports --no-cache

.PHONY: generated
generated: venv ## generated files are what their sources generate
	@$(BIN)/python -m gantry_operator.models.generate --check
	@$(BIN)/python -m gantry_lab.dashboards --check

.PHONY: layout
layout: venv ## folders, module sizes, dependencies, documents
	@$(PYTEST) tests/unit/test_layout.py tests/unit/test_pages.py tests/unit/cli/test_docs.py
