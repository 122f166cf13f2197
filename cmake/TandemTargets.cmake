# Functions that declare each kind of target, so that warnings and include roots are the same everywhere.
# Includes start at the root of the repository: #include "common/model/decoder.h".

function(_tandem_defaults target)
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR})
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wshadow -Werror)
  _tandem_compile_together(${target})
endfunction()

# With TANDEM_UNITY, compiles the sources of a target together, because most of the time goes into the headers that they share.
# A source that includes itself (Highway) is compiled alone, and so is device code.
function(_tandem_compile_together target)
  if(NOT TANDEM_UNITY)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
  get_target_property(sources ${target} SOURCES)
  foreach(source ${sources})
    get_filename_component(path ${source} ABSOLUTE)
    set(alone FALSE)
    if(source MATCHES "\\.cu$")
      set(alone TRUE)
    elseif(source MATCHES "\\.cc$" AND EXISTS ${path})
      file(STRINGS ${path} alone REGEX "HWY_TARGET_INCLUDE" LIMIT_COUNT 1)
    endif()
    if(alone)
      set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
  endforeach()
endfunction()

# tandem_not_hot(target...): for code that seldom runs and consists mostly of templates of a library (a parser of options,
# an HTTP server, and the sources of a program that only parse options and call a library). The optimizer would take half of
# the compile time, and more with sanitizers, where it is off. No fuzz target reaches this code.
function(tandem_not_hot)
  set(level -O1)
  if(TANDEM_SANITIZE OR CMAKE_BUILD_TYPE STREQUAL Debug)
    set(level -O0)
  endif()
  _tandem_level_without_coverage(${level} ${ARGN})
endfunction()

# tandem_targets_wait(target...): as tandem_mostly_waits, for targets that no fuzz target reaches.
function(tandem_targets_wait)
  if(TANDEM_SANITIZE)
    _tandem_level_without_coverage(-O0 ${ARGN})
  endif()
endfunction()

# Sets the level of the optimizer, and compiles without what shows libFuzzer the code that an input reaches.
function(_tandem_level_without_coverage level)
  foreach(target ${ARGN})
    get_target_property(options ${target} COMPILE_OPTIONS)
    list(REMOVE_ITEM options ${TANDEM_COVERAGE_OPTION})
    set_target_properties(${target} PROPERTIES COMPILE_OPTIONS "${options}")
    target_compile_options(${target} PRIVATE ${level})
  endforeach()
endfunction()

# tandem_library(name SOURCES ... PUBLIC deps ... PRIVATE deps ...)
function(tandem_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  _tandem_defaults(${name})
  target_link_libraries(${name} PUBLIC ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE})
endfunction()

# tandem_cuda_library(name SOURCES ... PUBLIC deps ...): .cu files go to nvcc, the others to the C++ compiler. The runtime is linked
# statically: without a driver, a program still starts.
function(tandem_cuda_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;PUBLIC" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR})
  target_include_directories(${name} SYSTEM PUBLIC ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES})
  set_target_properties(${name} PROPERTIES CUDA_RUNTIME_LIBRARY Static)
  # As on the CPU, a multiplication and an addition are fused only where the source says so.
  target_compile_options(${name} PRIVATE
    "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wshadow;-Werror>"
    "$<$<COMPILE_LANGUAGE:CUDA>:--fmad=false;--expt-relaxed-constexpr;-Werror=all-warnings;-Xcompiler=-Wall,-Wextra,-Werror>")
  target_link_libraries(${name} PUBLIC ${ARG_PUBLIC})
endfunction()

# tandem_executable(name SOURCES ... PRIVATE deps ...)
function(tandem_executable name)
  cmake_parse_arguments(ARG "" "" "SOURCES;PRIVATE" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  _tandem_defaults(${name})
  target_link_libraries(${name} PRIVATE ${ARG_PRIVATE})
endfunction()

# tandem_test(name SOURCES ... PRIVATE deps ... [LABEL unit|system|statistical|gpu] [TIMEOUT seconds] [SECONDS seconds]
#             [FILES] [COMPUTES] [SANITIZE | SANITIZE_LONG] [LONG_CASES pattern] [TSAN])
# LABEL gpu: the test needs a GPU, and counts as skipped where there is none.
# SECONDS: about how long the test takes. ctest starts the longest tests first. The default is 1.
# FILES: the test reads files of the source tree, whose root is then TANDEM_SOURCE_DIR.
# COMPUTES: the test itself computes much, for example statistics, so its own code is optimized.
# SANITIZE: the test runs under AddressSanitizer and UndefinedBehaviorSanitizer in CI (ctest -L sanitize, target
#   sanitized_tests). SANITIZE_LONG: the test takes too long for that, and runs in ./test.sh --all.
# TSAN: the test has threads, and runs under ThreadSanitizer in ./test.sh --all.
# One executable is one ctest entry, since each entry costs the start of a process. A failing case prints its own name.
function(tandem_test name)
  cmake_parse_arguments(ARG "FILES;COMPUTES;SANITIZE;SANITIZE_LONG;TSAN" "LABEL;TIMEOUT;SECONDS;LONG_CASES" "SOURCES;PRIVATE" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  _tandem_defaults(${name})
  target_link_libraries(${name} PRIVATE ${ARG_PRIVATE} GTest::gtest GTest::gmock GTest::gtest_main)
  _tandem_test_code(${name} "${ARG_FILES}" "${ARG_COMPUTES}")
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  if(NOT ARG_LABEL)
    set(ARG_LABEL unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 600)
  endif()
  if(NOT ARG_SECONDS)
    set(ARG_SECONDS 1)
  endif()
  if(TANDEM_SANITIZE)  # Sanitizers make some tests many times as slow.
    math(EXPR ARG_TIMEOUT "4 * ${ARG_TIMEOUT}")
  endif()
  set(labels ${ARG_LABEL})
  foreach(label sanitize sanitize_long tsan)
    string(TOUPPER ${label} argument)
    if(ARG_${argument})
      list(APPEND labels ${label})
    endif()
  endforeach()
  add_test(NAME ${name} COMMAND ${name})
  # Tests make and free many models. malloc keeps their memory, because asking the kernel for it again takes a third of the time.
  set_tests_properties(${name} PROPERTIES LABELS "${labels}" TIMEOUT ${ARG_TIMEOUT} COST ${ARG_SECONDS}
    ENVIRONMENT "MALLOC_MMAP_THRESHOLD_=1073741824;MALLOC_TRIM_THRESHOLD_=1073741824;MALLOC_TOP_PAD_=67108864")
  if(TANDEM_SANITIZE)
    if(ARG_SANITIZE OR ARG_SANITIZE_LONG)
      add_dependencies(sanitized_tests ${name})
    endif()
    if(ARG_TSAN)
      add_dependencies(tsan_tests ${name})
    endif()
    set(environment
      "LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/leaks_not_ours.txt"
      "TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/races_not_ours.txt")
    set_tests_properties(${name} PROPERTIES ENVIRONMENT "${environment}")
    if(ARG_LONG_CASES)
      add_test(NAME ${name}_long COMMAND ${name} --gtest_filter=${ARG_LONG_CASES})
      set_tests_properties(${name}_long PROPERTIES LABELS sanitize_long TIMEOUT ${ARG_TIMEOUT} ENVIRONMENT "${environment}")
      set_tests_properties(${name} PROPERTIES ENVIRONMENT "${environment};GTEST_FILTER=-${ARG_LONG_CASES}")
    endif()
  endif()
  if(ARG_LABEL STREQUAL gpu)
    set_tests_properties(${name} PROPERTIES SKIP_REGULAR_EXPRESSION "skipped: no GPU")
    set_property(GLOBAL APPEND PROPERTY TANDEM_GPU_TESTS ${name})
  endif()
endfunction()

# tandem_test_objects(name SOURCES ... PRIVATE deps ... [FILES]): tests that several executables of tandem_test link as
# $<TARGET_OBJECTS:name>, compiled once.
function(tandem_test_objects name)
  cmake_parse_arguments(ARG "FILES" "" "SOURCES;PRIVATE" ${ARGN})
  add_library(${name} OBJECT ${ARG_SOURCES})
  _tandem_defaults(${name})
  _tandem_test_code(${name} "${ARG_FILES}" FALSE)
  target_link_libraries(${name} PRIVATE ${ARG_PRIVATE} GTest::gtest GTest::gmock)
endfunction()

# Sets how the code of tests is compiled. Without the optimizer, this takes two thirds of the time, and less with sanitizers. The
# tested libraries are still optimized.
function(_tandem_test_code target needs_files computes)
  target_compile_options(${target} PRIVATE $<IF:$<AND:$<BOOL:${computes}>,$<NOT:$<CONFIG:Debug>>>,-O2,-O0>)
  if(needs_files)
    target_compile_definitions(${target} PRIVATE TANDEM_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  endif()
endfunction()

if(TANDEM_SANITIZE)
  add_custom_target(sanitized_tests)
  add_custom_target(tsan_tests)
endif()
