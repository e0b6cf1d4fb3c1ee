#include <dlfcn.h>

#include "tests/sim_driver/support.h"

namespace fargpu::sim_test {
namespace {

struct Answer {
  CUresult result = CUDA_ERROR_UNKNOWN;
  void* function = nullptr;
  CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
};

Answer ask(const char* name, int version, cuuint64_t flags = 0) {
  Answer answer;
  answer.result = cuGetProcAddress(name, &answer.function, version, flags, &answer.status);
  return answer;
}

TEST(ProcAddressTest, VersionsChooseTheAbi) {
  EXPECT_EQ(ask("cuMemAlloc", 3020).function, reinterpret_cast<void*>(&cuMemAlloc_v2));
  EXPECT_EQ(ask("cuMemAlloc", 13000).function, reinterpret_cast<void*>(&cuMemAlloc_v2));
  EXPECT_NE(ask("cuMemAlloc", 2000).function, nullptr);
  EXPECT_NE(ask("cuMemAlloc", 2000).function, ask("cuMemAlloc", 3020).function);
  EXPECT_EQ(ask("cuMemAllocAsync", 11010).status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
  EXPECT_EQ(ask("cuMemAllocAsync", 11010).function, nullptr);
  EXPECT_EQ(ask("cuNoSuchFunction", 13000).status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  EXPECT_CU(CUDA_SUCCESS, ask("cuNoSuchFunction", 13000).result);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, ask("cuMemAlloc", 14000).result);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, ask("cuMemAlloc", 13000, 0xff00).result);
}

TEST(ProcAddressTest, PerThreadVariants) {
  const auto plain = ask("cuMemsetD32Async", 7000);
  const auto twin = ask("cuMemsetD32Async", 7000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
  EXPECT_NE(twin.function, nullptr);
  EXPECT_NE(plain.function, twin.function);
  const auto same = ask("cuInit", 7000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
  EXPECT_EQ(same.function, reinterpret_cast<void*>(&cuInit));
}

TEST_F(ContextTest, APerThreadVariantUsesThePerThreadStream) {
  PinnedWords words(2);
  OK(cuStreamWaitValue32(CU_STREAM_PER_THREAD, words.device(0), 1, CU_STREAM_WAIT_VALUE_EQ));
  using Query = CUresult (*)(CUstream);
  const auto query = reinterpret_cast<Query>(
      ask("cuStreamQuery", 13000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM).function);
  ASSERT_NE(query, nullptr);
  EXPECT_CU(CUDA_ERROR_NOT_READY, query(nullptr));
  words.store(0, 1);
  OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
  EXPECT_CU(CUDA_SUCCESS, query(nullptr));
}

TEST(ProcAddressTest, WhatIsNotSimulatedSaysSo) {
  using Unregister = CUresult (*)(CUgraphicsResource);
  const auto unregister =
      reinterpret_cast<Unregister>(ask("cuGraphicsUnregisterResource", 13000).function);
  ASSERT_NE(unregister, nullptr);
  EXPECT_CU(CUDA_ERROR_NOT_SUPPORTED, unregister(nullptr));
}

TEST(ProcAddressTest, OnlyTheApiIsExported) {
  Dl_info info{};
  ASSERT_NE(dladdr(reinterpret_cast<void*>(&cuInit), &info), 0);
  void* library = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(library, nullptr);
  EXPECT_NE(dlsym(library, "cuLaunchKernel_ptsz"), nullptr);
  EXPECT_NE(dlsym(library, "cuTexRefCreate"), nullptr);
  EXPECT_EQ(dlsym(library, "_ZN6fargpu3sim6Driver3getEv"), nullptr);
  dlclose(library);
}

}  // namespace
}  // namespace fargpu::sim_test
