# Everything comes from Debian 12 or Ubuntu 24.04 packages (tools/install_dependencies.sh); nothing is vendored.
find_package(Threads REQUIRED)
find_package(absl CONFIG REQUIRED)
find_package(Protobuf REQUIRED)
find_package(gRPC CONFIG REQUIRED)
find_package(hwy CONFIG REQUIRED)
find_package(nlohmann_json 3.11 CONFIG REQUIRED)
find_package(spdlog CONFIG REQUIRED)
find_package(CLI11 CONFIG REQUIRED)
find_package(Boost 1.74 CONFIG REQUIRED COMPONENTS headers)
find_package(OpenSSL REQUIRED COMPONENTS Crypto SSL)
find_package(PkgConfig REQUIRED)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(EDITLINE IMPORTED_TARGET libedit)  # not required: tandem chat works without it
# The CMake package of prometheus-cpp would also require the libraries of its HTTP parts, which are not used here.
pkg_check_modules(PROMETHEUS REQUIRED IMPORTED_TARGET prometheus-cpp-core)
if(TANDEM_BUILD_TESTS)
  find_package(GTest CONFIG REQUIRED)
  find_package(Boost 1.74 CONFIG REQUIRED COMPONENTS context)
  include(GoogleTest)
endif()

# An executable with the property TANDEM_STATIC_GRPC links gRPC's own libraries statically. The libraries that these need stay shared.
set(grpc_parts gpr upb address_sorting grpc grpc++ grpc++_reflection)
foreach(part ${grpc_parts})
  find_library(TANDEM_STATIC_${part} lib${part}.a REQUIRED)
  add_library(static_grpc_${part} STATIC IMPORTED)
  get_target_property(needed gRPC::${part} INTERFACE_LINK_LIBRARIES)
  string(REPLACE "gRPC::" "static_grpc_" needed "${needed}")
  set_target_properties(static_grpc_${part} PROPERTIES
    IMPORTED_LOCATION "${TANDEM_STATIC_${part}}" INTERFACE_LINK_LIBRARIES "${needed}")
endforeach()
foreach(part grpc++ grpc++_reflection)
  add_library(tandem_${part} INTERFACE)
  target_link_libraries(tandem_${part} INTERFACE
    $<IF:$<BOOL:$<TARGET_PROPERTY:TANDEM_STATIC_GRPC>>,static_grpc_${part},gRPC::${part}>)
endforeach()
