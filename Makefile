# One command each; every one of them sets up what it needs in .venv on its first run.
#
#   make book     execute the chapters that changed and build the site: _build/html/index.html
#   make test     unit, property, notebook and site tests
#   make test-portable  unit tests and the chapters that train, under the kernels of other CPUs
#   make check-site  open each page of the site in a browser and check it
#   make check-colab  run each chapter as on Colab, in a stand-in for it
#   make notebooks  the chapters as notebooks that read anywhere, with their outputs: _build/notebooks
#   make lab      JupyterLab on copies of these, to run and change: workbooks/
#   make serve    the site at http://localhost:8000
#   make student  such copies without solutions: _build/student
#   make lint     style, addresses and layers
#   make pdf      the whole book for print: _build/geometry-of-positional-encodings.pdf
#   make bench    posgeom beside what one would use without it: benchmarks/RESULTS.md
#   make clean    delete _build;  make distclean: .venv too

# The first that runs: a name that is found may still be one that is not installed.
RUNS   = for python in python3.11 python3.12 python3.13; do $$python -c '' 2> /dev/null && echo $$python && break; done
PYTHON ?= $(firstword $(shell $(RUNS)) python3)
PORT   ?= 8000
JOBS   ?= 2
BIN    := .venv/bin

.DEFAULT_GOAL := book
.PHONY: book notebooks test test-portable check-site check-colab lab serve student pdf bench clean distclean environment lint

environment:
	@$(PYTHON) tools/environment.py

book: environment
	@$(BIN)/python tools/build.py --jobs $(JOBS)

test: environment lint
	@$(BIN)/python -m pytest --numprocesses $(JOBS) $(PYTEST)

test-portable: environment
	@$(BIN)/python tools/portable.py --jobs $(JOBS) $(PORTABLE)

check-site: book
	@$(BIN)/python tools/check_site.py --jobs $(JOBS)

check-colab: environment
	@$(BIN)/python tools/colab_check.py

lint: environment
	@$(BIN)/ruff check .
	@$(BIN)/python tools/address.py
	@$(BIN)/python tools/architecture.py

notebooks: book
	@echo "the notebooks are in _build/notebooks"

lab: book
	@$(BIN)/python tools/copies.py work
	@$(BIN)/jupyter-lab --notebook-dir=workbooks $(if $(filter 0,$(shell id -u)),--allow-root) $(LAB)

serve: book
	@echo "the book is at http://localhost:$(PORT) (end with Ctrl-C)"
	@$(BIN)/python -m http.server --bind 127.0.0.1 --directory _build/html $(PORT)

student: book
	@$(BIN)/python tools/copies.py student

pdf: book
	@$(BIN)/python tools/pdf.py

bench: book
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c requirements.txt -r benchmarks/requirements.txt
	@$(BIN)/python benchmarks/run.py $(BENCH)

clean:
	rm -rf _build

distclean: clean
	rm -rf .venv *.egg-info
