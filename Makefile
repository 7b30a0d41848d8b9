# The commands of the deployment workbook. Each sets itself up first; a second call reinstalls nothing.
PYTHON  ?= python3
PROFILE ?= quick
# `make run DEEPER=yes` runs the tours and proofs of notebooks/deeper after the lessons
DEEPER  ?= no
# tests wait a third of their time for processes, browsers and kills: three at a time keep two cores busy
JOBS    ?= 3
# NVIDIA's TensorRT-RTX is proprietary. `make lab TENSORRT=no` sets up without it; THIRD_PARTY.md says what that means.
TENSORRT ?= yes
# `make lab GPU=no` leaves out what PyTorch for Linux brings and starts without: 1.5 of 7.5 GB. docs/installing.md says what goes.
GPU ?= yes
# of pyproject.toml; what an NVIDIA GPU or only a comparison needs is left out
EXTRAS  := lab engines compress language cluster tables book dev
UV      := uv==0.13.8
BIN     := .venv/bin
READY   := .venv/.ready
TESTS    = OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist worksteal

.PHONY: run book test test-fast test-release lab lint lock clean help

help:            ## what can be made
	@grep -E '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed 's/:[^#]*##/\t/'

run: $(READY)    ## execute every notebook (PROFILE=quick|lab|paper), then write artifacts/report.html
	$(BIN)/labkit run --profile $(PROFILE)$(if $(filter yes,$(DEEPER)), --deeper)

book: $(READY)   ## write the course as a website into artifacts/book, from what was run
	$(BIN)/python docs/book/build.py

test: $(READY)   ## run the tests, three at a time: 20 to 40 minutes on two cores
	$(TESTS) -m "not release"

test-release: $(READY)  ## run all tests, those of a release too: faults put into every claim and into labkit, lessons without optional parts, a class
	$(TESTS)

test-fast: $(READY)  ## all but lessons, browser, kill drills and what takes seconds: about two minutes
	$(TESTS) -m "not (course or browser or kills or slow or release)"

lab: $(READY)    ## open JupyterLab on your own copies of the lessons, in my-lessons/
	$(BIN)/labkit lab

lint: $(READY)   ## check code, notebooks and types
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

lock: $(READY)   ## pin the dependencies of pyproject.toml anew, with hashes and without any host
	$(BIN)/uv pip compile -q --upgrade --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	    $(EXTRAS:%=--extra %) pyproject.toml -o requirements.lock

# The stamp is written last, so an install that was cut short is taken up again by the next call. Bytecode is compiled
# here: where Python may not write it beside the packages, every kernel would spend ten seconds on it again.
$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 11) <= v < (3, 14) else \
	  "This workbook needs Python 3.11, 3.12 or 3.13; found %d.%d. Next: make PYTHON=python3.12 $(MAKECMDGOALS); where no such Python is: docs/installing.md, Another Python" % v)'
	@echo "Setting up .venv: $(if $(filter no,$(GPU)),6.0,7.5) GB on disk, once: minutes on a fast line, half an hour or more on a slow one. If it is cut short, the same"
	@echo "command goes on. On Linux NVIDIA's libraries are part of it, under NVIDIA's terms: THIRD_PARTY.md names them. TENSORRT=no leaves"
	@echo "TensorRT-RTX out, GPU=no 1.5 GB that no CPU needs."
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv .venv  # without the system's python3-venv it breaks off halfway
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(UV)
	@awk -v rtx=$(TENSORRT) -v gpu=$(GPU) '/^[a-z0-9]/ {out = rtx == "no" && /^tensorrt-rtx/ || \
	  gpu == "no" && /^(triton|cuda-[a-z]+|nvidia-(cusolver|nvjitlink|cuda-cccl|nvtx))==/} !out' requirements.lock > .venv/requirements.lock
	$(BIN)/uv pip install --python $(BIN)/python --require-hashes --no-deps --compile-bytecode -r .venv/requirements.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
# What torch.compile does once on a machine, ten seconds: it tries the C++ compiler and prepares its headers. Here no
# lesson waits for it. Where there is no compiler, `labkit doctor` and the lessons say so.
	@$(BIN)/python -c 'import torch; torch.compile(lambda x: x + 1)(torch.ones(8))' >/dev/null 2>&1 || true
	@touch $(READY)

clean:           ## remove what runs produced and the virtual environment, never artifacts/recorded or my-lessons
	find artifacts -mindepth 1 -maxdepth 1 ! -name recorded ! -name README.md -exec rm -rf {} +
	rm -rf .venv
