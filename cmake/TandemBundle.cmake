# `cmake --build … --target bundle`: one archive with the executables, the libraries that they need and the embedded pair. It runs on
# another x86-64 Linux whose glibc is not older than this one's. libc, the driver and CUDA's own libraries are left out. gRPC is part of
# each executable (TANDEM_STATIC_GRPC in TandemDependencies.cmake).
set(TANDEM_BUNDLE_NAME tandem-${PROJECT_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR})

# Makes executables search for libraries in lib, beside the bin or tests folder that they are installed in.
function(tandem_use_packed_libraries)
  foreach(executable ${ARGN})
    set_target_properties(${executable} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib" BUILD_WITH_INSTALL_RPATH ON)
    # Only the old kind of path is also used to find the libraries of libraries.
    target_link_options(${executable} PRIVATE -Wl,--disable-new-dtags)
  endforeach()
endfunction()

# tandem_archive(target COMPONENT component NAME name MOST_BYTES bytes LIBRARIES set DEPENDS executables...): packs the files of that
# component, with the libraries of that runtime dependency set, into bundle/NAME.tar.gz. A larger archive than MOST_BYTES is an error.
function(tandem_archive target)
  cmake_parse_arguments(ARG "" "COMPONENT;NAME;MOST_BYTES;LIBRARIES" "DEPENDS" ${ARGN})
  install(RUNTIME_DEPENDENCY_SET ${ARG_LIBRARIES}
    PRE_EXCLUDE_REGEXES
      [[^lib(c|m|dl|rt|pthread|resolv|util)\.so]] [[^ld-linux]] [[^linux-vdso]] [[^lib(cuda|nvidia|cublas|cudart)]]
    LIBRARY DESTINATION lib COMPONENT ${ARG_COMPONENT} EXCLUDE_FROM_ALL)
  add_custom_target(${target}
    COMMAND ${CMAKE_COMMAND}
      -DBUILD_DIR=${CMAKE_BINARY_DIR} -DCOMPONENT=${ARG_COMPONENT} -DNAME=${ARG_NAME} -DMOST_BYTES=${ARG_MOST_BYTES}
      -P ${PROJECT_SOURCE_DIR}/cmake/MakeBundle.cmake
    VERBATIM)
  add_dependencies(${target} ${ARG_DEPENDS})
endfunction()

set(executables tandem tandem-gateway tandem-router tandem-draft tandem-verifier)
set(bundled "")
foreach(executable ${executables})
  add_executable(${executable}-bundled EXCLUDE_FROM_ALL $<TARGET_OBJECTS:${executable}>)
  target_link_libraries(${executable}-bundled PRIVATE $<TARGET_PROPERTY:${executable},LINK_LIBRARIES>)
  set_target_properties(${executable}-bundled PROPERTIES
    OUTPUT_NAME ${executable} RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bundle/bin LINKER_LANGUAGE CXX
    TANDEM_STATIC_GRPC ON)
  tandem_use_packed_libraries(${executable}-bundled)
  list(APPEND bundled ${executable}-bundled)
endforeach()
install(TARGETS ${bundled} RUNTIME_DEPENDENCY_SET bundled_libraries RUNTIME DESTINATION bin COMPONENT bundle EXCLUDE_FROM_ALL)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/models/tales DESTINATION share/tandem/models COMPONENT bundle EXCLUDE_FROM_ALL)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION share/doc/tandem COMPONENT bundle EXCLUDE_FROM_ALL)

# `cmake --install` installs the executables, for a system that has the libraries (deploy/container/stage.sh).
install(TARGETS ${executables} RUNTIME DESTINATION bin)

# The embedded pair and the heads of its target take 44 MB of the archive, the five executables 25 MB, and libraries 6 MB.
tandem_archive(bundle COMPONENT bundle NAME ${TANDEM_BUNDLE_NAME} MOST_BYTES 78000000 LIBRARIES bundled_libraries DEPENDS ${bundled})
