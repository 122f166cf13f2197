#!/usr/bin/env bash
# Installs missing packages, then configures and builds a preset. Shows progress on the terminal.
#   tools/build.sh [PRESET [TARGET...]]     default: cpu-release, everything
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

preset="${1:-cpu-release}"
shift || true

tools/install_dependencies.sh

# Succeeds if the folder was configured without a working CUDA compiler and there is one now. Builds with sanitizers need none.
lacks_cuda() {
  grep -Eqs '^(TANDEM_NVCC|CMAKE_CUDA_COMPILER):[A-Z]*=.*NOTFOUND$' "build/$preset/CMakeCache.txt" || return 1
  command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ] || [ -e build/cuda/complete ]
}

if [ ! -f "build/$preset/build.ninja" ] || lacks_cuda; then
  echo "Configuring $preset"
  mkdir -p "build/$preset"
  # The log is shown only after a failure.
  cmake --preset "$preset" >"build/$preset/configure.log" 2>&1 || {
    cat "build/$preset/configure.log" >&2
    exit 1
  }
fi
# Prints one changing line on a terminal, or one line per step elsewhere. Prints nothing if there is nothing to build.
NINJA_STATUS="Building [%f/%t, %es] " cmake --build --preset "$preset" ${1:+--target "$@"}
