# Every target first sets up its own environment inside this clone (.tools, .venv, .cache).
PYTHON ?= python3
RUN := .venv/bin/python
CODE = $(wildcard src tests examples benchmarks scripts)
# Bytecode is kept, whatever the caller's shell says: thousands of modules would be compiled anew in
# every test process and in every process that a test starts.
unexport PYTHONDONTWRITEBYTECODE
CORES = $(shell getconf _NPROCESSORS_ONLN)
# One process more than cores, because some tests wait; one that runs out takes some of another's.
SHARED = -n $(shell expr $(CORES) + 1) --dist worksteal

.DEFAULT_GOAL := help
.PHONY: help demo quick test fallback sweep coverage check soak docs sync reference bench toolloop exchange comingfrom environment keywords lock clean

help:  ## list the targets
	@sed -nE 's/^([a-z]+):[^#]*## (.*)/make \1\t\2/p' Makefile | expand -t 14

demo: environment  ## talk to a session, without any key
	@HAPTERA_HOME=$(CURDIR)/.cache/haptera $(RUN) -P -m haptera.demo

quick: environment  ## run the tests that take under a minute together, for the inner loop
	$(RUN) -m pytest $(SHARED) -m "not soak and not sweep and not slow" \
	  --hypothesis-profile=quick $(ARGS)

test: environment  ## run all tests in random order, on all cores
	$(RUN) -m pytest $(SHARED) $(ARGS)

fallback: environment  ## run the tests of tools where user namespaces are refused
	$(RUN) scripts/without_namespaces.py $(RUN) -m pytest $(SHARED) \
	  -m "not namespaces and not soak and not sweep" --ignore tests/tools/mcp tests/tools $(ARGS)

sweep: environment  ## run the larger samples and the checks of the whole tree, as .ci/run does
	$(RUN) -m pytest $(SHARED) -m "sweep and not soak" $(ARGS)

coverage: environment  ## run all tests with branch coverage
	$(RUN) -m pytest $(SHARED) --cov --cov-report=term $(ARGS)

check: environment  ## run all linters and type checkers
	$(RUN) scripts/write_entry_tables.py --check
	$(RUN) -m ruff format --check $(CODE)
	$(RUN) -m ruff check $(CODE)
	$(RUN) -m mypy $(CODE)
	$(RUN) -m scripts.write_late_names --check
	$(RUN) -m scripts.write_verbs --check
	$(RUN) -m scripts.write_sync_faces --check
	.venv/bin/lint-imports --no-logo
	$(RUN) scripts/write_keywords.py --check

soak: environment  ## run the long versions of the tests
	$(RUN) -m pytest -m soak --timeout=3600 --hypothesis-profile=soak $(ARGS)

docs: environment  ## write what is derived from options and entries: tables, unions
	$(RUN) scripts/write_option_tables.py
	$(RUN) scripts/write_entry_tables.py

keywords: environment  ## write the keywords of functions from the declarations of options
	$(RUN) scripts/write_keywords.py

sync: environment  ## write the methods of faces, the blocking faces, and the tables of late names
	$(RUN) -m scripts.write_late_names
	$(RUN) -m scripts.write_verbs
	$(RUN) -m scripts.write_sync_faces

reference: environment  ## build the documentation with the API reference into .cache/site
	$(RUN) -m mkdocs build --strict

bench: environment  ## run the benchmarks
	$(RUN) -m benchmarks $(ARGS)

toolloop: environment  ## let a model on this machine call a tool (fetches 1.1 GB once)
	$(RUN) scripts/qwen_tool_loop.py $(ARGS)

TOOLS = claude-code codex opencode pi
exchange: environment  ## let the real tools go on with our exports (fetches 1.5 GB once; TOOLS=pi: 0.4)
	$(PYTHON) -m scripts.set_up_exchange_tools $(TOOLS)
	$(RUN) -m pytest -m soak tests/formats/real_tools \
	  -k "$(foreach tool,$(TOOLS),[$(tool)] or) none" $(ARGS)

comingfrom: environment  ## run the programs of docs/coming-from with the libraries they are about
	@$(PYTHON) -m scripts.set_up_coming_from
	.cache/coming-from/bin/python -m pytest tests/coming_from/programs.py --noconftest -c /dev/null \
	  --rootdir . -p no:cacheprovider \
	  -o asyncio_mode=auto -o asyncio_default_fixture_loop_scope=function -q $(ARGS)

environment:
	@$(PYTHON) scripts/set_up_environment.py

lock:  ## resolve uv.lock again; ARGS=--upgrade takes newer versions
	$(PYTHON) scripts/set_up_environment.py lock $(ARGS)

clean:  ## remove everything the targets above made
	rm -rf .tools .venv .cache .coverage .hypothesis .import_linter_cache .mypy_cache .pytest_cache \
	  .ruff_cache build dist
	find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +
