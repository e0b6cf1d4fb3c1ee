#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "tests/sim_driver/fatbin_builder.h"
#include "tests/sim_driver/support.h"

namespace fargpu::sim_test {
namespace {

using sim::FatbinBuilder;
using sim::Packing;

TEST_F(ContextTest, FunctionsAndGlobalsByName) {
  OK(cuModuleLoadData(&module_, kKernels));
  CUfunction fill = nullptr;
  OK(cuModuleGetFunction(&fill, module_, "fill"));
  EXPECT_CU(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&fill, module_, "no such"));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuModuleGetFunction(&fill, module_, nullptr));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, cuModuleGetFunction(&fill, nullptr, "fill"));
  unsigned count = 0;
  OK(cuModuleGetFunctionCount(&count, module_));
  EXPECT_EQ(count, 9u);
  std::vector<CUfunction> functions(count);
  OK(cuModuleEnumerateFunctions(functions.data(), count, module_));
  EXPECT_NE(std::find(functions.begin(), functions.end(), fill), functions.end());
  CUdeviceptr counter = 0, factor = 0;
  size_t bytes = 0;
  OK(cuModuleGetGlobal(&counter, &bytes, module_, "counter"));
  EXPECT_EQ(bytes, 4u);
  EXPECT_EQ(read_word(counter), 40u);
  OK(launch(function("bump"), 64, {}));
  EXPECT_EQ(read_word(counter), 104u);
  OK(cuModuleGetGlobal(&factor, nullptr, module_, "factor"));
  const uint32_t five = 5;
  OK(cuMemcpyHtoD(factor, &five, 4));
  CUdeviceptr p = allocate(4);
  OK(cuMemsetD32(p, 7, 1));
  OK(launch(function("scale"), 1, {&p}));
  EXPECT_EQ(read_word(p), 35u);
  EXPECT_CU(CUDA_ERROR_NOT_FOUND, cuModuleGetGlobal(&counter, &bytes, module_, "none"));
}

TEST_F(ContextTest, UnloadedModulesTakeTheirFunctionsAndMemory) {
  size_t before = 0, after = 0;
  OK(cuMemGetInfo(&before, nullptr));
  CUfunction fill = function("fill");
  CUdeviceptr counter = 0;
  OK(cuModuleGetGlobal(&counter, nullptr, module_, "counter"));
  OK(cuModuleUnload(module_));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, cuModuleUnload(module_));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, launch(fill, 1, {}));
  uint32_t word = 0;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH(&word, counter, 4));
  OK(cuMemGetInfo(&after, nullptr));
  EXPECT_EQ(before, after);
}

TEST_F(ContextTest, EveryFormOfImage) {
  for (Packing packing : {Packing::kNone, Packing::kLz4, Packing::kZstd}) {
    const auto container = FatbinBuilder()
                               .add(2, 75, "machine code")
                               .add(1, 75, kKernels, packing)
                               .add(1, 120, "newer")
                               .container();
    sim::FatbinWrapper wrapper;
    wrapper.data = container.data();
    CUmodule module = nullptr;
    OK(cuModuleLoadData(&module, container.data()));
    OK(cuModuleUnload(module));
    OK(cuModuleLoadFatBinary(&module, &wrapper));
    CUfunction found = nullptr;
    OK(cuModuleGetFunction(&found, module, "fill"));
    OK(cuModuleUnload(module));
  }
  const std::string path = testing::TempDir() + "sim_module_test.ptx";
  std::ofstream(path) << kKernels;
  OK(cuModuleLoad(&module_, path.c_str()));
  std::remove(path.c_str());
  EXPECT_CU(CUDA_ERROR_FILE_NOT_FOUND, cuModuleLoad(&module_, path.c_str()));
}

TEST_F(ContextTest, ImagesThatCannotBeLoaded) {
  CUmodule module = nullptr;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuModuleLoadData(&module, nullptr));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuModuleLoadData(nullptr, kKernels));
  EXPECT_CU(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&module, "this is no PTX"));
  const char elf[64] = "\177ELF\2\1\1";
  EXPECT_CU(CUDA_ERROR_NO_BINARY_FOR_GPU, cuModuleLoadData(&module, elf));
  const auto cubin_only = FatbinBuilder().add(2, 90, "machine code").container();
  EXPECT_CU(CUDA_ERROR_NO_BINARY_FOR_GPU, cuModuleLoadData(&module, cubin_only.data()));
  auto damaged = FatbinBuilder().add(1, 75, kKernels, Packing::kZstd).container();
  damaged[16 + 64 + 20] ^= std::byte{0xff};
  EXPECT_CU(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&module, damaged.data()));
  const char* unknown =
      ".version 7.5\n.target sm_75\n.address_size 64\n.visible .entry f() {\n  frobnicate.u32 1, "
      "2;\n  ret;\n}\n";
  EXPECT_CU(CUDA_ERROR_INVALID_PTX, cuModuleLoadData(&module, unknown));
  EXPECT_CU(CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
            cuModuleLoadData(&module, ".version 99.0\n.target sm_75\n.address_size 64\n"));
  const std::string later =
      ".version 9.5\n.target sm_75\n.address_size 64\n.visible .entry f()\n{\n";
  EXPECT_CU(CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
            cuModuleLoadData(&module, (later + "  frobnicate.u32 1, 2;\n  ret;\n}\n").c_str()));
  OK(cuModuleLoadData(&module, (later + "  ret;\n}\n").c_str()));
  OK(cuModuleUnload(module));
  EXPECT_CU(CUDA_ERROR_INVALID_PTX,
            cuModuleLoadData(&module, ".version 8.6\n.target sm_100\n.address_size 64\n"));
  char log[200] = "";
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log, reinterpret_cast<void*>(sizeof log)};
  EXPECT_CU(CUDA_ERROR_INVALID_PTX, cuModuleLoadDataEx(&module, unknown, 2, options, values));
  EXPECT_NE(std::string(log).find("frobnicate"), std::string::npos) << log;
  EXPECT_EQ(reinterpret_cast<size_t>(values[1]), std::strlen(log));
  CUjit_option bad = static_cast<CUjit_option>(4711);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuModuleLoadDataEx(&module, kKernels, 1, &bad, values));
}

TEST_F(ContextTest, FunctionsDescribeThemselves) {
  CUfunction add = function("add"), reverse = function("shared_reverse");
  const char* name = nullptr;
  OK(cuFuncGetName(&name, add));
  EXPECT_STREQ(name, "add");
  CUmodule of = nullptr;
  OK(cuFuncGetModule(&of, add));
  EXPECT_EQ(of, module_);
  const size_t offsets[] = {0, 8, 16, 24}, sizes[] = {8, 8, 8, 4};
  for (size_t i = 0; i < 4; ++i) {
    size_t offset = 99, size = 99;
    OK(cuFuncGetParamInfo(add, i, &offset, &size));
    EXPECT_EQ(offset, offsets[i]);
    EXPECT_EQ(size, sizes[i]);
  }
  size_t offset = 0;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuFuncGetParamInfo(add, 4, &offset, nullptr));
  int value = 0;
  OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, reverse));
  EXPECT_EQ(value, 512);
  OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, reverse));
  EXPECT_EQ(value, 49152 - 512);
  OK(cuFuncSetAttribute(reverse, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100000));
  OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, reverse));
  EXPECT_EQ(value, 100000);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            cuFuncSetAttribute(reverse, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1 << 20));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuFuncSetAttribute(reverse, CU_FUNC_ATTRIBUTE_NUM_REGS, 1));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            cuFuncGetAttribute(&value, static_cast<CUfunction_attribute>(99), add));
  OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_BINARY_VERSION, add));
  EXPECT_EQ(value, 90);
  int blocks = 0, grid = 0, block = 0;
  OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, add, 1024, 0));
  EXPECT_EQ(blocks, 2);
  OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, add, 5000, 0));
  EXPECT_EQ(blocks, 0);
  OK(cuOccupancyMaxPotentialBlockSize(&grid, &block, add, nullptr, 0, 0));
  EXPECT_EQ(block, 1024);
  EXPECT_EQ(grid, 32);
}

}  // namespace
}  // namespace fargpu::sim_test
