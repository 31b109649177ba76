# make demo      the main job on real input: three brokers, a Spark stream, a broker and the driver killed, the result proved
# make check     the checks, the tests without processes, one cluster and one Spark: what a change needs while it is made
# make test      every check and a test of every promise; CONTRIBUTING.md says what only test-all runs
# make test-all  the same with all of their seeds, and the tests of Spark on each version that is served

BIN := .venv/bin

# Beside that of .venv; integration_tests/support/spark_versions.py lists the same.
EARLIER_SPARKS := 4.0 4.1 4.2

# Beside that of .venv, where they are on the PATH or of pyenv.
LATER_PYTHONS := 3.12 3.13

# What Python has compiled is kept, whatever the environment says: hundreds of processes start.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo check test test-all checks tests quick-tests compiled

demo: .venv/.set-up
	$(BIN)/python -m examples.flights.demo

# The checks run beside the tests, which wait for timeouts at times. Either fails the whole.
test: .venv/.set-up
	$(MAKE) --jobs=3 checks tests

check: .venv/.set-up
	$(MAKE) --jobs=3 checks quick-tests

checks: .venv/.set-up
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/python .ci/messages.py --check
	$(BIN)/mypy

# Four at a time on two processors, one of them for all that use Spark: the others wait for timeouts
# more than they compute.
# Which of them runs what, and when: conftest.py.
tests: .venv/spark/classes.jsa compiled
	$(BIN)/python -m pytest -n 4 --dist loadfile

quick-tests: .venv/spark/classes.jsa compiled
	$(BIN)/python -m pytest -n 4 --dist loadfile -m check

# Each of the four collects all tests: in seven seconds where the tests are compiled, else in eighteen. What is wrong
# with one is told by the run.
compiled: .venv/.set-up
	-$(BIN)/python -m pytest --collect-only -qq >/dev/null

test-all: export HEADRACE_FAULTS := full
test-all: $(EARLIER_SPARKS:%=.venv/versions/%/classes.jsa) test
	$(MAKE) --keep-going $(EARLIER_SPARKS:%=spark-%) $(LATER_PYTHONS:%=python-%)

# One version: make spark-4.1
spark-%: .venv/versions/%/classes.jsa
	HEADRACE_FAULTS= HEADRACE_SPARK=$* $(BIN)/python -m pytest connector/tests \
		integration_tests/spark/test_spark_*.py integration_tests/*/test_spark_exactly_once.py \
		integration_tests/keyed_sink examples/usage

# The package is installed with one version of Python and streams there, or it is said that there is none: make python-3.12
python-%: .venv/.set-up
	HEADRACE_FAULTS=full HEADRACE_PYTHON=$* $(BIN)/python -m pytest integration_tests/alone -k bare_package

.venv/.set-up: setup.cfg pyproject.toml .ci/set-up
	.ci/set-up
	touch $@

# What lets the tests start Spark at a third of the cost.
.venv/spark/classes.jsa: .venv/.set-up .ci/spark_home.py .ci/spark_jobs.py
	$(BIN)/python .ci/spark_home.py

.venv/versions/%/classes.jsa: .venv/.set-up .ci/spark_home.py .ci/spark_jobs.py
	$(BIN)/python .ci/spark_home.py $*
