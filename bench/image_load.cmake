# How long loads of images take: cold, cached, again. No library, so that it runs anywhere.
add_executable(image_load "${CMAKE_CURRENT_LIST_DIR}/image_load.cc")
target_link_libraries(image_load PRIVATE fargpu_options fargpu_cuda_headers ${CMAKE_DL_LIBS})
