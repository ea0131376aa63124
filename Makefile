# Works with make and Python 3.11 alone. `make` lists what there is.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
PY := .venv/bin/python
PYTEST := $(PY) -m pytest
# More arguments for what a target runs: make demo ARGS=--quick, make test ARGS="-k spool"
ARGS ?=
PACKAGES := afterpass.cli afterpass.configs afterpass.core afterpass.hooks afterpass.rerank afterpass.store \
	afterpass.summarize afterpass.sweep

.DEFAULT_GOAL := help
.PHONY: help env models demo test lint format types check lock build docs bench clean \
	test-slow test-kill test-faults test-engine test-server test-triton check-gpu

help: ## This list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | awk -F '\t' '{printf "  make %-12s %s\n", $$1, $$2}'

env: ## .venv as requirements/cpu.lock says; at once when it already is
	@$(PYTHON) requirements/sync.py

models: env ## The default models, prepared once in the user's cache
	@AFTERPASS_CONFIG=configs/embedded.toml .venv/bin/afterpass models pull >/dev/null

demo: models ## The whole loop on real input, on this machine (ARGS=--quick: no language model)
	.venv/bin/afterpass demo $(ARGS)

# Two at a time, a file staying together: most of them wait for processes of ours to start.
test: models ## All tests but those with a target of their own
	$(PYTEST) -n 2 --dist loadfile -m "not kill and not faults and not server and not engine and not slow and not triton and not gpu" $(ARGS)

lint: env ## ruff: lint and format
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .

format: env ## ruff: mend what it can
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

types: env ## mypy --strict on our packages
	@mkdir -p .typecheck && ln -sfn .. .typecheck/afterpass
	.venv/bin/mypy -m afterpass $(addprefix -p ,$(PACKAGES))

check: lint types test ## What CI runs

test-slow: models ## Tests that take more than 20 s each: the demo, model exports, a training step
	$(PYTEST) -m "slow and not engine" $(ARGS)

test-kill: models ## Kill sweeps with the real engines
	$(PYTEST) -m kill $(ARGS)

test-faults: env ## Thousands of kills, full disks, lost power (KILLS=1000 for the long run)
	$(PYTEST) -m faults -s $(ARGS)

test-engine: models ## Real vLLM: killed, hung, out of memory, fed poison
	$(PYTEST) -m engine $(ARGS)

test-server: models ## A real `vllm serve` on loopback
	$(PYTEST) -m server $(ARGS)

test-triton: models ## A real Triton server on loopback, from its own .venv-triton
	@$(PYTHON) requirements/triton.py
	$(PYTEST) -m triton $(ARGS)

check-gpu: ## On a machine with an NVIDIA GPU and `pip install afterpass[gpu]`
	$(PYTHON) -m pytest -m gpu $(ARGS)

docs: env ## Write docs/cli.md and the reference in docs/configuration.md from the code
	$(PY) docs/generate.py

bench: models ## The benchmarks, one after the other; each ends with a line of JSON
	@for file in benchmarks/*.py; do echo "$(PY) $$file --json"; $(PY) $$file --json $(ARGS) || exit 1; done

build: env ## sdist and wheel in dist/
	$(PY) -m build --no-isolation

lock: ## Renew requirements/cpu.lock, try it in a fresh environment
	@$(PYTHON) requirements/lock.py

clean: ## Remove what was built here; the models in the user's cache stay
	rm -rf .venv .venv-* .typecheck build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
