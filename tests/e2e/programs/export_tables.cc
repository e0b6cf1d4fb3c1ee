// export_tables PTX: what libraries of NVIDIA ask of the driver beyond its documented functions
// (docs/interoperability.md), as they ask it: the functions of a module, by a callback, and the
// cache of run-time compilation.
#include <cuda.h>

#include <cstdint>
#include <cstdio>
#include <cstring>

#include "driver_check.h"

namespace {

constexpr unsigned char kFunctionEnumeration[16] = {0x6e, 0x16, 0x3f, 0xbe, 0xb9, 0x58, 0x44, 0x4d,
                                                    0x83, 0x5c, 0xe1, 0x82, 0xaf, 0xf1, 0x99, 0x1e};
constexpr unsigned char kCompilationCache[16] = {0xda, 0x91, 0x51, 0xd3, 0x3a, 0xe6, 0xcc, 0x41,
                                                 0xa5, 0xc0, 0x4f, 0x26, 0xd5, 0x33, 0xe3, 0x28};

using Visitor = void (*)(void* opaque, CUfunction function, const char* name);
using EachFunction = int (*)(CUcontext, CUmodule, Visitor, void*);
using CacheSlot = CUresult (*)(void*, void*, void*, void*);

void visit(void* opaque, CUfunction function, const char* name) {
  const char* same = "";
  cuFuncGetName(&same, function);
  std::printf("function %s%s\n", name, std::strcmp(name, same) == 0 ? "" : " WRONG");
  ++*static_cast<int*>(opaque);
}

CUresult table_of(const unsigned char (&id)[16], const void* const** table) {
  CUuuid uuid;
  std::memcpy(uuid.bytes, id, sizeof uuid.bytes);
  return cuGetExportTable(reinterpret_cast<const void**>(table), &uuid);
}

}  // namespace

int main(int count, char** values) {
  if (count != 2) return 2;
  CUdevice device;
  CUcontext context;
  CUmodule module;
  CHECK(cuInit(0));
  CHECK(cuDeviceGet(&device, 0));
  CHECK(cuDevicePrimaryCtxRetain(&context, device));
  CHECK(cuCtxPushCurrent(context));
  CHECK(cuModuleLoad(&module, values[1]));
  const void* const* table = nullptr;
  CHECK(table_of(kFunctionEnumeration, &table));
  std::printf("function enumeration: %zu words\n",
              reinterpret_cast<uintptr_t>(table[0]) / sizeof(void*));
  int seen = 0;
  const auto each = reinterpret_cast<EachFunction>(const_cast<void*>(table[7]));
  const int visited = each(nullptr, module, visit, &seen);
  std::printf("%d functions, %d told of\n", seen, visited);
  CHECK(table_of(kCompilationCache, &table));
  const auto slot = reinterpret_cast<CacheSlot>(const_cast<void*>(table[1]));
  std::printf("compilation cache: %d\n", slot(nullptr, nullptr, nullptr, nullptr));
  return 0;
}
