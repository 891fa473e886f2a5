# `make demo` and `make test` work on a fresh clone with Python ≥ 3.11 and pip; the second call is quick.
# `make test-long` runs what takes longer: processes that are killed, fuzzing at length, whole benchmarks.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The pins were made with Python 3.11; on a later Python, `make test CONSTRAINTS=` installs what pyproject.toml allows.
CONSTRAINTS ?= constraints.txt
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check $(addprefix --constraint ,$(CONSTRAINTS))
export OMP_WAIT_POLICY ?= PASSIVE
# Bytecode is kept: pytest otherwise rewrites every test file again in each worker and each run.
export PYTHONDONTWRITEBYTECODE =

.PHONY: demo test test-long check format bench docs figures clean

demo: $(VENV)/.dev
	$(BIN)/tacit run quickstart

test: $(VENV)/.dev
	$(BIN)/python -m pytest -n auto --dist worksteal -m 'not slow'

test-long: $(VENV)/.dev
	$(BIN)/python -m pytest -n auto --dist worksteal -m slow

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The documentation site in site/, with executed tutorials; site/index.html works from disk. Broken links are errors.
docs: export NO_MKDOCS_2_WARNING = 1
docs: $(VENV)/.dev
	$(BIN)/python -m mkdocs build --strict --quiet
	@echo "the site is in site/index.html"

# Writes the tables between <!-- figures:NAME --> and <!-- /figures --> of README.md, and checks all figures.
figures: $(VENV)/.dev
	$(BIN)/python -m site_builder.figures render

bench: $(VENV)/.bench
	$(BIN)/python -m bench

$(VENV)/.dev: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --editable '.[dev]'
	touch $@

$(VENV)/.bench: $(VENV)/.dev
	$(PIP) --editable '.[bench]'
	touch $@

clean:
	rm -rf $(VENV) build site *.egg-info src/*.egg-info
