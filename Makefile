# Two commands set everything up: `make demo` and `make test`. See README.md.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --constraint constraints.txt
DEMO_OUT ?= runs/demo
DEMO_ARGS ?=

.PHONY: demo test env lint types unit docs package clean

demo: $(VENV)/.package
	$(BIN)/linkcal run --dataset simulated --model vgae --seed 0 --out $(DEMO_OUT) $(DEMO_ARGS)

test: lint types unit

# The environment that the tests run in: the package with its dev extra.
env: $(VENV)/.dev

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

# One process per core, each with one thread: more threads than cores make every small operation wait. Each
# begins with a block of neighbouring tests, so that compiled code and shared fixtures are made once, not twice.
unit: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --dist worksteal $(PYTEST_ARGS)

# The site, in site/: whatever a page or a docstring links to must be there.
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# The files of a release, in dist/: whole, with the version of CITATION.cff, and at work in an environment that has
# no more than the wheel asks for.
EMPTY = $(VENV)/empty
package: | $(BIN)/python
	$(PIP) 'build>=1.2' 'twine>=6.0'
	rm -rf dist $(EMPTY) && $(BIN)/python -m build --outdir dist > $(VENV)/build.log || { cat $(VENV)/build.log; exit 1; }
	$(BIN)/twine check --strict dist/*
	$(PYTHON) -m venv $(EMPTY)
	$(EMPTY)/bin/python -m pip install --quiet --constraint constraints.txt dist/*.whl
	cd $(EMPTY) && bin/linkcal --help > help.txt && ! bin/python -c 'import torch' 2> torch.txt
	grep --quiet "^version: $$($(EMPTY)/bin/linkcal --version | cut -d ' ' -f 2)$$" CITATION.cff
	cd $(EMPTY) && bin/python -c 'print("source,target,logit,label", *(f"a{i},b{i},{i % 7 - 3},{i % 7 > i % 3 + 2:d}" \
		for i in range(900)), sep="\n")' > scores.csv && bin/linkcal calibrate scores.csv --out run > table.txt && \
		bin/linkcal apply run scores.csv --out new.csv && test "$$(wc -l < new.csv)" -eq 901 && test -s run/report.html

$(VENV)/.docs: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --editable '.[docs]'
	touch $@

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.package: pyproject.toml constraints.txt | $(BIN)/python
	@echo 'Installing into $(VENV): gigabytes and minutes the first time'
	$(PIP) --editable '.[gnn]'
	touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --editable '.[dev]'
	touch $@ $(VENV)/.package

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache

# One benchmark: make bench BENCH="toggle --datasets cora"; BENCH="--list" names them and what they need.
.PHONY: bench
bench: $(VENV)/.dev
	$(BIN)/python benchmarks/run.py $(BENCH)

# Random inputs: make fuzz N=200000 SEED=0; another seed tries others. What is wrong is printed as small as it gets.
N ?= 200000
SEED ?= 0
.PHONY: fuzz
fuzz: $(VENV)/.dev
	OMP_NUM_THREADS=1 LINKCAL_FUZZ=$(N) LINKCAL_FUZZ_SEED=$(SEED) $(BIN)/python -m pytest tests/fuzz \
		--numprocesses auto --dist worksteal $(PYTEST_ARGS)
