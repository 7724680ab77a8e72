# Two commands matter: `make demo` and `make test`. Both install into .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Tests start hundreds of processes that import the same files: each is compiled once.
unexport PYTHONDONTWRITEBYTECODE
# What the tests of a file share is made once. The slowest folders come first in the alphabet.
BY_FILE := --dist loadfile --no-loadscope-reorder

.PHONY: demo demo-short release test test-slow coverage docs-test pages-test sanitize search lint docs wheel mutation corpus pretrained clean help

help:
	@echo "make demo        install, then run the main job on the embedded corpus"
	@echo "make release     make a package to publish from the embedded corpus, in ten minutes"
	@echo "make test        install, then run the tests"
	@echo "make test-slow   the tests that need more time or reference data beside the checkout"
	@echo "make coverage    the tests with branch coverage, at least 95 %"
	@echo "make docs-test   the commands of README and docs, as a user runs them"
	@echo "make pages-test  every kind of page in headless Chromium, which must be installed; needs npm"
	@echo "make sanitize    fuzz targets and tests of the C sources under the sanitizers; needs gcc"
	@echo "make search      laws on twenty times as many examples, other ones in every run"
	@echo "make docs        build the site of the documentation into outputs/site"
	@echo "make wheel       build the wheel, install it into an empty environment without a compiler, run the short demo there"
	@echo "make lint        format, lint, types, import floors"
	@echo "make mutation    break the source in one place at a time; an hour or more"
	@echo "make corpus      collect the embedded corpus again"
	@echo "make pretrained  train the checkpoint that ships with the package again"

$(STAMP): pyproject.toml constraints.txt $(wildcard native/*/*.[ch])
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --no-compile --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	@touch $(STAMP)

demo: $(STAMP)
	$(BIN)/layerdag demo --out outputs/demo

demo-short: $(STAMP)
	$(BIN)/layerdag demo --out outputs/demo-short --short

release: $(STAMP)
	$(BIN)/layerdag release data --out outputs/release --budget 10m --num 200 --max-nodes 600 --license CC-BY-4.0

test: $(STAMP)
	$(BIN)/pytest -q -n 2 $(BY_FILE)

test-slow: $(STAMP)
	$(BIN)/pytest -q -m slow

coverage: $(STAMP)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev,coverage]"
	$(BIN)/pytest -q -n 2 $(BY_FILE) --cov=layerdag --cov-branch --cov-fail-under=95

docs-test: $(STAMP)
	$(BIN)/pytest -q -n 2 -m docs tests/docs

pages-test: $(STAMP)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev,pages]"
	npm install --silent --no-audit --no-fund --prefix outputs/pages axe-core@4.14.1
	$(BIN)/pytest -q -n 0 -m slow tests/integration/test_pages_in_a_browser.py

sanitize: $(STAMP)
	$(BIN)/python tests/fuzz/run.py --seconds 25

search: $(STAMP)
	$(BIN)/pytest -q -n 2 -m "hypothesis and not slow" --hypothesis-profile=search

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(STAMP)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[docs]"
	NO_MKDOCS_2_WARNING=1 DISABLE_MKDOCS_2_WARNING=true $(BIN)/mkdocs build --strict --quiet --site-dir outputs/site

wheel: $(STAMP)
	$(BIN)/pip install --quiet --disable-pip-version-check build
	rm -rf outputs/wheel
	$(BIN)/python -m build --wheel --outdir outputs/wheel .
	$(PYTHON) -m venv outputs/wheel/venv
	CC=false outputs/wheel/venv/bin/pip install --quiet --disable-pip-version-check --only-binary :all: --no-binary antlr4-python3-runtime \
		--constraint constraints.txt outputs/wheel/*.whl
	cd outputs/wheel && venv/bin/layerdag demo --out demo --short

mutation: $(STAMP)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev,mutation]"
	$(BIN)/python tools/mutation

corpus: $(STAMP)
	$(BIN)/python data/make_corpus.py

pretrained: $(STAMP)
	$(BIN)/python train.py experiment=pretrained out=outputs/pretrained-first
	$(BIN)/python train.py experiment=pretrained init=outputs/pretrained-first/best data.further=further \
		training.max_steps=14000 training.optimizer.learning_rate=1e-3

clean:
	rm -rf outputs build *.egg-info
