#!/usr/bin/env bash
# Measures all figures of the serving engine and writes bench/results/serving.json and serving.md. This takes about three hours
# on a machine that does nothing else. The first run makes random models of 9 GB in build/bench-models.
#   bench/serving.sh                      all figures
#   bench/serving.sh --only saturated     one figure; --help lists the figures and the options
#   bench/serving.sh --quick              checks in a minute that everything runs, and keeps no figures
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tests/system/make_venv.sh
export TANDEM_BINARY_DIR="${TANDEM_BINARY_DIR:-$PWD/build/cpu-release}"
exec build/venv/bin/python -B bench/serving.py "$@"
