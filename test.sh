#!/usr/bin/env bash
# Builds Tandem and runs all its tests. The last line reads "N passed, N failed".
#   ./test.sh         installs what is missing, builds, runs every test
#   ./test.sh --ci    the same with the CUDA kernels compiled (deploy/fetch_cuda.sh), then checks formatting and runs
#                     clang-tidy, and runs the unit tests of the kernels, the common libraries, the workers and the
#                     router's core once more under AddressSanitizer and UBSan, with a system test of the prefix
#                     cache, and fuzzes each target of tests/fuzz for 30 s
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

checks=false
case "${1:-}" in
  --ci) checks=true ;;
  "") ;;
  *)
    sed -n '2,7s/^# \{0,1\}//p' "$0"
    exit 2
    ;;
esac

passed=0
failed=0
skipped=0

# run_ctest FOLDER ARGUMENT...: runs ctest there and adds up what its summary says.
run_ctest() {
  local log summary skips
  log="$(mktemp)"
  ctest --test-dir "$@" --output-on-failure --no-tests=error -j "$(nproc)" 2>&1 | tee "$log" || true
  summary="$(sed -n 's/^[0-9]*% tests passed, \([0-9]*\) tests failed out of \([0-9]*\)$/\1 \2/p' "$log")"
  skips="$(grep -c '(Skipped)$' "$log" || true)"
  rm -f "$log"
  if [ -z "$summary" ]; then
    failed=$((failed + 1))  # ctest itself did not come to an end
    return
  fi
  failed=$((failed + ${summary% *}))
  skipped=$((skipped + skips))
  passed=$((passed + ${summary#* } - ${summary% *} - skips))
}

if [ "$checks" = true ]; then
  deploy/install_dependencies.sh --with-checks
  deploy/fetch_cuda.sh
fi
deploy/build.sh cpu-release
# Without a compiler that works the build goes on without CUDA, which is right elsewhere.
if [ "$checks" = true ] && ! grep -q '^CMAKE_CUDA_COMPILER:[A-Z]*=/' build/cpu-release/CMakeCache.txt; then
  echo "error: no kernel was compiled: no CUDA compiler works here (build/cpu-release/configure.log)" >&2
  exit 1
fi
run_ctest build/cpu-release

if [ "$checks" = true ]; then
  if deploy/check_sources.sh cpu-release; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
  fi
  # The controller's simulations (controller_test) are arithmetic, and take long; router_test has the controller too.
  sanitized=(thread_pool_test matmul_test attention_test embedding_test rms_norm_test rope_test swiglu_test sampling_test
    simt_test layers_simt_test matmul_simt_test attention_simt_test sampling_simt_test device_simt_test log_test metrics_test model_test
    tokenizer_test ring_test cuda_ring_simt_test worker_test router_test router_metrics_test pod_directory_test background_work_test
    message_padding_test security_test target_folder_test simulator_test)
  # Real processes too: this build fills freed KV rows with NaN, and whoever reads one says other text.
  deploy/build.sh asan "${sanitized[@]}" tandem tandem-router tandem-verifier tandem-draft
  sanitized+=(system_freed_rows)
  run_ctest build/asan -R "^($(IFS='|' && echo "${sanitized[*]}"))\$"
  if tests/fuzz/fuzz.sh --seconds 30; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
  fi
fi

echo
[ "$skipped" -eq 0 ] || echo "$skipped skipped: no GPU, or no control plane (deploy/fetch_cluster.sh)"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
