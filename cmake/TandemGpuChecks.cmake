# `cmake --build … --target gpu_check_archive` packs the executables that bench/gpu.sh --binaries starts, in the same way as the bundle. It is
# for a machine with a GPU that has neither a compiler nor the libraries. It has the bundle's executables, the tests of `ctest -L gpu`,
# bench_device and inflate_model, and a Python client's stubs, so that the checks need no Python module but grpcio. The models come with the
# copy of the sources that has bench/gpu.sh.
get_property(gpu_tests GLOBAL PROPERTY TANDEM_GPU_TESTS)
set(gpu_programs bench_device inflate_model)
tandem_use_packed_libraries(${gpu_tests} ${gpu_programs})
install(TARGETS ${gpu_tests}
  RUNTIME_DEPENDENCY_SET gpu_check_libraries RUNTIME DESTINATION tests COMPONENT gpu_check EXCLUDE_FROM_ALL)
install(TARGETS ${bundled} ${gpu_programs}
  RUNTIME_DEPENDENCY_SET gpu_check_libraries RUNTIME DESTINATION bin COMPONENT gpu_check EXCLUDE_FROM_ALL)
find_program(TANDEM_GRPC_PYTHON_PLUGIN grpc_python_plugin REQUIRED)
set(stubs ${CMAKE_BINARY_DIR}/python-stubs)
set(protos ${PROJECT_SOURCE_DIR}/proto/tandem/v1/generate.proto ${PROJECT_SOURCE_DIR}/proto/tandem/v1/worker.proto)
add_custom_command(OUTPUT ${stubs}/complete
  COMMAND ${CMAKE_COMMAND} -E make_directory ${stubs}
  COMMAND protobuf::protoc -I${PROJECT_SOURCE_DIR}/proto --python_out=${stubs} --grpc_python_out=${stubs}
    --plugin=protoc-gen-grpc_python=${TANDEM_GRPC_PYTHON_PLUGIN} ${protos}
  COMMAND ${CMAKE_COMMAND} -E touch ${stubs}/complete
  DEPENDS ${protos}
  VERBATIM)
add_custom_target(python_stubs DEPENDS ${stubs}/complete)
install(DIRECTORY ${stubs}/tandem DESTINATION python COMPONENT gpu_check EXCLUDE_FROM_ALL)
tandem_archive(gpu_check_archive
  MOST_BYTES 60000000
  COMPONENT gpu_check NAME gpu-check-${PROJECT_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR} LIBRARIES gpu_check_libraries
  DEPENDS ${bundled} ${gpu_tests} ${gpu_programs} python_stubs)
