#!/usr/bin/env bash
# Compiles Tandem for an image and stages it. Needs the packages that tools/install_dependencies.sh installs.
#   deploy/container/compile.sh cpu|cuda FOLDER
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

backend="${1:-}"
folder="${2:?usage: deploy/container/compile.sh cpu|cuda FOLDER}"
case "$backend" in
  cpu) cuda=OFF ;;
  cuda)
    cuda=ON
    tools/fetch_cuda.sh
    ;;
  *)
    echo "error: the backend is \"$backend\", want cpu or cuda" >&2
    exit 2
    ;;
esac

cmake --preset cpu-release -DTANDEM_BUILD_TESTS=OFF -DTANDEM_BUILD_BENCH=OFF -DTANDEM_CUDA="$cuda"
# Without a working compiler, the configuration continues without CUDA, which is right for other builds.
if [ "$backend" = cuda ] && ! grep -q '^CMAKE_CUDA_COMPILER:[A-Z]*=/' build/cpu-release/CMakeCache.txt; then
  echo "error: the backend is cuda, but no CUDA compiler works here" >&2
  exit 1
fi
cmake --build --preset cpu-release --target tandem
deploy/container/stage.sh build/cpu-release "$folder"
