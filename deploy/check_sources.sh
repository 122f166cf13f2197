#!/usr/bin/env bash
# Checks formatting and shell scripts, and runs clang-tidy over the sources of a configured build.
#   deploy/check_sources.sh [--analyze] [PRESET]   default: cpu-release (generated protobuf headers must have been built)
#     --analyze   clang-tidy follows paths through the code too (clang-analyzer-*), which takes three times as long
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

checks=(-checks=-clang-analyzer-*)
if [ "${1:-}" = --analyze ]; then
  checks=()
  shift
fi
preset="${1:-cpu-release}"
failed=0

echo "clang-format"
git ls-files -z '*.cc' '*.h' '*.cu' '*.cuh' '*.proto' | xargs -0 clang-format --dry-run --Werror || failed=1

echo "shellcheck"
git ls-files -z '*.sh' .ci/run | xargs -0 shellcheck || failed=1

# Tests are checked by the compiler's warnings alone: GoogleTest's macros trip many checks and take half of the time.
echo "clang-tidy"
run-clang-tidy -quiet "${checks[@]}" -p "build/$preset" -j "$(nproc)" "$PWD/(kernels|common|services)/.*\.cc$" \
  >"build/$preset/clang-tidy.log" 2>&1 || {
  grep -E '(warning|error):' "build/$preset/clang-tidy.log" | sort -u >&2 || cat "build/$preset/clang-tidy.log" >&2
  failed=1
}
exit "$failed"
