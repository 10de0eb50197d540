# Each target sets up what it needs by itself; nothing is rebuilt when nothing changed.
PYTHON ?= python3
VENV   := .venv
RUN    := $(VENV)/bin
BUILD_INPUTS := pyproject.toml CMakeLists.txt $(wildcard cpp/*/*)

.PHONY: help demo test test-gpu lint extras bench engines speed speed-docs accuracy-docs learning-docs scaling native-docs gpu-docs compare default-policy sparse-prices fuzz readme docs dist clean

help:  ## what can be made
	@grep -E '^[a-z-]+:.*##' Makefile | sed 's/:.*##/\t/' | expand -t 16

demo: $(VENV)/installed  ## learn precisions on small systems, solve unseen ones; a figure in out/
	$(RUN)/python examples/demo.py

test: lint  ## lint, then all tests
	$(RUN)/python -m pytest

test-gpu: $(VENV)/installed  ## the tests that need a GPU (pip install '.[cuda12]' or '.[cuda13]' before)
	$(RUN)/python -m pytest -m gpu tests

lint: $(VENV)/installed  ## ruff, mypy and the import layers
	$(RUN)/ruff format --check .
	$(RUN)/ruff check .
	$(RUN)/mypy
	$(RUN)/lint-imports --no-cache

extras: $(VENV)/extras-installed  ## packages of the optional sparse engines, which tests then run too

bench: $(VENV)/bench-installed  ## ratios against NumPy, LAPACK and pychop
	$(RUN)/python benchmarks/bench_emulation.py
	$(RUN)/python benchmarks/bench_native_lu.py
	$(RUN)/python benchmarks/bench_sparse_engine.py
	$(RUN)/python benchmarks/bench_gmres_ir.py
	$(RUN)/python benchmarks/bench_training.py

fuzz: $(VENV)/installed  ## 100 000 systems, answers and bounds judged in rational arithmetic (an hour on two cores)
	OPENBLAS_NUM_THREADS=1 ROUNDWISE_NUM_THREADS=1 $(RUN)/python tests/long_fuzz.py

speed: $(VENV)/installed  ## roundwise.solve against NumPy, dsgesv, spsolve and, after make extras, PARDISO, KLU
	$(RUN)/python benchmarks/bench_solve.py

engines: $(VENV)/extras-installed  ## every sparse engine's analysis, factorization and solve (minutes)
	$(RUN)/python benchmarks/bench_engines.py

speed-docs: extras speed  ## the same, and its table and figure into README.md
	$(RUN)/python docs/refresh.py speed

accuracy-docs: $(VENV)/installed  ## errors and times of accuracy="forward" (minutes); into docs/
	$(RUN)/python benchmarks/bench_accuracy.py
	$(RUN)/python docs/refresh.py accuracy

learning-docs: $(VENV)/installed  ## a learning Solver on a stream that changes (minutes); into docs/
	$(RUN)/python benchmarks/bench_learning.py
	$(RUN)/python docs/refresh.py learning

scaling: $(VENV)/installed  ## native low precision against the size, dense and sparse (minutes)
	$(RUN)/python benchmarks/bench_scaling.py

native-docs: scaling  ## numbers and figures of docs/native.md; leave the machine alone meanwhile
	$(RUN)/python benchmarks/bench_native_lu.py --lu-only
	rm -f out/native.sqlite  # times of a busy day would be taken for today's
	$(RUN)/roundwise reproduce native
	$(RUN)/python docs/refresh_native.py

gpu-docs: $(VENV)/installed  ## numbers and figure of docs/gpu.md (on a GPU, with '.[cuda12]' or '.[cuda13]'; minutes)
	$(RUN)/python benchmarks/bench_gpu.py
	rm -f out/native-gpu.sqlite  # times of another day would be taken for today's
	$(RUN)/roundwise reproduce native --device cuda
	$(RUN)/python docs/refresh.py gpu

compare: $(VENV)/installed  ## regret of all policies on the paper's data sets (minutes)
	$(RUN)/python benchmarks/compare_policies.py

MATRICES := $(wildcard ../shared/matrices)
default-policy: sparse-prices  ## measure, compare and ship the policy of solve (idle machine; resumes)
	$(RUN)/python -m roundwise.experiments.default_policy \
	  $(if $(MATRICES),--matrices $(MATRICES))
	$(RUN)/python docs/refresh.py decisions

EVERY ?= 2
sparse-prices: $(VENV)/extras-installed  ## the sparse part of default-policy alone (minutes; resumes)
	$(RUN)/python -m roundwise.experiments.default_policy.sparse_methods --every $(EVERY) \
	  $(if $(MATRICES),--matrices $(MATRICES))
	$(RUN)/python docs/refresh.py decisions

readme: $(VENV)/installed  ## figure and table of README.md, from the dense experiment
	$(RUN)/python docs/refresh.py readme

docs: readme  ## numbers and figures of docs/, from all experiments (an hour; then minutes)
	$(RUN)/python docs/refresh.py reproduction
	$(RUN)/python docs/refresh.py departures

dist: $(VENV)/installed  ## sdist and wheel in dist/
	$(RUN)/python -m pip install --quiet build
	$(RUN)/python -m build --outdir dist

clean:  ## remove everything that was made
	rm -rf $(VENV) build dist out .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(VENV)/installed: $(BUILD_INPUTS)
	test -x $(RUN)/python || $(PYTHON) -m venv $(VENV)
	$(RUN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

# Roundwise is there already, so that these install what their extra needs, and compile nothing.
$(VENV)/bench-installed: $(VENV)/installed
	$(RUN)/python -m pip install --quiet --disable-pip-version-check 'roundwise[bench]'
	touch $@

$(VENV)/extras-installed: $(VENV)/installed
	$(RUN)/python -m pip install --quiet --disable-pip-version-check 'roundwise[sparse]'
	touch $@
