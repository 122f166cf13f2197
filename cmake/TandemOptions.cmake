# Options for presets and people, and the compiler flags that follow from them.
option(TANDEM_BUILD_TESTS "Build the tests" ON)
option(TANDEM_BUILD_BENCH "Build the benchmarks" ON)
option(TANDEM_FUZZ "Build the fuzz targets with libFuzzer, which clang has" OFF)
option(TANDEM_UNITY "Compile the sources of a target as one, which takes half of the time" ON)
set(TANDEM_SANITIZE "" CACHE STRING "Sanitizers to build with: empty, 'address,undefined' or 'thread'")

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

# All executables are in one folder, because `tandem` finds its children beside itself.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)

# With CCACHE_DEPEND, ccache does not run the preprocessor before it compiles a source that it does not know. (nvcc
# does not write the dependencies that this needs.)
find_program(TANDEM_CCACHE ccache)
if(TANDEM_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_DEPEND=1 ${TANDEM_CCACHE})
endif()
find_program(TANDEM_MOLD mold)
if(TANDEM_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

# No -ffast-math and no contraction: a row must have the same bits on every path (docs/architecture.md, invariant 3),
# so the compiler may not decide where a multiply and an add become one. Kernels ask for FMA by name.
add_compile_options(-ffp-contract=off)

if(TANDEM_SANITIZE)
  # In instrumented code, GCC warns about values that are set (see -fsanitize in its manual). The plain build gives the correct warnings.
  add_compile_options(-fsanitize=${TANDEM_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  add_link_options(-fsanitize=${TANDEM_SANITIZE})
  # GCC and Clang have different macros for the sanitizer of a build.
  if(TANDEM_SANITIZE MATCHES address)
    add_compile_definitions(TANDEM_ADDRESS_SANITIZER)
  elseif(TANDEM_SANITIZE MATCHES thread)
    add_compile_definitions(TANDEM_THREAD_SANITIZER)
    # ThreadSanitizer does not model fences, and GCC warns about each. Boost.Asio has some beside the locks that it relies on.
    add_compile_options($<$<CXX_COMPILER_ID:GNU>:-Wno-tsan>)
  endif()
endif()

# Instruction sets that the kernels are not compiled for. SVE: kernels keep vectors in arrays, which is impossible for vectors
# whose size the compiler does not know. SSSE3: the few processors with nothing better run the scalar code. Under sanitizers also
# SSE4 and AVX-512: sanitizers would find the same faults there as on AVX2, and these builds are slow.
set(TANDEM_DISABLED_TARGETS "HWY_SVE|HWY_SVE2|HWY_SVE_256|HWY_SVE2_128|HWY_SSSE3")
if(TANDEM_SANITIZE)
  string(APPEND TANDEM_DISABLED_TARGETS "|HWY_SSE4|HWY_AVX3|HWY_AVX3_DL")
endif()

# For processors with nothing better, Highway would emulate vectors of 128 bits, except with GCC before 12.3. This takes up to ten
# times the compile time of scalar code. All compilers make the scalar code.
add_compile_definitions(HWY_BROKEN_EMU128=1)

# Fuzzing tests parsers and bookkeeping, so common and services are compiled with the instrumentation that shows libFuzzer which
# code an input reaches. Kernels and tests are not, because they would only become slower.
set(TANDEM_COVERAGE_OPTION -fsanitize=fuzzer-no-link)
function(tandem_show_coverage_to_fuzzer)
  if(TANDEM_FUZZ)
    set_property(DIRECTORY APPEND PROPERTY COMPILE_OPTIONS ${TANDEM_COVERAGE_OPTION})
  endif()
endfunction()

# For folders whose code mostly waits for sockets and for kernels, or is generated. With sanitizers, the optimizer would take half of the
# compile time there.
function(tandem_mostly_waits)
  if(TANDEM_SANITIZE)
    set_property(DIRECTORY APPEND PROPERTY COMPILE_OPTIONS -O0)
  endif()
endfunction()
