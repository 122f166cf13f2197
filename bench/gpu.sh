#!/usr/bin/env bash
# Checks and measures an NVIDIA GPU: kernels against their references, agreement with the CPU, exactness, CUDA IPC between two processes
# and their deaths, compute-sanitizer, bandwidth, speedup, and a comparison with Hugging Face transformers. It takes less than ten minutes,
# plus the time for builds. It prints one table and writes bench/results/gpu.json.
#   bench/gpu.sh                      builds what is missing or old, and fetches a CUDA compiler if there is none; then runs all steps
#   bench/gpu.sh --binaries DIR       uses the executables of a build folder or an unpacked bundle; steps that lack one are skipped
#   bench/gpu.sh --binaries ARCHIVE   the same with an archive of either; the target gpu_check_archive makes a complete one
#   bench/gpu.sh --shim               runs tiny steps without a GPU, only to check that the steps work
# More options:
#   --only STEP,…     some of: kernels, agreement, exactness, heads, kills, sanitizer, bandwidth, prompts, sampling, end_to_end, trees,
#                     assisted
#   --out FILE        file for the JSON
#   --gpu N           number of the GPU in nvidia-smi (0)
#   --python PYTHON   a Python that has torch and transformers (python3); without them `assisted` is skipped
#   --commit TEXT     commit of the binaries in the JSON (default: the commit of this folder in git)
#   --limit SECONDS   limit of all steps together (590)
# The exit code is 0 if no check failed. A figure that misses its goal is marked MISSED. With an archive of gpu_check_archive, nothing is
# fetched if python3 has grpcio; without it, build/venv is made.
set -euo pipefail

usage() { sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; }

# These variables are read before anything is built or changed.
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
      # A relative path starts at the folder of the caller, which this script leaves below. A name without a slash is searched for in PATH.
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
  [ "$shim" = true ] || tools/fetch_cuda.sh  # it does nothing if there is a compiler
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
  # The program nearest to the top counts, because a build folder may contain a bundle.
  program="$(find "$folder" -path '*/bin/tandem' -printf '%d %p\n' | sort -n | sed -n '1s/^[0-9]* //p')"
  binaries="${program%/bin/tandem}"
fi
if [ ! -x "$binaries/bin/tandem" ]; then
  echo "error: --binaries: there is no bin/tandem" >&2
  exit 2
fi

# The modules that bench/gpu.py imports may be installed already, and a machine with a GPU may have no network.
export TANDEM_BINARY_DIR="$binaries"
python=python3
if ! "$python" -B bench/gpu.py --help >/dev/null 2>&1; then
  tests/system/make_venv.sh
  python=build/venv/bin/python
fi
exec "$python" -B bench/gpu.py "${arguments[@]}"
