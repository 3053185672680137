.DEFAULT_GOAL := help
PYTHON ?= $(shell command -v python3.11 || echo python3)
VENV ?= .venv
RUN = $(VENV)/bin/python
# Tests of a file share fixtures: each worker has a row of files, and takes from the other's end once it is idle.
TEST = $(RUN) -m pytest -n 2 --dist worksteal
DATA_DIR ?= data
READY = $(VENV)/.installed
DOCS_READY = $(VENV)/.installed-docs

RESULTS_DIR ?= results

DATASETS ?= cora,pubmed,facebook
# LastFM's raw features are not available everywhere: what does without them is run separately,
# unless DATASETS names the graphs.
LASTFM = $(if $(filter file,$(origin DATASETS)),lastfm)
PAPER = mechanisms,features,denoising,kprop,budgets
BEYOND = conditioned_mechanisms,conditioned_features,conditioned_denoising,learners,value_of_features,equal_labels
SEARCH = dataset=lastfm feature=blank filter.conditioning=node x_eps=1 weight_decay=0.01,0.001,0.0001 dropout=0.25,0.5,0.75 filter.steps=2,4,8,16
PLACES = data_dir=$(DATA_DIR) results_dir=$(RESULTS_DIR)

.PHONY: help setup run test test-fast test-published lint format docs wheel bench bench-scale reproduce-paper beyond-paper benchmark information report audit real-users torture cluster-test clean tune-beyond

help: ## List the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-18s %s\n", $$1, $$2}'

$(READY): pyproject.toml scripts/constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "error: PYTHON=$(PYTHON): not found; Python 3.11 is needed"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	@# torch first and pinned: left to the resolver it may bring gigabytes of CUDA packages
	$(RUN) -m pip install --quiet -c scripts/constraints.txt torch==2.13.0
	$(RUN) -m pip install --quiet -c scripts/constraints.txt -e '.[dev]'
	@touch $(READY)

$(DOCS_READY): $(READY)
	$(RUN) -m pip install --quiet -c scripts/constraints.txt -e '.[docs]'
	@touch $(DOCS_READY)

setup: $(READY) ## Make the virtual environment

run: $(READY) ## Train on the embedded graph: a first private result
	$(RUN) -m lpgnn.run dataset=sbm x_eps=1 y_eps=1 force=true

lint: $(READY) ## Check style and types
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy

test: lint ## Check style and types, run all tests
	$(TEST)

test-fast: $(READY) ## Run the tests that are not marked slow: all but commands, processes, whole runs and reports
	$(TEST) -m "not slow"

test-published: $(READY) ## Compare what is known of the published graphs with their files in DATA_DIR
	$(RUN) -m pytest -m published --data-dir $(DATA_DIR)

format: $(READY) ## Reformat the source
	$(RUN) -m ruff check --fix .
	$(RUN) -m ruff format .

docs: $(DOCS_READY) ## Build the documentation into docs/build/html; warnings and broken links are errors
	$(RUN) -m sphinx --fail-on-warning --keep-going --quiet --doctree-dir docs/build/doctrees docs docs/build/html
	$(RUN) scripts/check_site.py docs/build/html

wheel: $(READY) ## Build wheel and sdist into dist/; scripts/try_wheel.sh tries one in an environment of its own
	rm -rf dist
	$(RUN) -m build --quiet

bench: $(READY) ## Measure against the plain dense torch-geometric pipeline, in one run
	$(RUN) -m lpgnn.bench speed $(PLACES)
	$(RUN) -m lpgnn.bench profile $(PLACES)

bench-scale: $(READY) ## Measure time and memory from ten thousand to a million nodes
	$(RUN) -m lpgnn.bench scale results_dir=$(RESULTS_DIR)

reproduce-paper: $(READY) ## Run what is missing of the paper's experiments, then report (DATASETS=, DATA_DIR=, RESULTS_DIR=)
	$(RUN) -m lpgnn.run +experiment=$(PAPER) dataset=$(DATASETS) $(PLACES)
	@if [ -n "$(LASTFM)" ]; then \
		$(RUN) -m lpgnn.run +experiment=features dataset=lastfm feature=ones,ohd,rnd $(PLACES) && \
		$(RUN) -m lpgnn.run +experiment=$(PAPER) dataset=lastfm feature=blank x_eps=0.01,0.1,1,2 $(PLACES); \
	fi
	$(RUN) -m lpgnn.report $(PLACES)

beyond-paper: $(READY) ## Run what is missing beyond the paper (conditioned reports, learners), then report
	$(RUN) -m lpgnn.run +experiment=$(BEYOND) dataset=$(DATASETS) $(PLACES)
	$(RUN) -m lpgnn.report $(PLACES)

benchmark: $(READY) ## Run what is missing of the benchmark, every method beside its controls (DATASETS=)
	$(RUN) -m lpgnn.benchmark $(if $(filter command line environment,$(origin DATASETS)),dataset=$(DATASETS)) $(PLACES)

information: $(READY) ## Measure how many reported bits depend on the features
	$(RUN) -m lpgnn.information $(PLACES)

tune-beyond: $(READY) ## Repeat the search for the conditioned and residual tables: one collection on LastFM's graph
	$(RUN) -m lpgnn.tune $(SEARCH) learner=residual y_eps=0.5,1,2 learning_rate=0.01,0.001,0.0003 results_dir=$(RESULTS_DIR)/search/residual data_dir=$(DATA_DIR)
	$(RUN) -m lpgnn.tune $(SEARCH) y_eps=inf learning_rate=0.01,0.001 results_dir=$(RESULTS_DIR)/search/conditioned data_dir=$(DATA_DIR)
	$(RUN) -m lpgnn.tune $(SEARCH) y_eps=0.5,1,2 learning_rate=0.01,0.001 learner.steps=2,4,8,16 results_dir=$(RESULTS_DIR)/search/conditioned data_dir=$(DATA_DIR)

report: $(READY) ## Rebuild tables, figures and page from the rows
	$(RUN) -m lpgnn.report $(PLACES)

audit: $(READY) ## Try to refute the budget of every mechanism; results/audit.csv
	$(RUN) -m lpgnn.audit --all results_dir=$(RESULTS_DIR)

real-users: $(READY) ## 300 client processes, one collector, one training, predictions and a picture
	$(RUN) scripts/real_users.py --results-dir $(RESULTS_DIR)

torture: $(READY) ## Faults, 300 kills of the store, 100 of sweeps, growth to 200,000 rows (results/faults; PARTS=)
	nice -n 10 $(RUN) scripts/torture $(PARTS) --data-dir $(DATA_DIR)

cluster-test: $(READY) ## Run a sweep with every launcher and on a real SLURM, kill it, compare the rows (results/scaling.md; ARGS=--help)
	$(RUN) scripts/cluster_test.py $(ARGS)

clean: ## Remove the virtual environment and caches
	rm -rf $(VENV) docs/build docs/reference/generated .mypy_cache .ruff_cache .pytest_cache
	find src tests -name __pycache__ -prune -exec rm -rf {} +
