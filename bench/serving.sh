#!/usr/bin/env bash
# Measures all figures of the serving engine and writes bench/results/serving.json and serving.md. Takes about three hours and
# wants a machine with nothing else to do; the first run makes random models of 9 GB in build/bench-models.
#   bench/serving.sh                      all figures
#   bench/serving.sh --only saturated     one of them; --help lists them and the options
#   bench/serving.sh --quick              only whether everything runs, in a minute: no figures are kept
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tests/system/make_venv.sh
export TANDEM_BINARY_DIR="${TANDEM_BINARY_DIR:-$PWD/build/cpu-release}"
exec build/venv/bin/python -B bench/serving.py "$@"
