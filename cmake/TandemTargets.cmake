# One way to declare each kind of target, so that warnings and include roots are the same everywhere.
# Includes are written from the root of the repository: #include "common/model/llama.h".

function(_tandem_defaults target)
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR})
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wshadow -Werror)
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
  # As on the CPU, multiplications and additions become one where the source says so.
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

# tandem_test(name SOURCES ... PRIVATE deps ... [LABEL unit|system|statistical] [TIMEOUT seconds])
# LABEL gpu: needs a GPU, and counts as skipped where there is none.
# One executable, one ctest entry: ctest's start-up cost is a process each, and a failing case prints its own name.
function(tandem_test name)
  cmake_parse_arguments(ARG "" "LABEL;TIMEOUT" "SOURCES;PRIVATE" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  _tandem_defaults(${name})
  target_link_libraries(${name} PRIVATE ${ARG_PRIVATE} GTest::gtest GTest::gmock GTest::gtest_main)
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)  # a third less to wait for; what they test is optimised
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  target_compile_definitions(${name} PRIVATE
    TANDEM_SOURCE_DIR="${PROJECT_SOURCE_DIR}" TANDEM_BINARY_DIR="${CMAKE_BINARY_DIR}")
  if(NOT ARG_LABEL)
    set(ARG_LABEL unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  if(TANDEM_SANITIZE)  # which makes some tests many times as slow
    math(EXPR ARG_TIMEOUT "4 * ${ARG_TIMEOUT}")
  endif()
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS ${ARG_LABEL} TIMEOUT ${ARG_TIMEOUT})
  if(TANDEM_SANITIZE)
    set_tests_properties(${name} PROPERTIES
      ENVIRONMENT "LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/leaks_not_ours.txt")
  endif()
  if(ARG_LABEL STREQUAL gpu)
    set_tests_properties(${name} PROPERTIES SKIP_REGULAR_EXPRESSION "skipped: no GPU")
    set_property(GLOBAL APPEND PROPERTY TANDEM_GPU_TESTS ${name})
  endif()
endfunction()
