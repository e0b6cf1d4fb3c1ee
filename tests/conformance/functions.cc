// Attributes and parameters of functions, and occupancy.
#include "tests/conformance/conformance.h"
#include "tests/conformance/kernels.h"

namespace {

size_t shared_for(int block) { return static_cast<size_t>(block) * 16; }

void attributes(CUfunction function) {
  const CUfunction_attribute wanted[] = {CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
                                         CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES,
                                         CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES,
                                         CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES,
                                         CU_FUNC_ATTRIBUTE_PTX_VERSION,
                                         CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                         CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT};
  for (CUfunction_attribute attribute : wanted) {
    int value = -7;
    CUresult result = cuFuncGetAttribute(&value, attribute, function);
    std::printf("  attribute %d: %s %d\n", static_cast<int>(attribute), error_name(result), value);
  }
}

// Clusters that every launch of the function shall have, and how they are placed.
void clusters(CUfunction function) {
  std::printf("-- clusters\n");
  struct Setting {
    CUfunction_attribute attribute;
    std::vector<int> values;
  };
  const std::vector<int> sizes = {-1, 1000, 3, 1, 0};
  const Setting settings[] = {
      {CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET, {0, 1}},
      {CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, sizes},
      {CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT, sizes},
      {CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH, sizes},
      {CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, {-1, 0, 1, 2, 0}},
      {CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE, {-1, 2, 1, 3, 0}},
  };
  for (const Setting& setting : settings) {
    for (const int wanted : setting.values) {
      int value = -7;
      const CUresult result = cuFuncSetAttribute(function, setting.attribute, wanted);
      NEED(cuFuncGetAttribute(&value, setting.attribute, function));
      std::printf("  attribute %d to %d: %s %d\n", static_cast<int>(setting.attribute), wanted,
                  error_name(result), value);
    }
  }
}

}  // namespace

int main() {
  make_context();
  CUmodule module;
  CUfunction add, sum;
  NEED(cuModuleLoadData(&module, kKernels));
  NEED(cuModuleGetFunction(&add, module, "add"));
  NEED(cuModuleGetFunction(&sum, module, "shared_sum"));
  attributes(add);
  attributes(sum);
  int value = 0;
  SHOW(cuFuncGetAttribute(&value, static_cast<CUfunction_attribute>(999), add));
  SHOW(cuFuncGetAttribute(nullptr, CU_FUNC_ATTRIBUTE_NUM_REGS, add));
  SHOW(cuFuncSetAttribute(sum, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 60000));
  SHOW(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, sum));
  VALUE(value);
  SHOW(cuFuncSetAttribute(sum, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 60000));
  SHOW(cuFuncSetAttribute(sum, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100 << 20));
  SHOW(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, sum));
  VALUE(value);
  SHOW(cuFuncSetAttribute(sum, CU_FUNC_ATTRIBUTE_NUM_REGS, 3));
  SHOW(cuFuncSetCacheConfig(sum, CU_FUNC_CACHE_PREFER_L1));

  for (size_t i = 0; i < 5; ++i) {
    size_t offset = 99, bytes = 99;
    CUresult result = cuFuncGetParamInfo(add, i, &offset, &bytes);
    std::printf("  parameter %zu: %s", i, error_name(result));
    if (result == CUDA_SUCCESS) std::printf(" at %zu, %zu bytes", offset, bytes);
    std::printf("\n");
  }

  int blocks = 0, grid = 0, block = 0;
  for (int threads : {32, 128, 1000, 1024}) {
    CUresult result = cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, add, threads, 0);
    std::printf("  occupancy of %d threads: %s %d\n", threads, error_name(result), blocks);
    result = cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, sum, threads, 20000);
    std::printf("  with 20000 bytes: %s %d\n", error_name(result), blocks);
  }
  SHOW(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, add, 0, 0));
  SHOW(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, add, 5000, 0));
  SHOW(cuOccupancyMaxActiveBlocksPerMultiprocessor(nullptr, add, 32, 0));
  SHOW(cuOccupancyMaxPotentialBlockSize(&grid, &block, add, nullptr, 0, 0));
  VALUE(grid);
  VALUE(block);
  SHOW(cuOccupancyMaxPotentialBlockSize(&grid, &block, sum, shared_for, 0, 512));
  VALUE(grid);
  VALUE(block);
  size_t bytes = 0;
  SHOW(cuOccupancyAvailableDynamicSMemPerBlock(&bytes, sum, 2, 128));
  VALUE(bytes);
  clusters(add);
  return 0;
}
