// Attributes of core dumps, which a program may set and read back. With the argument `enabling`:
// that no dump can be enabled, which natively it can.
#include <string_view>

#include "tests/conformance/conformance.h"

namespace {

using Get = CUresult (*)(CUcoredumpSettings, void*, size_t*);

void read_all(Get get) {
  for (int attribute = 0; attribute <= CU_COREDUMP_MAX; ++attribute) {
    const auto setting = static_cast<CUcoredumpSettings>(attribute);
    size_t size = 7;
    CUresult result = get(setting, nullptr, &size);
    std::printf("%d: %s, %zu bytes", attribute, error_name(result), size);
    unsigned char bytes[1024] = {};
    if (result == CUDA_SUCCESS) result = get(setting, bytes, &size);
    std::printf(", %s %u '%s'\n", error_name(result), bytes[0],
                size > sizeof(int) ? reinterpret_cast<const char*>(bytes) : "");
  }
}

}  // namespace

int main(int argc, char** argv) {
  const bool enabling = argc > 1 && std::string_view(argv[1]) == "enabling";
  size_t size = sizeof(bool);
  bool yes = true, no = false;
  SHOW(cuCoredumpGetAttributeGlobal(CU_COREDUMP_ENABLE_ON_EXCEPTION, &no, &size));
  NEED(cuInit(0));
  SHOW(cuCoredumpGetAttribute(CU_COREDUMP_ENABLE_ON_EXCEPTION, &no, &size));
  make_context();
  if (enabling) {
    SHOW(cuCoredumpSetAttribute(CU_COREDUMP_ENABLE_ON_EXCEPTION, &yes, &size));
    SHOW(cuCoredumpSetAttributeGlobal(CU_COREDUMP_ENABLE_ON_EXCEPTION, &yes, &size));
    SHOW(cuCoredumpSetAttributeGlobal(CU_COREDUMP_ENABLE_USER_TRIGGER, &yes, &size));
    return 0;
  }
  read_all(cuCoredumpGetAttribute);
  read_all(cuCoredumpGetAttributeGlobal);

  SHOW(cuCoredumpSetAttribute(CU_COREDUMP_LIGHTWEIGHT, &yes, &size));
  SHOW(cuCoredumpSetAttribute(CU_COREDUMP_TRIGGER_HOST, &no, &size));
  SHOW(cuCoredumpSetAttribute(CU_COREDUMP_ENABLE_USER_TRIGGER, &yes, &size));
  SHOW(cuCoredumpSetAttribute(CU_COREDUMP_ENABLE_ON_EXCEPTION, &no, &size));
  char file[] = "/tmp/core_x";
  size = sizeof(file);
  SHOW(cuCoredumpSetAttribute(CU_COREDUMP_FILE, file, &size));
  unsigned flags = CU_COREDUMP_SKIP_ABORT;
  size = sizeof(flags);
  SHOW(cuCoredumpSetAttributeGlobal(CU_COREDUMP_GENERATION_FLAGS, &flags, &size));
  read_all(cuCoredumpGetAttribute);
  read_all(cuCoredumpGetAttributeGlobal);
  SHOW(cuCoredumpSetAttribute(CU_COREDUMP_LIGHTWEIGHT, &yes, nullptr));
  SHOW(cuCoredumpSetAttribute(static_cast<CUcoredumpSettings>(99), &yes, &size));
  SHOW(cuCoredumpSetAttribute(CU_COREDUMP_LIGHTWEIGHT, &yes, &size));
  return 0;
}
