# make train        train a first spiking network and plot its learning curve
# make test         lint, types and tests
# make bench-actor  speed of the spiking actor beside its peers and the bare matrix products
# Each sets up its own virtual environment in .venv on first use.

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin
INSTALL := $(RUN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: train test bench-actor clean

train: $(VENV)/.installed
	$(RUN)/python examples/imitate.py

test: $(VENV)/.installed-for-tests
	$(RUN)/ruff format --check .
	$(RUN)/ruff check .
	$(RUN)/mypy
	$(RUN)/python -m pytest

bench-actor: $(VENV)/.installed-for-tests
	$(RUN)/python benchmarks/bench_actor.py --out results/bench_actor.json

$(VENV)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "carebn needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --editable .
	@touch $@

$(VENV)/.installed-for-tests: $(VENV)/.installed
	$(INSTALL) --editable ".[dev,peers]"
	@touch $@

clean:
	rm -rf $(VENV) build src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
