#!/usr/bin/env bash
# Checks and figures on an NVIDIA GPU, in under ten minutes: kernels against their references, agreement with the CPU, exactness,
# CUDA IPC between two processes and their deaths, compute-sanitizer, bandwidth and speedup. One table; JSON in bench/results/gpu.json.
#   bench/gpu.sh                  everything; builds what is missing first
#   bench/gpu.sh --only kills     one step; --help lists them and the options
#   bench/gpu.sh --shim           without a GPU, tiny: only whether the steps work
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export TANDEM_BINARY_DIR="${TANDEM_BINARY_DIR:-$PWD/build/cpu-release}"
needed=(bin/tandem bin/bench_device tests/matmul_cuda_test)  # the latter two are not built without CUDA
[[ " $* " != *" --shim "* ]] || needed=(bin/tandem)
for program in "${needed[@]}"; do
  [ ! -x "$TANDEM_BINARY_DIR/$program" ] || continue
  deploy/fetch_cuda.sh
  deploy/build.sh cpu-release
  break
done
tests/system/make_venv.sh
exec build/venv/bin/python -B bench/gpu.py "$@"
