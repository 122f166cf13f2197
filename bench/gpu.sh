#!/usr/bin/env bash
# Checks and figures on an NVIDIA GPU: kernels against their references, agreement with the CPU, exactness, CUDA IPC between two processes
# and their deaths, compute-sanitizer, bandwidth, speedup, Hugging Face transformers beside it. Takes under ten minutes, and on top of that
# what there is to build. One table; JSON in bench/results/gpu.json.
#   bench/gpu.sh                      builds what is missing or old, fetching a CUDA compiler where there is none; then everything
#   bench/gpu.sh --binaries DIR       with the executables of a build folder, or of an unpacked bundle: what these lack is skipped
#   bench/gpu.sh --binaries ARCHIVE   the same, of an archive of either; the target gpu_check_archive makes one that lacks nothing
#   bench/gpu.sh --shim               without a GPU, tiny: only whether the steps work
# and:
#   --only STEP,…     of kernels, agreement, exactness, kills, sanitizer, bandwidth, end_to_end, assisted
#   --out FILE        where the JSON goes
#   --gpu N           which GPU, in the order of nvidia-smi (0)
#   --python PYTHON   one that has torch and transformers (python3); without them `assisted` is skipped
#   --commit TEXT     what the JSON says of the binaries' commit (what git says of this folder)
#   --limit SECONDS   of all steps together (590)
# The exit code is 0 when no check failed. A figure that misses its goal says MISSED. Nothing is fetched with --binaries where python3 has
# grpcio-tools; without it, build/venv is made.
set -euo pipefail

usage() { sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; }

# Before anything is built or changed.
binaries="${TANDEM_BINARY_DIR:-}"
shim=false
arguments=()
while [ $# -gt 0 ]; do
  case "$1" in
    --*=*) set -- "${1%%=*}" "${1#*=}" "${@:2}" ;;
  esac
  case "$1" in
    -h | --help)
      usage
      exit 0
      ;;
    --binaries)
      binaries="${2:?--binaries: want a folder or an archive}"
      shift
      ;;
    --out | --python)
      value="${2:?$1: want a path}"
      # From where this was started, which is left below. A name without a slash is looked for on the path.
      if [[ "$value" != /* && ("$1" == --out || "$value" == */*) ]]; then
        value="$PWD/$value"
      fi
      arguments+=("$1" "$value")
      shift
      ;;
    --shim)
      shim=true
      arguments+=("$1")
      ;;
    *) arguments+=("$1") ;;
  esac
  shift
done
[ -z "$binaries" ] || binaries="$(realpath -- "$binaries")"
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [ -z "$binaries" ]; then
  binaries="$PWD/build/cpu-release"
  [ "$shim" = true ] || tools/fetch_cuda.sh  # which does nothing where there is a compiler
  tools/build.sh cpu-release
  if [ "$shim" = false ] && [ ! -x "$binaries/bin/bench_device" ]; then
    echo "error: built without CUDA: no CUDA compiler works here (build/cpu-release/configure.log)" >&2
    exit 1
  fi
elif [ -f "$binaries" ]; then
  folder="$PWD/build/gpu-binaries"
  rm -rf "$folder"
  mkdir -p "$folder"
  tar -xf "$binaries" -C "$folder"
  # The shallowest: a build folder may have a bundle inside of it.
  program="$(find "$folder" -path '*/bin/tandem' -printf '%d %p\n' | sort -n | sed -n '1s/^[0-9]* //p')"
  binaries="${program%/bin/tandem}"
fi
if [ ! -x "$binaries/bin/tandem" ]; then
  echo "error: --binaries: there is no bin/tandem" >&2
  exit 2
fi

# What bench/gpu.py imports may be here already, and a machine with a GPU may have no network.
python=python3
if ! "$python" -B bench/gpu.py --help >/dev/null 2>&1; then
  tests/system/make_venv.sh
  python=build/venv/bin/python
fi
export TANDEM_BINARY_DIR="$binaries"
exec "$python" -B bench/gpu.py "${arguments[@]}"
