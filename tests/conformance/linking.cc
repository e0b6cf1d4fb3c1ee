// Linking at run time: what is wrong with an input is said when it is added, what is missing in the
// end when the link is completed.
#include <vector>

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
  // A copy serves as well, and its size is found in it.
  const std::vector<char> copy(static_cast<char*>(image), static_cast<char*>(image) + bytes);
  SHOW(cuLinkDestroy(link));
  CUlibrary library = nullptr;
  SHOW(cuLibraryLoadData(&library, copy.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  CUkernel kernel = nullptr;
  SHOW(cuLibraryGetKernel(&kernel, library, "apply"));
  SHOW(cuLibraryUnload(library));
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

// A link with an error log.
struct LoggedLink {
  char errors[1024] = "";
  CUjit_option options[2] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[2] = {errors, reinterpret_cast<void*>(sizeof(errors))};
  CUlinkState link = nullptr;

  LoggedLink() { NEED(cuLinkCreate(2, options, values, &link)); }
  ~LoggedLink() { SHOW(cuLinkDestroy(link)); }
  void show_log() {
    std::printf("log: %s\n", errors[0] == 0 ? "empty" : "filled");
    VALUE(values[1] == reinterpret_cast<void*>(std::strlen(errors)));
  }
};

void unresolved_function() {
  LoggedLink logged;
  SHOW(add(logged.link, kCaller));
  logged.show_log();
  void* image = nullptr;
  SHOW(cuLinkComplete(logged.link, &image, nullptr));
  logged.show_log();
}

// An input that is refused leaves the link as it was.
void wrong_input(const char* what, int type, const char* data, size_t size) {
  std::printf("%s\n", what);
  LoggedLink logged;
  SHOW(add(logged.link, kCaller));
  SHOW(cuLinkAddData(logged.link, static_cast<CUjitInputType>(type), const_cast<char*>(data), size,
                     "wrong", 0, nullptr, nullptr));
  logged.show_log();
  SHOW(add(logged.link, kCallee));
  void* image = nullptr;
  SHOW(cuLinkComplete(logged.link, &image, nullptr));
}

void wrong_inputs() {
  const char* const no_ptx = "this is not PTX";
  wrong_input("no PTX", CU_JIT_INPUT_PTX, no_ptx, std::strlen(no_ptx) + 1);
  const char* const instruction =
      ".version 7.5\n.target sm_75\n.address_size 64\n.visible .entry a(){foo.u32;ret;}\n";
  wrong_input("unknown instruction", CU_JIT_INPUT_PTX, instruction, std::strlen(instruction) + 1);
  const char* const version = ".version 99.0\n.target sm_75\n.address_size 64\n";
  wrong_input("version of the future", CU_JIT_INPUT_PTX, version, std::strlen(version) + 1);
  const char elf[64] = "\177ELF and nothing behind it";
  wrong_input("damaged cubin", CU_JIT_INPUT_CUBIN, elf, sizeof(elf));
  wrong_input("damaged fatbin", CU_JIT_INPUT_FATBINARY, elf, sizeof(elf));
  wrong_input("no such type", 77, kCallee, std::strlen(kCallee) + 1);
}

void after_completion() {
  CUlinkState link = nullptr;
  NEED(cuLinkCreate(0, nullptr, nullptr, &link));
  SHOW(add(link, kCallee));
  void* image = nullptr;
  SHOW(cuLinkComplete(link, &image, nullptr));
  SHOW(cuLinkComplete(link, &image, nullptr));
  SHOW(add(link, kCallee));
  SHOW(cuLinkDestroy(link));
}

// Options of one input: those that steer its code, no logs, none that do not exist.
void input_options() {
  CUlinkState link = nullptr;
  NEED(cuLinkCreate(0, nullptr, nullptr, &link));
  const auto add_with = [&](CUjit_option option, void* value) {
    return cuLinkAddData(link, CU_JIT_INPUT_PTX, const_cast<char*>(kCallee),
                         std::strlen(kCallee) + 1, "input", 1, &option, &value);
  };
  char log[64];
  SHOW(add_with(CU_JIT_ERROR_LOG_BUFFER, log));
  SHOW(add_with(static_cast<CUjit_option>(999), nullptr));
  SHOW(add_with(CU_JIT_MAX_REGISTERS, reinterpret_cast<void*>(32)));
  SHOW(cuLinkDestroy(link));
  CUjit_option option = static_cast<CUjit_option>(999);
  void* value = nullptr;
  SHOW(cuLinkCreate(1, &option, &value, &link));
}

void nothing_to_link() {
  CUlinkState link = nullptr;
  NEED(cuLinkCreate(0, nullptr, nullptr, &link));
  void* image = nullptr;
  SHOW(cuLinkComplete(link, &image, nullptr));
  SHOW(cuLinkDestroy(link));
}

void refused_arguments() {
  CUlinkState link = nullptr;
  void* image = nullptr;
  SHOW(cuLinkCreate(0, nullptr, nullptr, nullptr));
  SHOW(cuLinkCreate(0, nullptr, nullptr, &link));
  SHOW(cuLinkComplete(link, nullptr, nullptr));
  SHOW(cuLinkAddData(link, CU_JIT_INPUT_PTX, nullptr, 5, "input", 0, nullptr, nullptr));
  SHOW(cuLinkAddFile(link, CU_JIT_INPUT_PTX, "/nonexistent/file.ptx", 0, nullptr, nullptr));
  SHOW(cuLinkAddFile(link, CU_JIT_INPUT_PTX, "/dev/null", 0, nullptr, nullptr));
  // Options of one input that change no result.
  CUjit_option options[] = {CU_JIT_OPTIMIZATION_LEVEL, CU_JIT_GENERATE_LINE_INFO,
                            CU_JIT_MAX_REGISTERS};
  void* values[] = {reinterpret_cast<void*>(2), reinterpret_cast<void*>(1),
                    reinterpret_cast<void*>(64)};
  SHOW(cuLinkAddData(link, CU_JIT_INPUT_PTX, const_cast<char*>(kCallee), std::strlen(kCallee) + 1,
                     "callee", 3, options, values));
  SHOW(cuLinkComplete(link, &image, nullptr));
  SHOW(cuLinkDestroy(link));
}

}  // namespace

int main() {
  make_context();
  good_link();
  unresolved_function();
  wrong_inputs();
  after_completion();
  input_options();
  nothing_to_link();
  refused_arguments();
  return 0;
}
