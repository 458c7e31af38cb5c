# Every target sets up what it needs inside this checkout: uv in .tools, the environment in .venv.
SHELL := /bin/bash
.DELETE_ON_ERROR:
.PHONY: test-ray demo fuzz test test-langchain test-pythons test-lowest test-nat test-fabric test-protocol test-clients test-chat-clients lint bench docs-check setup clean page test-browser test-copilotkit bench-serve

PYTHON := $(shell for p in "$$PYTHON" python3.12 python3.13 python3.11 python3 python; do \
	[ -n "$$p" ] && "$$p" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' >/dev/null 2>&1 \
	&& { "$$p" -c 'import sys; print(sys.executable)'; break; }; done)
UV := .tools/bin/uv
export UV_PYTHON := $(PYTHON)
export UV_PYTHON_DOWNLOADS := never
export UV_PROJECT_ENVIRONMENT := .venv
RUN := $(UV) run --frozen --no-sync

$(UV):
	@[ -n "$(PYTHON)" ] || { echo "make: Python 3.11, 3.12 or 3.13 is needed; set PYTHON=/path/to/python" >&2; exit 2; }
	"$(PYTHON)" -m venv .tools
	.tools/bin/python -m pip install --quiet --disable-pip-version-check 'uv>=0.8,<1'

setup: .venv/ready

.venv/ready: $(UV) pyproject.toml uv.lock
	$(UV) sync --frozen --quiet --extra cli --extra asgi --extra openai --extra langchain --extra fabric
	@touch $@

# A recorded run first, which takes a second; then a real NAT agent with two tools against a scripted model.
demo: setup
	$(RUN) python examples/recording/run.py
	"$(PYTHON)" tests/nat/run.py --prepare 1.9.0
	.venvs/nat-1.9.0/bin/python examples/nat/check.py

test: setup tests/clients/node_modules/.ready
	$(RUN) pytest
	$(MAKE) --no-print-directory fuzz SECONDS=30 SEED=1
	$(MAKE) --no-print-directory test-pythons test-lowest test-protocol test-langchain test-fabric test-chat-clients test-copilotkit test-browser
	$(MAKE) --no-print-directory test-nat NAT="1.9.0-profiler 1.6.0 core-alone"

# Mutations of every case and recording through both writers and both judges; a fault comes out as a test to paste.
SECONDS := 600
fuzz: setup
	PYTHONPATH=tests $(RUN) python -m fuzz --seconds $(SECONDS) $(SEED:%=--seed %) $(STREAM:%=--stream %)

# The core suite on the other Pythons of this machine, and with the lowest versions that pyproject.toml allows.
test-pythons test-lowest: test-%: setup
	"$(PYTHON)" scripts/core_suite.py $*

test-clients: setup tests/clients/node_modules/.ready
	$(RUN) pytest tests/clients

tests/clients/node_modules/.ready: tests/clients/package-lock.json
	cd tests/clients && ../../scripts/node --npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

# Every completion shape against the real Chat Completions clients; docs/chat-clients.md must say what they do.
test-chat-clients: setup .venvs/chat-clients/.ready .venvs/chat-agents/.ready tests/clients_chat/node_modules/.ready
	$(RUN) python tests/clients_chat/table.py --check

# chat-clients has openai 2, chat-agents openai 3.
.venvs/chat-%/.ready: $(UV) tests/clients_chat/requirements/chat-%.txt
	$(UV) venv --quiet --clear .venvs/chat-$*
	$(UV) pip install --quiet --python .venvs/chat-$*/bin/python -r tests/clients_chat/requirements/chat-$*.txt
	@touch $@

tests/clients_chat/node_modules/.ready: tests/clients_chat/package-lock.json
	cd tests/clients_chat && NODE_MAJOR=22 ../../scripts/node --npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

# Real agents of NAT 1.6 to 1.9, with and without its profiler, beside datarobot-genai, and its command without our extra;
# NAT="1.9.0-profiler 1.6.0" selects.
test-nat: $(UV) tests/clients/node_modules/.ready tests/clients_chat/node_modules/.ready
	"$(PYTHON)" tests/nat/run.py $(NAT)

# Real runtimes of NeMo Fabric's SDK around our adapters, an openai client and a real NAT among their targets.
FABRIC ?= 0.5.0 0.2.0
test-fabric: $(FABRIC:%=.venvs/fabric-%/.ready) tests/clients/node_modules/.ready
	"$(PYTHON)" tests/nat/run.py --prepare 1.9.0
	set -e; for version in $(FABRIC); do \
		echo "nemo-fabric-runtime $$version"; .venvs/fabric-$$version/bin/python -m pytest -q tests/fabric/sdk examples/fabric; \
		.venvs/fabric-$$version/bin/python examples/fabric/check.py; \
	done

.venvs/fabric-%/.ready: $(UV) pyproject.toml tests/fabric/requirements/fabric-%.txt
	$(UV) venv --quiet --clear .venvs/fabric-$*
	$(UV) pip sync --quiet --python .venvs/fabric-$*/bin/python tests/fabric/requirements/fabric-$*.txt
	$(UV) pip install --quiet --python .venvs/fabric-$*/bin/python --no-deps --editable .
	@touch $@

# The same wire JSON from every ag-ui-protocol: the oldest that is supported and the last before 1.0. .venv has the newest.
PROTOCOLS ?= 0.1.15 0.1.22
test-protocol: $(PROTOCOLS:%=.venvs/ag-ui-%/.ready)
	set -e; for version in $(PROTOCOLS); do \
		echo "ag-ui-protocol $$version"; .venvs/ag-ui-$$version/bin/python -m pytest -q tests/test_cases.py tests/test_events.py \
			tests/test_ledger.py tests/test_response.py tests/test_step_adaptor.py tests/test_stream_converter.py tests/test_trace.py; \
	done

.venvs/ag-ui-%/.ready: $(UV) pyproject.toml
	$(UV) venv --quiet --clear .venvs/ag-ui-$*
	$(UV) pip install --quiet --python .venvs/ag-ui-$*/bin/python -e . ag-ui-protocol==$* ag-ui-validate==0.4.0 \
		hypothesis langchain-core openai pytest pytest-asyncio pytest-randomly
	@touch $@

# The real LangChain packages of Anthropic, AWS, Google and OpenAI, and an agent on each, over sockets.
test-langchain: .venvs/langchain/.ready
	.venvs/langchain/bin/python -m pytest -q tests/providers

.venvs/langchain/.ready: $(UV) pyproject.toml tests/providers/requirements.txt
	$(UV) venv --quiet --clear .venvs/langchain
	$(UV) pip sync --quiet --python .venvs/langchain/bin/python tests/providers/requirements.txt
	$(UV) pip install --quiet --python .venvs/langchain/bin/python --no-deps --editable .
	@touch $@

lint: setup
	$(RUN) ruff format --check .
	$(RUN) ruff check .
	$(RUN) pyright
	"$(PYTHON)" tests/nat/run.py --prepare 1.9.0-profiler
	$(RUN) pyright -p tests/nat/pyrightconfig.json
	$(RUN) lint-imports
	$(MAKE) --no-print-directory docs-check

# Links, imports, verbs and targets that the documents name.
docs-check: setup
	$(RUN) python scripts/docs_check.py

test-ray: $(UV)
	$(UV) venv --quiet --allow-existing .venvs/ray
	$(UV) pip install --quiet --python .venvs/ray/bin/python -e . 'ray[data]==2.49.2' pytest
	.venvs/ray/bin/python -m pytest -q -c /dev/null --rootdir examples/ray examples/ray

bench: setup
	$(RUN) python benchmarks/peers.py
	$(RUN) python benchmarks/convert.py --json benchmarks/results/convert.json

# The page of `dragent-stream serve`, bundled into the package from page/; the result is committed.
page: page/node_modules/.ready
	scripts/node page/build.mjs

page/node_modules/.ready: page/package-lock.json
	scripts/node --npm ci --prefix page --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

# The page in a real browser; chromium comes from Debian's packages.
test-browser: .venvs/browser/.ready
	@command -v chromium >/dev/null || { \
		[ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
		|| { echo "make test-browser: chromium is needed; install it with: apt-get install chromium" >&2; exit 2; }; \
		apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium fonts-noto-core >/dev/null; }
	.venvs/browser/bin/python -m pytest tests/browser

.venvs/browser/.ready: $(UV) pyproject.toml uv.lock
	UV_PROJECT_ENVIRONMENT=.venvs/browser $(UV) sync --frozen --quiet --no-default-groups --group test --group browser \
		--extra asgi --extra cli
	@touch $@

# Every recording through CopilotKit's runtime.
test-copilotkit: setup tests/copilotkit/node_modules/.ready
	$(RUN) pytest tests/copilotkit

tests/copilotkit/node_modules/.ready: tests/copilotkit/package-lock.json
	scripts/node --npm ci --prefix tests/copilotkit --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

bench-serve: setup
	$(RUN) python benchmarks/serve.py --json benchmarks/results/serve.json

clean:
	rm -rf .tools .venv .venvs node_modules page/node_modules tests/clients/node_modules tests/copilotkit/node_modules
