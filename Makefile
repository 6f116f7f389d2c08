# make demo   trains with and without compression on this machine and prints the answer
# make test   lint, types and every test
# make docs   writes the reference pages, and builds the documentation as a site in build/site
# make figures   copies figures and tables from results/reference into README.md and docs
# All do all their set-up in .venv themselves; they need python3 (3.10 to 3.13) with venv, make and g++.

PYTHON ?= python3
VENV   ?= .venv
RUN     = $(VENV)/bin
SOURCES = Makefile pyproject.toml constraints.txt $(wildcard kernels/* kernels/*/*)
INSTALL = $(RUN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test lint types docs figures clean

demo: $(VENV)/.demo
	@PATH="$(abspath $(RUN)):$$PATH" bash studies/demo.sh

test: lint types
	@$(RUN)/python -m pytest

lint: $(VENV)/.test
	@$(RUN)/ruff check . && $(RUN)/ruff format --check . && $(RUN)/codespell

types: $(VENV)/.test
	@$(RUN)/mypy

docs: $(VENV)/.docs
	@$(RUN)/python docs/generate.py && $(RUN)/mkdocs build --quiet --strict && echo build/site/index.html

figures: $(VENV)/.demo
	@$(RUN)/python benchmarks/figures.py

clean:
	rm -rf $(VENV) build

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' || \
	 { echo "hpcbench needs Python 3.10 to 3.13: make PYTHON=python3.12 ..." >&2; exit 2; }
	@command -v g++ >/dev/null || { echo "hpcbench needs g++ to build its kernels: install it first" >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV) || { echo "python3 lacks venv: on Debian, install python3-venv" >&2; exit 2; }

$(VENV)/.demo: $(SOURCES) | $(VENV)/bin/python
	@echo "installing hpcbench into $(VENV) (PyTorch is large: some minutes on a slow line)"
	@$(INSTALL) --editable '.[train,local,report]'
	@touch $@

$(VENV)/.test: $(SOURCES) | $(VENV)/bin/python
	@echo "installing hpcbench and its tests into $(VENV)"
	@$(INSTALL) --editable '.[train,local,test,dev]'
	@touch $@ $(VENV)/.demo

$(VENV)/.docs: $(SOURCES) | $(VENV)/bin/python
	@echo "installing hpcbench and what builds its documentation into $(VENV)"
	@$(INSTALL) --editable '.[docs]'
	@touch $@
