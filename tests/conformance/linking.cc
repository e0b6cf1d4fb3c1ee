// Linking at run time. What is wrong with an input may be said when it is added or when the link is
// completed; the program shows the end.
#include "tests/conformance/conformance.h"

namespace {

const char* const kCaller = R"(.version 7.5
.target sm_75
.address_size 64
.extern .func (.param .b32 result) triple(.param .b32 value);
.visible .entry apply(.param .u64 p)
{
  .reg .b32 %r<3>;
  .reg .b64 %rd1;
  .param .b32 in;
  .param .b32 out;
  ld.param.u64 %rd1, [p];
  ld.global.u32 %r1, [%rd1];
  st.param.b32 [in], %r1;
  call.uni (out), triple, (in);
  ld.param.b32 %r2, [out];
  st.global.u32 [%rd1], %r2;
  ret;
}
)";

const char* const kCallee = R"(.version 7.5
.target sm_75
.address_size 64
.visible .func (.param .b32 result) triple(.param .b32 value)
{
  .reg .b32 %r<3>;
  ld.param.b32 %r1, [value];
  mul.lo.s32 %r2, %r1, 3;
  st.param.b32 [result], %r2;
  ret;
}
)";

CUresult add(CUlinkState link, const char* text) {
  return cuLinkAddData(link, CU_JIT_INPUT_PTX, const_cast<char*>(text), std::strlen(text) + 1,
                       "input", 0, nullptr, nullptr);
}

void good_link() {
  CUlinkState link = nullptr;
  SHOW(cuLinkCreate(0, nullptr, nullptr, &link));
  SHOW(add(link, kCaller));
  SHOW(add(link, kCallee));
  void* image = nullptr;
  size_t bytes = 0;
  SHOW(cuLinkComplete(link, &image, &bytes));
  VALUE(image != nullptr && bytes > 0);
  CUmodule module = nullptr;
  SHOW(cuModuleLoadData(&module, image));
  SHOW(cuLinkDestroy(link));
  SHOW(cuLinkDestroy(link));
  CUfunction function = nullptr;
  NEED(cuModuleGetFunction(&function, module, "apply"));
  CUdeviceptr p = 0;
  NEED(cuMemAlloc(&p, 4));
  NEED(cuMemsetD32(p, 14, 1));
  void* arguments[] = {&p};
  SHOW(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));
  unsigned value = 0;
  SHOW(cuMemcpyDtoH(&value, p, 4));
  VALUE(value);
}

// The result of the step that fails, and whether the log says something.
void failing_link(const char* what, const char* first, const char* second) {
  char errors[1024] = "";
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {errors, reinterpret_cast<void*>(sizeof(errors))};
  CUlinkState link = nullptr;
  NEED(cuLinkCreate(2, options, values, &link));
  void* image = nullptr;
  CUresult result = add(link, first);
  if (result == CUDA_SUCCESS && second != nullptr) result = add(link, second);
  if (result == CUDA_SUCCESS) result = cuLinkComplete(link, &image, nullptr);
  std::printf("%s: %s\n", what, error_name(result));
  VALUE(errors[0] != 0);
  SHOW(cuLinkDestroy(link));
}

void refused_arguments() {
  CUlinkState link = nullptr;
  void* image = nullptr;
  SHOW(cuLinkCreate(0, nullptr, nullptr, nullptr));
  SHOW(cuLinkCreate(0, nullptr, nullptr, &link));
  SHOW(cuLinkComplete(link, &image, nullptr));
  SHOW(cuLinkAddData(link, CU_JIT_INPUT_PTX, nullptr, 5, "input", 0, nullptr, nullptr));
  SHOW(cuLinkAddFile(link, CU_JIT_INPUT_PTX, "/nonexistent/file.ptx", 0, nullptr, nullptr));
  // Options of one input that change no result.
  CUjit_option options[] = {CU_JIT_OPTIMIZATION_LEVEL, CU_JIT_GENERATE_LINE_INFO, CU_JIT_MAX_REGISTERS};
  void* values[] = {reinterpret_cast<void*>(2), reinterpret_cast<void*>(1), reinterpret_cast<void*>(64)};
  SHOW(cuLinkAddData(link, CU_JIT_INPUT_PTX, const_cast<char*>(kCallee), std::strlen(kCallee) + 1, "callee", 3, options, values));
  SHOW(cuLinkComplete(link, &image, nullptr));
  SHOW(cuLinkDestroy(link));
  SHOW(cuLinkComplete(link, &image, nullptr));
  SHOW(add(link, kCaller));
}

}  // namespace

int main() {
  make_context();
  good_link();
  failing_link("unresolved function", kCaller, nullptr);
  failing_link("no PTX", kCallee, "this is not PTX");
  refused_arguments();
  return 0;
}
