# What the host pays for touching managed memory, beside copies of pageable memory.
add_executable(managed_touch "${CMAKE_CURRENT_LIST_DIR}/managed_touch.cc")
target_link_libraries(managed_touch PRIVATE fargpu_options fargpu_cuda_headers fargpu-client)
target_compile_options(managed_touch PRIVATE -Wno-deprecated-declarations)
set_target_properties(managed_touch PROPERTIES SKIP_BUILD_RPATH ON)
