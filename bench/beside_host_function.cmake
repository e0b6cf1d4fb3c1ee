# Which calls of a driver wait for functions of the application, natively and through fargpu.
add_executable(beside_host_function "${CMAKE_CURRENT_LIST_DIR}/beside_host_function.cc")
target_link_libraries(beside_host_function PRIVATE fargpu_options fargpu_cuda_headers fargpu-client)
target_compile_options(beside_host_function PRIVATE -Wno-deprecated-declarations)
set_target_properties(beside_host_function PROPERTIES SKIP_BUILD_RPATH ON)
