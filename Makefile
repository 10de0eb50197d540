# Each target sets up what it needs by itself; nothing is rebuilt when nothing changed.
PYTHON ?= python3
VENV   := .venv
RUN    := $(VENV)/bin
BUILD_INPUTS := pyproject.toml CMakeLists.txt $(wildcard cpp/*/*)
BUILD_TOOLS  := 'scikit-build-core>=0.10' 'nanobind>=2.4' hatchling editables cmake ninja

.PHONY: help demo test test-gpu test-frameworks lint extras bench engines envelope envelope-docs stages machine-docs speed speed-docs accuracy-docs learning-docs scaling native-docs gpu-docs compare scale default-policy sparse-prices sparse-docs large-docs fuzz fuzz-native torture sanitize dense-docs paper-docs beyond-docs docs site dist wheels test-wheel test-oldest test-newest clean

help:  ## what can be made
	@grep -E '^[a-z-]+:.*##' Makefile | sed 's/:.*##/\t/' | expand -t 16

demo: $(VENV)/installed  ## learn precisions on small systems, solve unseen ones; a figure in out/
	$(RUN)/python examples/demo.py

PROCESSES ?= 2
test: lint  ## lint, then all tests, by two processes (make test PROCESSES=1 for one)
	# BLAS's threads spin while they wait: those of several processes would take each other's time.
	OPENBLAS_NUM_THREADS=1 $(RUN)/python -m pytest -n $(PROCESSES) --dist loadfile

test-gpu: $(VENV)/installed  ## the tests that need a GPU (pip install '.[cuda12]' or '.[cuda13]' before)
	$(RUN)/python -m pytest -m gpu tests

test-frameworks: $(VENV)/frameworks-installed  ## the tests that need torch or JAX, which it installs (torch for the CPU)
	OPENBLAS_NUM_THREADS=1 $(RUN)/python -m pytest tests/integrations

lint: $(VENV)/installed  ## ruff, mypy and the import layers
	$(RUN)/ruff format --check .
	$(RUN)/ruff check .
	$(RUN)/mypy
	$(RUN)/lint-imports --no-cache

extras: $(VENV)/extras-installed  ## packages of the optional sparse engines, which tests then run too

bench: $(VENV)/bench-installed  ## ratios against NumPy, LAPACK and pychop
	$(RUN)/python benchmarks/bench_emulation.py
	$(RUN)/python benchmarks/bench_native_lu.py
	$(RUN)/python benchmarks/bench_engines.py 'Laplacian 2-D 300^2' 'Laplacian 3-D 30^3'
	$(RUN)/python benchmarks/bench_gmres_ir.py

fuzz: $(VENV)/installed  ## 100 000 systems, answers and bounds judged in rational arithmetic (an hour on two cores)
	OPENBLAS_NUM_THREADS=1 ROUNDWISE_NUM_THREADS=1 $(RUN)/python tests/long_fuzz.py

fuzz-native: $(VENV)/installed  ## 1 000 000 hostile inputs for the compiled module (minutes)
	$(RUN)/python tests/fuzz_native.py

MINUTES ?= 30
torture: $(VENV)/installed  ## signals, forks, threads, limits, corrupt input (30 minutes; make torture MINUTES=5)
	$(RUN)/python tests/torture.py --minutes $(MINUTES)

sanitize:  ## the C++ checks under sanitizers for addresses, undefined behaviour and threads (minutes)
	$(PYTHON) tests/sanitize.py --strict

stages: $(VENV)/installed  ## where the time of a dense solve goes, and how it gets along with other threads
	$(RUN)/python benchmarks/bench_stages.py

machine-docs: stages  ## the same, and dense systems against all peers, for this machine, into docs/native.md
	$(RUN)/python benchmarks/bench_solve.py --dense
	cp out/stages-*.json out/solve-dense-*.json docs/machines/
	$(RUN)/python docs/refresh.py machines

speed: $(VENV)/installed  ## roundwise.solve against NumPy, SciPy, dsgesv, torch, spsolve and, after make extras, MKL, KLU
	$(RUN)/python benchmarks/bench_solve.py

DEVICE ?= cpu
envelope: $(VENV)/installed  ## drawn calls against the best call a user could make instead (idle machine; hours)
	$(RUN)/python benchmarks/envelope.py --device $(DEVICE)

DRAWS ?= 1000
envelope-docs: $(VENV)/installed  ## the same, beside load, just after NumPy and in first calls, too; into docs/
	$(RUN)/python benchmarks/envelope.py --draws $(DRAWS)
	$(RUN)/python benchmarks/envelope.py --draws $(shell expr $(DRAWS) / 5) --beside-load --out out/envelope-beside-load.json
	$(RUN)/python benchmarks/envelope.py --draws $(shell expr $(DRAWS) / 5) --after numpy --out out/envelope-after-numpy.json
	$(RUN)/python benchmarks/envelope.py --draws $(shell expr $(DRAWS) / 25) --first-call --out out/envelope-first-call.json
	$(RUN)/python benchmarks/envelope.py --draws $(shell expr $(DRAWS) / 25) --joblib threads --out out/envelope-joblib-threads.json
	$(RUN)/python docs/refresh.py envelope

engines: $(VENV)/extras-installed  ## every sparse engine's analysis, factorization and solve (minutes)
	$(RUN)/python benchmarks/bench_engines.py

speed-docs: extras speed  ## the same, and its tables and figure into README.md and docs/
	$(RUN)/python docs/refresh.py speed

accuracy-docs: $(VENV)/installed  ## errors and times of accuracy="forward" (minutes); into docs/
	$(RUN)/python benchmarks/bench_accuracy.py
	$(RUN)/python docs/refresh.py accuracy

sparse-docs: $(VENV)/extras-installed  ## sparse solves, refactorizations and memory (minutes); into docs/
	$(RUN)/python benchmarks/bench_sparse.py
	$(RUN)/python docs/refresh.py sparse

large-docs: $(VENV)/installed  ## large sparse systems, iterative against direct (minutes, idle machine); into docs/
	$(RUN)/python benchmarks/bench_iterative.py
	$(RUN)/python docs/refresh.py large

learning-docs: $(VENV)/installed  ## a learning Solver on a stream that changes (minutes); into docs/
	$(RUN)/python benchmarks/bench_learning.py
	$(RUN)/python docs/refresh.py learning

scaling: $(VENV)/installed  ## native low precision against the size, dense and sparse (minutes)
	$(RUN)/python -m roundwise_studies.native.scaling

native-docs: scaling  ## numbers and figures of docs/native.md; leave the machine alone meanwhile
	$(RUN)/python benchmarks/bench_native_lu.py
	$(RUN)/python benchmarks/factorization_rates.py --sizes 4000 8000
	rm -f out/native.sqlite  # times of a busy day would be taken for today's
	$(RUN)/roundwise reproduce native --variant deployed --order stages
	$(RUN)/python docs/refresh_native.py

gpu-docs: $(VENV)/installed  ## numbers and figure of docs/gpu.md (on a GPU, with '.[cuda12]' or '.[cuda13]'; minutes)
	$(RUN)/python benchmarks/bench_gpu.py
	rm -f out/native-gpu.sqlite  # times of another day would be taken for today's
	$(RUN)/roundwise reproduce native --device cuda
	$(RUN)/python docs/refresh.py gpu

scale: $(VENV)/installed  ## a table of a million outcomes: write, open, view, train (minutes)
	$(RUN)/python benchmarks/bench_scale.py

compare: $(VENV)/installed  ## regret of all policies on the paper's data sets (minutes)
	$(RUN)/python -m roundwise_studies.compare_policies

MATRICES := $(wildcard ../shared/matrices)
default-policy: sparse-prices  ## measure, compare and ship the policy of solve (idle machine; resumes)
	$(RUN)/python -m roundwise_studies.default_policy \
	  $(if $(MATRICES),--matrices $(MATRICES))
	$(RUN)/python docs/refresh.py decisions

EVERY ?= 2
sparse-prices: $(VENV)/extras-installed  ## the sparse part of default-policy alone (minutes; resumes)
	$(RUN)/python -m roundwise_studies.default_policy.sparse_methods --every $(EVERY) \
	  $(if $(MATRICES),--matrices $(MATRICES))
	$(RUN)/python docs/refresh.py decisions

dense-docs: $(VENV)/installed  ## the paper's dense experiment: table and figure of docs/reproduction.md
	$(RUN)/python docs/refresh.py dense

paper-docs: $(VENV)/installed  ## docs/paper-*.md, from what `roundwise reproduce all` and `native` left in out/
	$(RUN)/python docs/refresh_paper.py store

beyond-docs: $(VENV)/installed  ## docs/beyond-the-paper.md and docs/departures-others.md (hours; resumable)
	$(RUN)/python -m roundwise_studies.beyond
	$(RUN)/python docs/refresh_beyond.py store
	$(RUN)/python docs/refresh_departures.py solve
	$(RUN)/python docs/refresh_departures.py store

docs: dense-docs  ## numbers and figures of docs/, from all experiments (an hour; then minutes)
	$(RUN)/python docs/refresh_paper.py store
	$(RUN)/python docs/refresh.py departures

site: $(VENV)/site-installed  ## the documentation as a site, build/site/html/index.html, and its tests
	$(RUN)/python docs/site/assemble.py
	$(RUN)/python -m pytest tests/test_site.py

dist: $(VENV)/installed  ## sdist and wheel in dist/, of the library and of the studies
	$(RUN)/python -m pip install --quiet build
	$(RUN)/python -m build --outdir dist
	$(RUN)/python -m build --outdir dist studies

wheels: build/wheels/made  ## wheels in dist/: for Python 3.11, and for 3.12 and all later ones

build/wheels/made: $(BUILD_INPUTS) packaging/wheels.py $(shell find src -name '*.py' -o -name '*.json' -o -name '*.npz' -o -name 'py.typed')
	$(PYTHON) packaging/wheels.py
	touch $@

test-wheel:  ## a wheel of this Python in a fresh environment without a compiler: solve, README, command
	$(PYTHON) packaging/wheels.py own
	$(PYTHON) tests/wheel_check.py dist

test-oldest: wheels  ## all tests with the lowest NumPy and SciPy that are declared (Python 3.11)
	$(PYTHON) packaging/test_versions.py oldest

test-newest: wheels  ## all tests with the newest NumPy and SciPy, deprecations as errors (Python 3.12)
	$(PYTHON) packaging/test_versions.py newest

clean:  ## remove everything that was made
	rm -rf $(VENV) build dist out .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(VENV)/installed: $(VENV)/library-installed studies/pyproject.toml
	# What the studies need is among the extras of dev.
	$(RUN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable ./studies
	touch $@

$(VENV)/library-installed: $(BUILD_INPUTS)
	test -x $(RUN)/python || $(PYTHON) -m venv $(VENV)
	# Built with tools that stay where they are: after a change, only what it touches is compiled again.
	$(RUN)/python -m pip install --quiet --disable-pip-version-check $(BUILD_TOOLS)
	$(RUN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --editable '.[dev]'
	touch $@

# Roundwise is there already, so that these install what their extra needs, and compile nothing.
$(VENV)/bench-installed: $(VENV)/installed
	$(RUN)/python -m pip install --quiet --disable-pip-version-check 'roundwise[bench]'
	touch $@

# Plain `torch` may bring gigabytes for GPUs; this version has a build without.
$(VENV)/frameworks-installed: $(VENV)/installed
	$(RUN)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0 jax lineax
	touch $@

$(VENV)/site-installed: $(VENV)/installed
	$(RUN)/python -m pip install --quiet --disable-pip-version-check 'roundwise[site]'
	touch $@

$(VENV)/extras-installed: $(VENV)/installed
	$(RUN)/python -m pip install --quiet --disable-pip-version-check 'roundwise[sparse]'
	touch $@
