# carebn, from a clone:
#
#   make train           train a spiking agent with CaRe-BN, a few minutes;
#                        running it again resumes it
#   make test            lint, types and tests, some fourteen minutes
#   make test-fast       the same without the tests marked slow, a minute or two
#
# Longer tests:
#
#   make browser-test    the report and the site in a real browser; installs
#                        chromium if it can
#   make slurm-test      sweeps on a Slurm of two nodes, started here and broken;
#                        installs slurm-wlm and munge if it can
#   make ray-test        sweeps on a Ray cluster whose nodes leave and join
#   make kill-test       resuming: a dozen SIGKILLs per run, and three runs killed
#                        at every single file operation, an estimated half hour
#   make damage-test     a thousand times a damaged file of a run, against every
#                        command that reads it, an estimated hour
#   make fuzz            random networks, the compiled path against the pure one,
#                        minutes; CASES=20000 SEED=1 to choose
#   make hostile         hostile command lines and damaged files, an estimated
#                        hour; CASES=2000 SEED=1 to choose. Linux
#   make chip-test       a policy in whole numbers on a Cortex-M4 and RISC-V, in
#                        QEMU, minutes; installs compilers and QEMU if it can
#   make presets         train every method of the comparison for 3,000 steps and
#                        evaluate it, several minutes
#
# Speed, measured beside others:
#
#   make bench-actor     the spiking actor, its peers and the bare matrix products
#   make bench-deploy    one action of a deployed policy
#   make bench-training  whole training steps, and those of Stable-Baselines3,
#                        RLtools and SBX
#   make bench-envs      how soon eight environments solve a task beside one, an
#                        estimated half hour on two cores
#
#   make docs            the documentation site, which opens without a network
#   make results         docs/results.md, its figures and the report page, from
#                        the committed runs
#   make drawings        the pictures of docs/architecture.md, from the code
#   make clean           remove .venv and what tools have left behind; runs stay
#
# Each sets up what it needs in .venv on first use.

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin
INSTALL := $(RUN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: help train test test-fast browser-test slurm-test ray-test chip-test kill-test damage-test fuzz hostile presets \
	bench-actor bench-training bench-deploy bench-envs docs results drawings clean

help:  # what stands above, and what make alone says
	@sed -n '/^#/!q; s/^# \{0,1\}//p' $(firstword $(MAKEFILE_LIST))

train: $(VENV)/.installed
	$(RUN)/carebn train --env-id InvertedDoublePendulum-v4 --algo td3 --method care-bn --neuron clif \
		--total-timesteps 20000 --learning-starts 1000 --eval-interval 1000 --checkpoint-interval 1000 \
		--run-dir runs/first
	@echo "to have the command carebn in this shell: source $(RUN)/activate"

test test-fast: $(VENV)/.installed-for-tests
	$(RUN)/ruff format --check .
	$(RUN)/ruff check .
	$(RUN)/mypy
	OMP_NUM_THREADS=1 $(RUN)/python -m pytest -n auto --dist worksteal $(if $(filter test-fast,$@),-m "not slow")

browser-test: $(VENV)/.installed-for-tests
	@command -v chromedriver >/dev/null || { apt-get update -q && apt-get install -y -q chromium chromium-driver; } \
		|| { echo "make browser-test needs Chromium with its chromedriver: install the packages chromium and chromium-driver"; exit 1; }
	$(RUN)/python -m pytest tests/study/test_report_browser.py tests/docs/test_site_browser.py

slurm-test: $(VENV)/.installed-for-tests
	@$(RUN)/python tests/study/slurm_cluster.py 2>/dev/null || { apt-get update -q \
		&& DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends slurm-wlm munge; } || true
	@$(RUN)/python tests/study/slurm_cluster.py
	CAREBN_CLUSTERS=1 OMP_NUM_THREADS=1 $(RUN)/python -m pytest -v tests/study/test_slurm.py

ray-test: $(VENV)/.installed-for-tests
	CAREBN_CLUSTERS=1 OMP_NUM_THREADS=1 $(RUN)/python -m pytest -v tests/study/test_ray_nodes.py

kill-test: $(VENV)/.installed-for-tests
	CAREBN_KILLS=12 $(RUN)/python -m pytest tests/training/test_resume.py tests/training/test_extension.py
	CAREBN_KILL_SHARE=1 $(RUN)/python -m pytest tests/training/test_file_operations.py -k killed

damage-test: $(VENV)/.installed-for-tests
	CAREBN_MUTATIONS=1000 $(RUN)/python -m pytest tests/training/test_file_operations.py -k damaged

CASES ?= 3000
SEED ?= 1
fuzz: $(VENV)/.installed-for-tests
	PYTHONPATH=tests $(RUN)/python -m fuzz --cases $(CASES) --seed $(SEED)

hostile: CASES = 2000
hostile: $(VENV)/.installed-for-tests
	PYTHONPATH=tests OMP_NUM_THREADS=1 $(RUN)/python -m hostile --cases $(CASES) --seed $(SEED)

CHIP_PACKAGES := gcc-arm-none-eabi libnewlib-arm-none-eabi gcc-riscv64-unknown-elf picolibc-riscv64-unknown-elf \
	qemu-system-arm qemu-system-misc
chip-test: $(VENV)/.installed-for-tests
	@{ command -v gcc && command -v arm-none-eabi-gcc && command -v riscv64-unknown-elf-gcc \
		&& command -v qemu-system-arm && command -v qemu-system-riscv32; } >/dev/null \
		|| { apt-get update -q && apt-get install -y -q --no-install-recommends gcc libc6-dev $(CHIP_PACKAGES); } \
		|| { echo "make chip-test needs compilers and QEMU: install the packages gcc $(CHIP_PACKAGES)"; exit 1; }
	PYTHONPATH=tests OMP_NUM_THREADS=1 $(RUN)/python -m chip $(CHIP)

presets: $(VENV)/.installed
	for method in $$($(RUN)/python -c 'from carebn.training.methods import METHODS; print(*METHODS)'); do \
		$(RUN)/carebn train --env-id Hopper-v4 --method $$method --total-timesteps 3000 --learning-starts 2000 \
			--random-steps 2000 --eval-interval 3000 --run-dir runs/presets/$$method --quiet \
		&& $(RUN)/carebn evaluate runs/presets/$$method || exit 1; \
	done

bench-training: $(VENV)/.installed-for-tests
	$(INSTALL) --editable ".[fastest]" || echo "without RLtools and SBX, which could not be installed"
	$(RUN)/python benchmarks/bench_training.py --out results/bench_training.json

bench-envs: $(VENV)/.installed
	$(RUN)/python benchmarks/bench_envs.py --out results/bench_envs.json

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

$(VENV)/.installed-for-docs: $(VENV)/.installed
	$(INSTALL) --editable ".[docs]"
	@touch $@

docs: $(VENV)/.installed-for-docs
	$(RUN)/python -m sphinx --fail-on-warning --keep-going --nitpicky --quiet -b html docs build/docs
	@echo "the site: $(abspath build/docs/index.html)"

results: $(VENV)/.installed
	$(RUN)/carebn study results results --out docs/results.md --readme README.md --algorithms docs/algorithms

drawings:
	$(PYTHON) docs/draw_rooms.py

clean:
	rm -rf $(VENV) build src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
