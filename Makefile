# The two commands: `make demo` (two simulated hosts, the fleet's table) and `make test` (what every change is checked by).
NOX = .cache/venv/bin/nox --noxfile noxfile.py --parallel $(JOBS)
JOBS ?= 2

.PHONY: help demo demo-down test test-all lint sanity unit molecule docs venv clean

help:
	@echo "make demo       two hosts with simulated GPUs, playbooks/site.yml run on them, the fleet's GPU table"
	@echo "make demo-down  takes the demo away"
	@echo "make test       lint, sanity, unit tests on ansible-core 2.21 and 2.19, Molecule's scenarios"
	@echo "make test-all   that, and what takes long: drivers compiled, ansible-core 2.20, more whole runs of roles"
	@echo "make lint | sanity | unit | molecule [SCENARIO=gpu_facts] | docs | clean"

demo:
	@python3 demo/demo.py up

demo-down:
	@python3 demo/demo.py down

venv:
	@tests/tools/venv .cache/venv tests/requirements/dev.txt 3.12 3.13 3.14

test: venv
	@$(NOX)

test-all: venv
	@TEST_ALL=1 $(NOX)

lint: venv
	@$(NOX) --tags lint

sanity: venv
	@$(NOX) --session sanity

unit: venv
	@$(NOX) --tags unit

molecule: venv
	@$(NOX) $(if $(SCENARIO),--session molecule-$(SCENARIO),--tags molecule)

# The option tables of the roles' READMEs, from their argument specs.
docs: venv
	@.cache/venv/bin/python tests/tools/role_readme.py roles/*

clean:
	rm -rf .cache
