# make train        train a spiking agent with CaRe-BN, a few minutes; running it again resumes it
# make test         lint, types and tests
# make kill-test    the full test of resuming: a dozen SIGKILLs per run, several minutes
# make bench-actor  speed of the spiking actor beside its peers and the bare matrix products
# make bench-deploy  speed of one action of a deployed policy
# make bench-training  speed of whole training steps beside Stable-Baselines3
# Each sets up its own virtual environment in .venv on first use.

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin
INSTALL := $(RUN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: train test kill-test bench-actor bench-training bench-deploy clean

train: $(VENV)/.installed
	$(RUN)/carebn train --env-id InvertedDoublePendulum-v4 --algo td3 --method care-bn --neuron clif \
		--total-timesteps 20000 --learning-starts 1000 --eval-interval 1000 --checkpoint-interval 1000 \
		--threads 2 --run-dir runs/first

test: $(VENV)/.installed-for-tests
	$(RUN)/ruff format --check .
	$(RUN)/ruff check .
	$(RUN)/mypy
	$(RUN)/python -m pytest

kill-test: $(VENV)/.installed-for-tests
	CAREBN_KILLS=12 $(RUN)/python -m pytest tests/training/test_resume.py

bench-training: $(VENV)/.installed-for-tests
	$(RUN)/python benchmarks/bench_training.py --out results/bench_training.json

bench-deploy: $(VENV)/.installed-for-tests
	$(RUN)/python benchmarks/bench_deploy.py --out results/bench_deploy.json

bench-actor: $(VENV)/.installed-for-tests
	$(RUN)/python benchmarks/bench_actor.py --out results/bench_actor.json

$(VENV)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "carebn needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --editable .
	@touch $@

$(VENV)/.installed-for-tests: $(VENV)/.installed
	$(INSTALL) --editable ".[dev,peers,onnx]"
	@touch $@

clean:
	rm -rf $(VENV) build src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
