# `cmake --build … --target bundle`: one archive with the executables, the libraries that they need and the embedded pair. It runs on
# another x86-64 Linux with a glibc as new as this one's; libc, the driver and CUDA's own libraries stay out.
set(TANDEM_BUNDLE_NAME tandem-${PROJECT_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR})
set(TANDEM_BUNDLE_MOST_BYTES 60000000)

set(bundled tandem tandem-router tandem-draft tandem-verifier)
foreach(target ${bundled})
  set_target_properties(${target} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
  # Libraries of libraries are looked for there too, which only the old kind of path does.
  target_link_options(${target} PRIVATE -Wl,--disable-new-dtags)
endforeach()
install(TARGETS ${bundled} RUNTIME_DEPENDENCY_SET bundled_libraries RUNTIME DESTINATION bin)
install(RUNTIME_DEPENDENCY_SET bundled_libraries
  PRE_EXCLUDE_REGEXES
    [[^lib(c|m|dl|rt|pthread|resolv|util)\.so]] [[^ld-linux]] [[^linux-vdso]] [[^lib(cuda|nvidia|cublas|cudart)]]
  LIBRARY DESTINATION lib)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/models/tales DESTINATION share/tandem/models)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION share/doc/tandem)

add_custom_target(bundle
  COMMAND ${CMAKE_COMMAND}
    -DBUILD_DIR=${CMAKE_BINARY_DIR} -DNAME=${TANDEM_BUNDLE_NAME} -DMOST_BYTES=${TANDEM_BUNDLE_MOST_BYTES}
    -P ${PROJECT_SOURCE_DIR}/cmake/MakeBundle.cmake
  DEPENDS ${bundled}
  VERBATIM)
