#!/usr/bin/env bash
# Checks formatting, shell scripts and our own habits (tools/tidy.py), and runs clang-tidy over the sources of a configured build.
#   tools/check_sources.sh [--analyze] [PRESET]   default: cpu-release (generated protobuf headers must have been built)
#     --analyze   clang-tidy follows paths through the code too (clang-analyzer-*), which takes three times as long
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

checks='-clang-analyzer-*,-bugprone-suspicious-include'
if [ "${1:-}" = --analyze ]; then
  checks=-bugprone-suspicious-include
  shift
fi
preset="${1:-cpu-release}"
failed=0

echo "clang-format"
git ls-files -z '*.cc' '*.h' '*.cu' '*.cuh' '*.proto' | xargs -0 clang-format --dry-run --Werror || failed=1

echo "shellcheck"
git ls-files -z '*.sh' .ci/run 'deploy/container/tandem-*' | xargs -0 shellcheck || failed=1

echo "tidy"
tools/tidy.py || failed=1

# Only the compiler's warnings check the tests: GoogleTest's macros trigger many checks and take half of the time.
# clang-tidy checks the sources in two large units, because most of its time goes into the headers that they share: what sees requests
# (router, cli), and everything else. Sources that include themselves (Highway) are checked one by one.
echo "clang-tidy"
build="$PWD/build/$preset"
tidy="$build/tidy"
rm -rf "$tidy"
mkdir -p "$tidy"
flags=(-std=c++20 -Wall -Wextra -I"$PWD" -isystem "$build/proto" -isystem "$PWD/tests/simt/include" -DTANDEM_VERSION='""'
  -DTANDEM_SOURCE_DIR='""' -DTANDEM_BINARY_DIR='""' -DTANDEM_MODELS_SOURCE_DIR='""' -DTANDEM_HAS_EDITLINE=1 -DHWY_BROKEN_EMU128=1)

# check_units UNIT...: runs clang-tidy over each unit, one for each processor at a time. The output goes to UNIT.log.
check_units() {
  local unit running=0
  for unit in "$@"; do
    clang-tidy -quiet "-checks=$checks" '-header-filter=/(kernels|common|services|proto)/.*\.(h|cc)$' "$unit" -- "${flags[@]}" \
      >"$unit.log" 2>&1 || echo "error: clang-tidy ended with status $? on $unit" >>"$unit.log" &
    running=$((running + 1))
    if [ "$running" -ge "$(nproc)" ]; then
      wait -n || true
      running=$((running - 1))
    fi
  done
  wait
}

units=()
while read -r source; do
  case "$source" in
    services/router/* | services/cli/*) unit=requests ;;
    *) unit=models ;;
  esac
  if grep -q HWY_TARGET_INCLUDE "$source"; then unit="$(tr / - <<<"${source%.cc}")-alone"; fi
  [ -f "$tidy/$unit.cc" ] || units+=("$tidy/$unit.cc")
  lines=("#include \"$PWD/$source\"")
  case "$source" in
    # Each program of a unit needs another name for its main().
    services/*/main.cc) lines=("#define main main_of_$(tr / _ <<<"${source%/main.cc}")" "${lines[@]}" "#undef main") ;;
  esac
  printf '%s\n' "${lines[@]}" >>"$tidy/$unit.cc"
done < <(git ls-files 'kernels/*.cc' 'common/*.cc' 'services/*.cc' 'proto/*.cc')
# The largest unit comes first, so that one processor does not end long before the others.
mapfile -t units < <(for unit in "${units[@]}"; do echo "$(wc -l <"$unit") $unit"; done | sort -rn | cut -d ' ' -f 2-)
[ ${#units[@]} -gt 0 ] || failed=1
check_units "${units[@]}"

# A unit cannot be compiled if two of its sources give one name to different things.
# Then the sources are checked by folder, which takes two to three times as long. A folder with two such names is an error.
apart=()
for unit in "${units[@]}"; do
  [ "$(grep -c '^#include' "$unit")" -gt 1 ] || continue
  grep -q clang-diagnostic-error "$unit.log" || continue
  echo "The sources of $(basename "$unit" .cc) cannot be compiled together, and are checked by folder:"
  grep -h clang-diagnostic-error "$unit.log"
  while read -r line; do
    folder="$(cut -d '"' -f 2 <<<"$line")"
    folder="$(dirname "${folder#"$PWD/"}" | cut -d / -f 1-2 | tr / -)"
    [ -f "$tidy/by-folder-$folder.cc" ] || apart+=("$tidy/by-folder-$folder.cc")
    echo "$line" >>"$tidy/by-folder-$folder.cc"
  done < <(grep '^#include' "$unit")
  rm "$unit.log"
done
[ ${#apart[@]} -eq 0 ] || check_units "${apart[@]}"

if grep -hE '(warning|error):' "$tidy"/*.log | sort -u | grep . >&2; then failed=1; fi
exit "$failed"
