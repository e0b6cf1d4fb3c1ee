# Copies and launches as an application sees them; runs on the native driver and through fargpu. No
# library, so that it runs anywhere.
add_executable(bandwidth "${CMAKE_CURRENT_LIST_DIR}/bandwidth.cc")
target_link_libraries(bandwidth PRIVATE fargpu_options fargpu_cuda_headers CLI11::CLI11 ${CMAKE_DL_LIBS})
