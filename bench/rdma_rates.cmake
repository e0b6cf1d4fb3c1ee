# The rdma transport next to perftest, in a VM: bench/rdma.sh.
if(FARGPU_RDMA)
  add_executable(rdma_rates "${CMAKE_CURRENT_LIST_DIR}/rdma_rates.cc")
  target_link_libraries(rdma_rates PRIVATE fargpu_options fargpu_rpc fargpu_rdma fargpu_capnp CLI11::CLI11)
  fargpu_hot(rdma_rates)
  fargpu_link_hot(rdma_rates)
  set_target_properties(rdma_rates PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bench")
endif()
