# The commands of the project; each sets up what it needs.  `make help` lists them.
PY = .venv/bin/python
export PIP_DISABLE_PIP_VERSION_CHECK = 1
export PATH := $(CURDIR)/.venv/bin:$(PATH)
SOURCES := $(shell git ls-files -co --exclude-standard native src tools meson.build meson.options pyproject.toml 2>/dev/null)

help: ## this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

setup: .venv/built ## prepare .venv; then .venv/bin/penstock is the program

.venv/ready: packaging/apt.txt packaging/requirements.txt tools/setup.sh
	tools/setup.sh
	@touch $@

.venv/built: .venv/ready $(SOURCES)
	$(PY) -m pip install -q --no-build-isolation --no-deps --force-reinstall -Cbuild-dir=build/wheel .
	@touch $@

demo: setup ## what Penstock does, on an emulated file system; ends with a page to look at
	@$(PY) tools/demo.py $(NAME)

test: setup ## every test
	$(PY) -m pytest -q $(ARGS)

fuzz: setup ## every fuzzer, a million inputs each; make fuzz NAME=layout for one
	$(PY) tools/fuzz.py --runs 1000000 $(NAME)

lint: setup ## format, style, types, import directions
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy
	.venv/bin/lint-imports

docs: setup ## man pages and completions into build/, tables into the guides
	$(PY) tools/man.py build/man
	$(PY) tools/settings_doc.py
	$(PY) tools/report_doc.py
	$(PY) tools/board_doc.py --write
	$(PY) tools/calls.py doc native/calls.def >docs/reference/calls.md
	@mkdir -p build/completion
	.venv/bin/penstock completion bash >build/completion/penstock
	.venv/bin/penstock completion zsh >build/completion/_penstock
	.venv/bin/penstock completion fish >build/completion/penstock.fish

bench: setup ## tables of figures: make bench NAME=interpose, or all
	$(PY) -m benchmarks $(NAME)

experiment: setup ## a published figure, done again: make experiment NAME=padll-fig5
	$(PY) -m experiments.$(subst -,_,$(NAME)) $(ARGS)

clean: ## all that was built
	rm -rf .venv build dist

.PHONY: experiment help setup demo test fuzz lint docs bench clean
