# Third-party packages (Debian names in scripts/setup) and the CUDA headers.
find_package(Threads REQUIRED)
find_package(CapnProto REQUIRED)
find_package(Boost 1.74 REQUIRED)
find_package(spdlog REQUIRED)
find_package(fmt REQUIRED)
find_package(CLI11 QUIET)
find_package(toml11 REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(PkgConfig QUIET)
if(FARGPU_TESTS)
  find_package(GTest REQUIRED)
endif()
if(FARGPU_BENCH)
  find_package(benchmark REQUIRED)
endif()

# fargpu::<name>: the library to link, static when FARGPU_STATIC_DEPS is on.
function(fargpu_dependency target)
  set(names ${ARGN})
  if(FARGPU_STATIC_DEPS)
    list(TRANSFORM names PREPEND lib OUTPUT_VARIABLE static_names)
    list(TRANSFORM static_names APPEND .a)
    set(names ${static_names})
  endif()
  find_library(${target}_LIBRARY NAMES ${names} REQUIRED)
  add_library(fargpu::${target} UNKNOWN IMPORTED)
  set_target_properties(fargpu::${target} PROPERTIES IMPORTED_LOCATION "${${target}_LIBRARY}")
endfunction()
fargpu_dependency(zstd zstd)
# For what becomes part of the client library, which brings no more shared objects into applications
# than it must. Debian's archives are position independent.
foreach(library zstd ssl crypto)
  find_library(${library}_static_LIBRARY NAMES lib${library}.a ${library} REQUIRED)
  add_library(fargpu::${library}_static UNKNOWN IMPORTED)
  set_target_properties(fargpu::${library}_static PROPERTIES IMPORTED_LOCATION "${${library}_static_LIBRARY}")
endforeach()
fargpu_dependency(lz4 lz4)

# Cap'n Proto for programs (static on request) and for the client library (always shared: Debian's
# static libkj is not position independent, so it cannot be part of a shared object; copies of the
# two libraries travel beside it).
find_library(CAPNP_SHARED NAMES capnp REQUIRED)
find_library(KJ_SHARED NAMES kj REQUIRED)
add_library(fargpu_capnp_shared INTERFACE)
target_link_libraries(fargpu_capnp_shared INTERFACE "${CAPNP_SHARED}" "${KJ_SHARED}")
add_library(fargpu_capnp INTERFACE)
if(FARGPU_STATIC_DEPS)
  find_library(CAPNP_STATIC NAMES libcapnp.a REQUIRED)
  find_library(KJ_STATIC NAMES libkj.a REQUIRED)
  target_link_libraries(fargpu_capnp INTERFACE "${CAPNP_STATIC}" "${KJ_STATIC}" Threads::Threads)
else()
  target_link_libraries(fargpu_capnp INTERFACE fargpu_capnp_shared)
endif()

# RDMA verbs: the headers only. ON when they are there; -DFARGPU_RDMA=OFF leaves the rdma transport
# out, ON insists.
find_path(FARGPU_VERBS_INCLUDE_DIR infiniband/verbs.h)
find_path(FARGPU_RDMACM_INCLUDE_DIR rdma/rdma_cma.h)
if(FARGPU_VERBS_INCLUDE_DIR AND FARGPU_RDMACM_INCLUDE_DIR)
  set(rdma_headers ON)
else()
  set(rdma_headers OFF)
endif()
option(FARGPU_RDMA "Build the rdma transport (needs libibverbs-dev and librdmacm-dev)" ${rdma_headers})
if(FARGPU_RDMA AND NOT rdma_headers)
  message(FATAL_ERROR "FARGPU_RDMA is ON, but infiniband/verbs.h and rdma/rdma_cma.h are not there: install libibverbs-dev and librdmacm-dev")
elseif(NOT FARGPU_RDMA)
  message(STATUS "Without the rdma transport (FARGPU_RDMA is OFF)")
endif()

# CUDA headers: cuda.h 13.0 is the oracle of the description. Order: the cache variable, the
# environment, the usual place, then the project-local copy that scripts/setup makes from PyPI
# packages.
find_path(FARGPU_CUDA_INCLUDE_DIR cuda.h
          HINTS "${FARGPU_CUDA_ROOT}" ENV CUDA_HOME ENV CUDA_PATH
          PATHS /usr/local/cuda "${CMAKE_SOURCE_DIR}/.deps/cuda"
          PATH_SUFFIXES include NO_DEFAULT_PATH)
if(NOT FARGPU_CUDA_INCLUDE_DIR)
  message(FATAL_ERROR "cuda.h not found: run scripts/setup (it fetches the CUDA 13.0 headers) or set FARGPU_CUDA_ROOT")
endif()
get_filename_component(FARGPU_CUDA_ROOT_FOUND "${FARGPU_CUDA_INCLUDE_DIR}" DIRECTORY)
# The compiler sees copies in the build folder: an object then depends on what the headers say, not
# on where the toolkit lies, and a compiler cache serves machines with a toolkit and without.
foreach(header cuda.h cudaProfiler.h nvrtc.h)
  if(EXISTS "${FARGPU_CUDA_INCLUDE_DIR}/${header}")
    configure_file("${FARGPU_CUDA_INCLUDE_DIR}/${header}" "${CMAKE_BINARY_DIR}/cuda/${header}" COPYONLY)
  endif()
endforeach()
add_library(fargpu_cuda_headers INTERFACE)
target_include_directories(fargpu_cuda_headers SYSTEM INTERFACE "${CMAKE_BINARY_DIR}/cuda")

# The system's Python (python3-yaml, python3-jinja2), not one from a version manager.
find_program(FARGPU_PYTHON NAMES python3 PATHS /usr/bin NO_DEFAULT_PATH)
if(NOT FARGPU_PYTHON)
  find_program(FARGPU_PYTHON NAMES python3 REQUIRED)
endif()
