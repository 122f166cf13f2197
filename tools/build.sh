#!/usr/bin/env bash
# Installs what is missing, then configures and builds a preset with progress on the terminal.
#   tools/build.sh [PRESET [TARGET...]]     default: cpu-release, everything
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

preset="${1:-cpu-release}"
shift || true

tools/install_dependencies.sh

# Whether the folder was configured without a CUDA compiler that works, and there is one now. Under sanitizers none is looked for.
lacks_cuda() {
  grep -Eqs '^(TANDEM_NVCC|CMAKE_CUDA_COMPILER):[A-Z]*=.*NOTFOUND$' "build/$preset/CMakeCache.txt" || return 1
  command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ] || [ -e build/cuda/complete ]
}

if [ ! -f "build/$preset/build.ninja" ] || lacks_cuda; then
  echo "Configuring $preset"
  mkdir -p "build/$preset"
  # The log is only worth reading when it fails.
  cmake --preset "$preset" >"build/$preset/configure.log" 2>&1 || {
    cat "build/$preset/configure.log" >&2
    exit 1
  }
fi
# One changing line on a terminal, a line a step elsewhere; nothing when there is nothing to do.
NINJA_STATUS="Building [%f/%t, %es] " cmake --build --preset "$preset" ${1:+--target "$@"}
