#!/usr/bin/env bash
# Fuzzes Tandem's parsers and protocols with libFuzzer under AddressSanitizer and UBSan (needs clang).
#   tests/fuzz/fuzz.sh [--seconds N] [--merge] [TARGET...]
# Each target (default: all) runs N seconds (default 60). One target runs on each processor. A target starts from the
# kept corpus in tests/fuzz/corpus/TARGET and from the inputs that earlier runs found, in build/fuzz/corpus/TARGET.
#   --merge   afterwards adds those inputs to the kept corpus that reach code which the kept corpus does not reach
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

seconds=60
merge=false
targets=()
while [ $# -gt 0 ]; do
  case "$1" in
    --seconds)
      seconds="$2"
      shift
      ;;
    --merge) merge=true ;;
    -*)
      sed -n '2,6s/^# \{0,1\}//p' "$0"
      exit 2
      ;;
    *) targets+=("$1") ;;
  esac
  shift
done
if [ ${#targets[@]} -eq 0 ]; then
  for source in tests/fuzz/targets/*_fuzz.cc; do
    name="$(basename "$source" _fuzz.cc)"
    targets+=("$name")
  done
fi

tools/install_dependencies.sh --with-checks
tools/build.sh sanitize "${targets[@]/#/fuzz_}"

# The process may take 1 GiB, and the sanitizer takes most of it. One allocation may take 64 MiB, the limit for a bad file.
limits=(-timeout=5 -rss_limit_mb=1024 -malloc_limit_mb=64)
export ASAN_OPTIONS="quarantine_size_mb=16:detect_stack_use_after_return=1${ASAN_OPTIONS:+:$ASAN_OPTIONS}"
export UBSAN_OPTIONS="print_stacktrace=1${UBSAN_OPTIONS:+:$UBSAN_OPTIONS}"

# Prints the folders from which target $1 starts. The target adds inputs to the first one.
corpora() {
  echo "build/fuzz/corpus/$1"
  echo "tests/fuzz/corpus/$1"
  if [ "$1" = tokenizer ]; then echo tests/golden/tokenizer; fi
  if [ "$1" = chat ]; then echo tests/chat/templates; fi
}

# Prints the length of the longest input of target $1, in bytes.
longest_input() {
  case "$1" in
    tokenizer) echo 16384 ;;
    *) echo 4096 ;;
  esac
}

run_target() {
  local name="$1" folders log
  mapfile -t folders < <(corpora "$name")
  mkdir -p "build/fuzz/findings" "${folders[0]}"
  log="build/fuzz/$name.log"
  if "build/sanitize/tests/fuzz_$name" -max_total_time="$seconds" "${limits[@]}" -max_len="$(longest_input "$name")" \
    -dict=tests/fuzz/json.dict -artifact_prefix="build/fuzz/findings/$name-" -print_final_stats=1 \
    "${folders[@]}" >"$log" 2>&1; then
    echo "$name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs, no finding"
    return
  fi
  echo "$name: a finding; the end of $log:"
  tail -n 40 "$log"
  echo "Again: build/sanitize/tests/fuzz_$name FILE, with the FILE under build/fuzz/findings that the log names."
  echo "Shorter: build/sanitize/tests/fuzz_$name -minimize_crash=1 -max_total_time=60 FILE"
  echo "After the fix, keep the file under a descriptive name in tests/fuzz/corpus/$name/"
  return 1
}

merge_target() {
  local name="$1" folders
  mapfile -t folders < <(corpora "$name")
  # The kept corpus comes first, and then the inputs that add to it. The folder of the golden files is only read.
  "build/sanitize/tests/fuzz_$name" -set_cover_merge=1 -use_counters=0 "${limits[@]}" \
    "tests/fuzz/corpus/$name" "${folders[0]}" 2>&1 | tail -n 1
}

failed=0
running=0
for name in "${targets[@]}"; do
  if [ "$running" -eq "$(nproc)" ]; then
    wait -n || failed=1
    running=$((running - 1))
  fi
  run_target "$name" &
  running=$((running + 1))
done
for ((; running > 0; --running)); do
  wait -n || failed=1
done
if [ "$merge" = true ] && [ "$failed" -eq 0 ]; then
  for name in "${targets[@]}"; do
    echo "merging $name"
    merge_target "$name"
  done
fi
exit "$failed"
