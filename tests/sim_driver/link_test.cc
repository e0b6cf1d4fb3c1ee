#include <cstring>

#include "tests/sim_driver/support.h"

namespace fargpu::sim_test {
namespace {

constexpr char kCaller[] = R"(.version 7.5
.target sm_75
.address_size 64
.extern .func (.param .b32 result) twice(.param .b32 value);
.visible .entry store_twice(.param .u64 p)
{
  .reg .b32 %r<3>;
  .reg .b64 %rd1;
  .param .b32 in;
  .param .b32 out;
  ld.param.u64 %rd1, [p];
  ld.global.u32 %r1, [%rd1];
  st.param.b32 [in], %r1;
  call.uni (out), twice, (in);
  ld.param.b32 %r2, [out];
  st.global.u32 [%rd1], %r2;
  ret;
}
)";

constexpr char kCallee[] = R"(.version 7.5
.target sm_75
.address_size 64
.visible .func (.param .b32 result) twice(.param .b32 value)
{
  .reg .b32 %r<3>;
  ld.param.b32 %r1, [value];
  add.s32 %r2, %r1, %r1;
  st.param.b32 [result], %r2;
  ret;
}
)";

CUresult add(CUlinkState link, const char* text) {
  return cuLinkAddData(link, CU_JIT_INPUT_PTX, const_cast<char*>(text), std::strlen(text) + 1,
                       "input", 0, nullptr, nullptr);
}

TEST_F(ContextTest, LinksPtxOfSeveralInputs) {
  CUlinkState link = nullptr;
  OK(cuLinkCreate(0, nullptr, nullptr, &link));
  OK(add(link, kCaller));
  OK(add(link, kCallee));
  void* image = nullptr;
  size_t bytes = 0;
  OK(cuLinkComplete(link, &image, &bytes));
  EXPECT_GT(bytes, 0u);
  OK(cuModuleLoadData(&module_, image));
  OK(cuLinkDestroy(link));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, cuLinkDestroy(link));
  CUdeviceptr p = allocate(4);
  OK(cuMemsetD32(p, 21, 1));
  OK(launch(function("store_twice"), 1, {&p}));
  EXPECT_EQ(read_word(p), 42u);
}

TEST_F(ContextTest, LinkingNothingGivesAnEmptyModule) {
  CUlinkState link = nullptr;
  OK(cuLinkCreate(0, nullptr, nullptr, &link));
  void* image = nullptr;
  OK(cuLinkComplete(link, &image, nullptr));
  OK(cuModuleLoadData(&module_, image));
  unsigned count = 99;
  OK(cuModuleGetFunctionCount(&count, module_));
  EXPECT_EQ(count, 0u);
  OK(cuLinkDestroy(link));
}

TEST_F(ContextTest, SaysWhatIsWrongWithAnInputWhenItIsAdded) {
  char log[300] = "";
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log, reinterpret_cast<void*>(sizeof log)};
  CUlinkState link = nullptr;
  OK(cuLinkCreate(2, options, values, &link));
  EXPECT_CU(CUDA_ERROR_INVALID_PTX,
            add(link, ".version 7.5\n.target sm_75\n.address_size 64\n.entry e(){foo.u32;ret;}\n"));
  EXPECT_NE(std::string(log).find("foo"), std::string::npos) << log;
  EXPECT_EQ(values[1], reinterpret_cast<void*>(std::string(log).size()));
  // The room for the log is still that of the beginning.
  EXPECT_CU(CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
            add(link, ".version 99.0\n.target sm_75\n.address_size 64\n"));
  EXPECT_NE(std::string(log).find("newer than 9.0; compile with CUDA 13.0 or older"),
            std::string::npos)
      << log;
  OK(add(link, kCaller));
  OK(add(link, kCallee));
  void* image = nullptr;
  OK(cuLinkComplete(link, &image, nullptr));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, add(link, kCallee));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, cuLinkComplete(link, &image, nullptr));
  OK(cuLinkDestroy(link));
}

TEST_F(ContextTest, SaysWhatIsMissing) {
  char log[300] = "";
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log, reinterpret_cast<void*>(sizeof log)};
  CUlinkState link = nullptr;
  OK(cuLinkCreate(2, options, values, &link));
  OK(add(link, kCaller));
  void* image = nullptr;
  EXPECT_CU(CUDA_ERROR_INVALID_PTX, cuLinkComplete(link, &image, nullptr));
  EXPECT_NE(std::string(log).find("twice"), std::string::npos) << log;
  EXPECT_CU(CUDA_ERROR_INVALID_IMAGE, add(link, "not PTX"));
  char cubin[64] = "\177ELF";
  EXPECT_CU(CUDA_ERROR_NO_BINARY_FOR_GPU,
            cuLinkAddData(link, CU_JIT_INPUT_CUBIN, cubin, sizeof cubin, "c", 0, nullptr, nullptr));
  OK(cuLinkDestroy(link));
}

}  // namespace
}  // namespace fargpu::sim_test
