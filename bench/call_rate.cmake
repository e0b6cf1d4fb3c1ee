# What a call costs in our layers, next to bare sockets.
add_executable(call_rate "${CMAKE_CURRENT_LIST_DIR}/call_rate.cc")
target_link_libraries(call_rate PRIVATE fargpu_options fargpu_rpc fargpu_link fargpu_loopback fargpu_shm fargpu_capnp benchmark::benchmark)
fargpu_hot(call_rate)
fargpu_link_hot(call_rate)
