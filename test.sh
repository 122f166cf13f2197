#!/usr/bin/env bash
# Builds Tandem and runs all its tests. The last line reads "N passed, N failed".
#   ./test.sh         installs what is missing, builds, and runs every test.
#   ./test.sh --ci    does the same with the CUDA kernels compiled (tools/fetch_cuda.sh). Then it checks the sources
#                     (formatting, scripts, clang-tidy), runs the tests with the label "sanitize" under AddressSanitizer
#                     and UndefinedBehaviorSanitizer, and fuzzes each target of tests/fuzz for 30 s with the same build.
#   ./test.sh --all   does all of this, and then what takes longer: every drafter with every shape of a draft, transport
#                     and batch (TANDEM_FULL_PRODUCT=1), the tests with the label "sanitize_long", a million seeds of the
#                     simulator, a build that compiles each source by itself, and the tests with the label "tsan" under
#                     ThreadSanitizer. It writes docs/last_full_run.md.
# A table of the stages with their times stands before the last line.
# shellcheck disable=SC2317  # Stages call functions by their names.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

checks=false  # Whether the stages of --ci run.
long=false    # Whether those of --all run too.
packages=()   # Arguments of install_dependencies.sh.
case "${1:-}" in
  --ci) checks=true ;;
  --all)
    checks=true
    long=true
    ;;
  "") ;;
  *)
    sed -n '2,11s/^# \{0,1\}//p' "$0"
    exit 2
    ;;
esac

passed=0
failed=0
skipped=0
stages=()  # "NAME|SECONDS|RESULT", in the order in which they ran
stage_result=""
sanitize_build=""  # process number

# stage NAME COMMAND...: runs the command and keeps its time for the table. A command that fails counts as one failed
# test, and the other stages still run.
stage() {
  local name="$1" begin=$SECONDS
  shift
  echo
  echo "== $name"
  stage_result=passed
  if ! "$@"; then
    stage_result=FAILED
    failed=$((failed + 1))
  fi
  stages+=("$name|$((SECONDS - begin))|$stage_result")
}

# needed_stage NAME COMMAND...: the same for a command without which nothing else can run.
needed_stage() {
  stage "$@"
  [ "$stage_result" = passed ] || finish
}

# check NAME COMMAND...: a stage that counts as one test.
check() {
  stage "$@"
  [ "$stage_result" != passed ] || passed=$((passed + 1))
}

# run_ctest FOLDER ARGUMENT...: runs ctest in a folder and adds up what the summary says. There is one test more than processors,
# because tests of several processes often wait.
run_ctest() {
  local log summary skips
  log="$(mktemp)"
  ctest --test-dir "$@" --output-on-failure --no-tests=error -j "$(($(nproc) + 1))" 2>&1 | tee "$log" || true
  summary="$(sed -n 's/^[0-9]*% tests passed, \([0-9]*\) tests failed out of \([0-9]*\)$/\1 \2/p' "$log")"
  skips="$(grep -c '(Skipped)$' "$log" || true)"
  rm -f "$log"
  [ -n "$summary" ] || return 1  # ctest itself did not come to an end.
  stage_result="$((${summary#* } - ${summary% *} - skips)) passed, ${summary% *} failed, $skips skipped"
  failed=$((failed + ${summary% *}))
  skipped=$((skipped + skips))
  passed=$((passed + ${summary#* } - ${summary% *} - skips))
}

# print_stages: the table of stages, as Markdown.
print_stages() {
  local row name seconds result
  printf '| %-42s | %8s | %s\n' stage seconds "result |" "$(printf -- '-%.0s' {1..42})" -------: "--- |"
  for row in "${stages[@]}"; do
    IFS='|' read -r name seconds result <<<"$row"
    printf '| %-42s | %8d | %s |\n' "$name" "$seconds" "$result"
  done
  printf '| %-42s | %8d | %s |\n' total "$SECONDS" ""
}

# finish: prints the table and the last line, and ends the script.
finish() {
  echo
  print_stages
  echo
  if [ "$long" = true ]; then write_record; fi
  [ "$skipped" -eq 0 ] || echo "$skipped skipped: no GPU, no control plane (tools/fetch_cluster.sh), or no PyTorch (tools/train_pair)"
  echo "$passed passed, $failed failed"
  [ "$failed" -eq 0 ] || exit 1
  exit 0
}

# write_record: keeps the result of a full run in the repository.
write_record() {
  local commit  # read before the record is opened, which is a change
  commit="$(git rev-parse --short HEAD)$(git diff --quiet HEAD || echo ', with uncommitted changes')"
  {
    echo "# The last full run"
    echo
    echo "\`./test.sh --all\` wrote this page. The page states what was run last, on which commit and processor."
    echo
    echo "- Commit: $commit"
    echo "- Date: $(date -u +%F)"
    echo "- Processor: $(sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo | head -n 1), $(nproc) cores"
    echo "- Result: $passed passed, $failed failed, $skipped skipped"
    echo
    print_stages
  } >docs/last_full_run.md
}

# Starts the build with sanitizers, which takes the time that the tests leave to the processors. (Tests wait for each other and for clocks,
# and those that measure time run alone.) The scheduler runs the build only where nothing else wants to run (SCHED_IDLE). The build has a
# session of its own, because a session has a share of the processors whatever runs in it (autogroup in sched(7)).
begin_sanitize_build() {
  setsid bash -c '{ echo 19 >/proc/self/autogroup; } 2>/dev/null || true
    exec chrt --idle 0 tools/build.sh sanitize sanitized_tests fuzz_targets' >build/sanitize.log 2>&1 &
  sanitize_build=$!
  trap stop_sanitize_build EXIT
}

# Ends that build if the tests end early. A session's number is that of its processes' group.
stop_sanitize_build() {
  kill -- "-$sanitize_build" 2>/dev/null || true
}

# Waits for that build. Another call of the build then has nothing to do, or shows the error.
end_sanitize_build() {
  wait "$sanitize_build" || true
  trap - EXIT
  tools/build.sh sanitize sanitized_tests fuzz_targets
}

# A build without a compiler for device code is right elsewhere, and wrong where the kernels are to be checked.
kernels_were_compiled() {
  if ! grep -q '^CMAKE_CUDA_COMPILER:[A-Z]*=/' build/cpu-release/CMakeCache.txt; then
    echo "error: no kernel was compiled, because no CUDA compiler works here (build/cpu-release/configure.log)" >&2
    return 1
  fi
}

# Without the variable, rows that cover all pairs run.
full_product_of_drafters() {
  TANDEM_FULL_PRODUCT=1 run_ctest build/cpu-release -R '^system_drafter_product$'
}

[ "$checks" = false ] || packages=(--with-checks)
needed_stage "packages" tools/install_dependencies.sh "${packages[@]}"
if [ "$checks" = true ]; then
  needed_stage "CUDA compiler" tools/fetch_cuda.sh
fi
needed_stage "build cpu-release" tools/build.sh cpu-release
if [ "$checks" = true ]; then
  needed_stage "kernels were compiled" kernels_were_compiled
  begin_sanitize_build
fi
stage "tests" run_ctest build/cpu-release

if [ "$checks" = true ]; then
  check "sources" tools/check_sources.sh cpu-release
  # One clang build serves the sanitized tests and the fuzzing. Real processes run too: the build fills freed KV rows with
  # NaN, and a reader of such a row says other text.
  needed_stage "build sanitize" end_sanitize_build
  stage "sanitized tests" run_ctest build/sanitize -L '^sanitize$'
  check "fuzzing" tests/fuzz/fuzz.sh --seconds 30
fi

if [ "$long" = true ]; then
  stage "full product of the drafters" full_product_of_drafters
  stage "sanitized models on the shim" run_ctest build/sanitize -L '^sanitize_long$'
  check "a million seeds" build/cpu-release/tests/simulate --seeds 1000000 --threads "$(nproc)"
  stage "build cpu-debug, each source by itself" tools/build.sh cpu-debug
  needed_stage "build tsan" tools/build.sh tsan tsan_tests
  stage "tests under ThreadSanitizer" run_ctest build/tsan -L '^tsan$'
fi
finish
