# Every target sets up what it needs; the only things required are Python 3.11+, git and make.
PYTHON ?= python3
BIN := .venv/bin
CORES ?= $(shell getconf _NPROCESSORS_ONLN)
# One test process more than cores: many tests on real servers wait for a process or a clock.
WORKERS ?= $(shell expr $(CORES) + 1)

# Many tests start the product: it is compiled once.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test test-all frameworks models helm typescript docs dist check fix bench peers lock sbom audit clean
.DEFAULT_GOAL := help

help:  ## Show this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

.venv/run: pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --editable .
	@touch $@

.venv/dev: pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch .venv/run $@

demo: .venv/run  ## A scripted model, real retrieval, an injected regression and the alert that catches it (no key needed; SECONDS=90 limits it, KEEP=1 leaves the page open)
	$(BIN)/gaugeway demo $(if $(SECONDS),--seconds $(SECONDS)) $(if $(KEEP),--keep)

test: .venv/dev  ## The tests that need nothing but Python, in parallel: minutes
	$(BIN)/python -m pytest -n $(CORES) --dist loadfile -m "not full"

test-all: .venv/dev  ## All tests, on real servers where their programs are installed
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

frameworks: .venv/dev  ## The RAG frameworks that the tests drive, one environment each (1 GB); without them those are skipped
	$(BIN)/python tests/frameworks/environment.py

models: .venv/dev  ## Small real models that the tests ask (400 MB, seconds); without them those tests are skipped
	$(BIN)/python benchmarks/judging/installs.py

typescript: .venv/dev  ## The TypeScript client, generated from the OpenAPI document (needs Node 20 and npm)
	$(BIN)/python tools/client_types.py --openapi > clients/typescript/openapi.json
	cd clients/typescript && npm ci --no-fund --no-audit && npm run generate && npm run build

helm: .venv/dev  ## Helm's library for the tests of the chart (75 MB); without it those tests are skipped
	$(BIN)/pip install --quiet --disable-pip-version-check helm-python-sdk==0.2.2

docs: .venv/dev  ## Build the documentation site into site/ (Zensical, 19 MB); a link that leads nowhere fails
	$(BIN)/pip install --quiet --disable-pip-version-check zensical==0.0.73
	$(BIN)/python tools/docs_site.py

dist: .venv/dev  ## Build wheel and sdist into dist/ and check them
	rm -rf build dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/twine check --strict dist/*

check: .venv/dev  ## Formatting, lint, types, limits of size, known vulnerabilities (says so where the advisory service is out of reach)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python tools/house.py --limits --product
	$(BIN)/python tools/audit.py

fix: .venv/dev  ## Format and repair what can be repaired
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: .venv/dev  ## Benchmarks without peers (loopback only); tables on standard output
	$(BIN)/python benchmarks/detection/run.py --quick
	$(BIN)/python benchmarks/gateway/run.py --quick --rounds 1 --only direct,gaugeway-off,gaugeway-on

peers: .venv/dev  ## Side by side with others, real consumers of telemetry: installs them (5 GB) and writes the tables
	$(BIN)/python benchmarks/gateway/peers.py install
	$(BIN)/python benchmarks/gateway/run.py
	$(BIN)/python benchmarks/gateway/fidelity.py
	$(BIN)/python benchmarks/gateway/openai_suite.py
	$(BIN)/python benchmarks/parity/installs.py
	$(BIN)/python benchmarks/parity/run.py
	$(BIN)/python benchmarks/parity/ranking.py
	$(BIN)/python benchmarks/parity/cost.py
	$(BIN)/python benchmarks/detection/installs.py
	$(BIN)/python benchmarks/detection/run.py
	$(BIN)/python benchmarks/statistics/installs.py
	$(BIN)/python benchmarks/statistics/few_labels.py --full --write benchmarks/statistics/results/few_labels.md
	$(BIN)/python benchmarks/telemetry/installs.py
	$(BIN)/python benchmarks/telemetry/consumers.py
	$(BIN)/python benchmarks/clickhouse/installs.py
	$(BIN)/python benchmarks/clickhouse/contract.py
	$(BIN)/python benchmarks/judging/installs.py
	$(BIN)/python benchmarks/judging/weak_judge.py --write benchmarks/judging/results/weak_judge.md

lock: .venv/dev  ## Write requirements.lock, the runtime's versions with hashes (needs uv)
	$(BIN)/pip install --quiet --disable-pip-version-check uv
	$(BIN)/uv pip compile pyproject.toml --quiet --extra clickhouse --extra email --extra otlp --extra postgres --extra redis \
	  --generate-hashes --universal --python-version 3.11 --no-emit-index-url --no-header -o requirements.lock

sbom: .venv/dev  ## Write sbom.json (CycloneDX) of what requirements.lock installs
	$(BIN)/pip install --quiet --disable-pip-version-check cyclonedx-bom
	$(BIN)/cyclonedx-py requirements requirements.lock --of JSON -o sbom.json

audit: .venv/dev  ## Known vulnerabilities of what requirements.lock installs; not asked is a failure here
	$(BIN)/python tools/audit.py --required

clean:  ## Remove the virtual environment and caches
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache build dist site *.egg-info
