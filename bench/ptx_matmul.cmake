# The PTX engine: a tiled matrix product (goal: less than 2 s on one core), launch and load.
fargpu_executable(bench_ptx_matmul "${CMAKE_CURRENT_LIST_DIR}/ptx_matmul.cc")
target_link_libraries(bench_ptx_matmul PRIVATE fargpu_sim_run benchmark::benchmark)
