# Which calls of a driver wait while a stream is held.
file(GLOB driver_waits CONFIGURE_DEPENDS "${CMAKE_CURRENT_LIST_DIR}/driver_waits/*.cc")
add_executable(driver_waits ${driver_waits})
target_link_libraries(driver_waits PRIVATE fargpu_options fargpu_cuda_headers fargpu-client CLI11::CLI11 Threads::Threads)
target_compile_options(driver_waits PRIVATE -Wno-deprecated-declarations)
set_target_properties(driver_waits PROPERTIES SKIP_BUILD_RPATH ON)
