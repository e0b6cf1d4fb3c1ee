#include "client/interop/export_tables.h"

#include <pthread.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <set>
#include <utility>

#include "client/entry/call_target.h"
#include "client/image/load.h"
#include "client/interop/handshake.h"
#include "client/object/context_storage.h"
#include "client/process/gpu_tools.h"
#include "client/process/process.h"
#include "common/base/log.h"

namespace fargpu::client::interop {
namespace {

// Tables by the names that docs/interoperability.md gives them. The numbers are only names for the
// log.
enum TableName : int {
  kCudartInterface,
  kToolsHooks,
  kToolsTls,
  kContextStorage,
  kContextChecks,
  kIntegrityCheck,
  kContextIdentity,
  kFunctionEnumeration,
  kCompilationCache,
  kMatmulHeuristics,
};

template <TableName table, size_t slot>
CUresult unknown_slot() {
  static constexpr const char* kNames[] = {
      "cudart interface", "tools hooks",          "tools tls",
      "context storage",  "context checks",       "integrity check",
      "context identity", "function enumeration", "run-time compilation cache",
      "matmul heuristics"};
  static std::atomic<bool> told{false};
  if (!told.exchange(true))
    log::warn("slot {} of the export table '{}' is not supported", slot, kNames[table]);
  return CUDA_ERROR_NOT_SUPPORTED;
}

template <typename Function>
uintptr_t word(Function* function) {
  return reinterpret_cast<uintptr_t>(function);
}

// A table of `words` words; word 0 is its size in bytes unless it has none.
template <TableName table, size_t words, bool has_size = true>
std::array<uintptr_t, words> blank() {
  std::array<uintptr_t, words> result{};
  [&]<size_t... slot>(std::index_sequence<slot...>) {
    ((result[slot] = word(&unknown_slot<table, slot>)), ...);
  }
  (std::make_index_sequence<words>());
  if (has_size) result[0] = words * sizeof(uintptr_t);
  return result;
}

CUresult ready() { return Process::get().check(); }

// NULL and -1 mean the current context.
CUresult resolve(CUcontext handle, Context** context) {
  if (const CUresult result = ready(); result != CUDA_SUCCESS) return result;
  const bool current = handle == nullptr || handle == reinterpret_cast<CUcontext>(-1);
  *context = current ? current_context() : home_of(Process::get().tables()->contexts.find(handle));
  return *context == nullptr ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

// --- CUDART_INTERFACE
// -------------------------------------------------------------------------------------------------

CUresult primary_context(CUcontext* out, CUdevice device) {
  if (const CUresult result = ready(); result != CUDA_SUCCESS) return result;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* context = Process::get().tables()->contexts.primary(device);
  if (context == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *out = context->handle();
  return CUDA_SUCCESS;
}

// The module loads of older runtimes: they go the way of the public function.
CUresult load_wrapper(CUmodule* module, const void* wrapper) {
  return cuModuleLoadData(module, wrapper);
}
CUresult load_wrapper_with_options(CUmodule* module, const void* wrapper, void*, void*, unsigned) {
  return cuModuleLoadData(module, wrapper);
}
CUresult load_container(const void* container, CUmodule* module, void*, void*, unsigned) {
  return cuModuleLoadData(module, container);
}
CUresult succeed() { return CUDA_SUCCESS; }

auto& cudart_interface() {
  static auto table = [] {
    auto words = blank<kCudartInterface, 13>();
    words[1] = word(&load_wrapper);
    words[2] = word(&primary_context);
    words[6] = word(&load_wrapper_with_options);
    words[7] = word(&succeed);
    words[8] = word(&load_container);
    words[10] = 0;
    words[12] = word(&succeed);
    return words;
  }();
  return table;
}

// --- TOOLS_RUNTIME_CALLBACK_HOOKS, TOOLS_TLS
// -----------------------------------------------------------------------------------------

// Which callbacks a tool has enabled: none, for ever.
CUresult enable_flags(void** flags, size_t* count) {
  static unsigned none[1024];
  *flags = none;
  *count = std::size(none);
  return CUDA_SUCCESS;
}
CUresult few_enable_flags(void** flags, size_t* count) {
  static unsigned none[14];
  *flags = none;
  *count = std::size(none);
  return CUDA_SUCCESS;
}

auto& tools_hooks() {
  static auto table = [] {
    auto words = blank<kToolsHooks, 7>();
    words[2] = word(&enable_flags);
    words[6] = word(&few_enable_flags);
    return words;
  }();
  return table;
}

CUresult thread_context(CUcontext* out) {
  if (const CUresult result = ready(); result != CUDA_SUCCESS) return result;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* context = named_current();
  *out = context == nullptr ? nullptr : context->handle();
  return CUDA_SUCCESS;
}

auto& tools_tls() {
  static auto table = [] {
    auto words = blank<kToolsTls, 3>();
    words[2] = word(&thread_context);
    return words;
  }();
  return table;
}

// --- CONTEXT_LOCAL_STORAGE
// -------------------------------------------------------------------------------------------------

CUresult storage_put(CUcontext handle, void* key, void* value,
                     ContextStorage::Destructor destructor) {
  Context* context = nullptr;
  if (const CUresult result = resolve(handle, &context); result != CUDA_SUCCESS) return result;
  ContextStorage::get_instance().put(context, key, value, destructor);
  return CUDA_SUCCESS;
}

CUresult storage_delete(CUcontext handle, void* key) {
  Context* context = nullptr;
  if (const CUresult result = resolve(handle, &context); result != CUDA_SUCCESS) return result;
  return ContextStorage::get_instance().erase(context, key) ? CUDA_SUCCESS
                                                            : CUDA_ERROR_INVALID_HANDLE;
}

// The runtime tells "no context yet" (INVALID_CONTEXT) from "nothing stored yet" (INVALID_HANDLE).
CUresult storage_get(void** value, CUcontext handle, void* key) {
  Context* context = nullptr;
  if (const CUresult result = resolve(handle, &context); result != CUDA_SUCCESS) return result;
  return ContextStorage::get_instance().get(context, key, value) ? CUDA_SUCCESS
                                                                 : CUDA_ERROR_INVALID_HANDLE;
}

auto& context_storage() {
  static auto table = [] {
    auto words = blank<kContextStorage, 4, /*has_size=*/false>();
    words[0] = word(&storage_put);
    words[1] = word(&storage_delete);
    words[2] = word(&storage_get);
    return words;
  }();
  return table;
}

// --- CONTEXT_CHECKS
// -------------------------------------------------------------------------------------------------

CUresult context_flag(CUcontext, unsigned* flag, void**) {
  if (flag != nullptr) *flag = 0;
  return CUDA_SUCCESS;
}
unsigned no_checks() { return 0; }

auto& context_checks() {
  static auto table = [] {
    auto words = blank<kContextChecks, 15>();
    words[2] = word(&context_flag);
    words[3] = word(&no_checks);
    return words;
  }();
  return table;
}

// --- INTEGRITY_CHECK
// -------------------------------------------------------------------------------------------------

std::array<uintptr_t, 3>& integrity_check();

CUresult integrity_answer(uint32_t version, uint64_t unix_seconds, uint64_t out[2]) {
  std::vector<HandshakeDevice> devices;
  for (int i = 0; const Device* device = Process::get().device(i); ++i) {
    devices.push_back({device->uuid, device->attribute(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID),
                       device->attribute(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID),
                       device->attribute(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)});
  }
  HandshakeInput input;
  input.driver_version = static_cast<uint32_t>(Process::get().driver_version());
  input.version = version;
  input.process_id = static_cast<uint32_t>(::getpid());
  input.thread_id = static_cast<uint32_t>(pthread_self());
  input.cudart_table = reinterpret_cast<uint64_t>(cudart_interface().data());
  input.integrity_table = reinterpret_cast<uint64_t>(integrity_check().data());
  input.function = integrity_check()[1];
  input.unix_seconds = unix_seconds;
  input.devices = devices;
  const std::array<uint64_t, 2> answer = handshake(input);
  out[0] = answer[0];
  out[1] = answer[1];
  return CUDA_SUCCESS;
}

std::array<uintptr_t, 3>& integrity_check() {
  static auto table = [] {
    auto words = blank<kIntegrityCheck, 3>();
    words[1] = word(&integrity_answer);
    return words;
  }();
  return table;
}

// --- context identity
// -------------------------------------------------------------------------------------------------

CUresult context_device(CUcontext handle, CUdevice* device) {
  Context* context = nullptr;
  if (const CUresult result = resolve(handle, &context); result != CUDA_SUCCESS) return result;
  *device = context->device;
  return CUDA_SUCCESS;
}

CUresult context_id(CUcontext handle, uint64_t* id) {
  Context* context = nullptr;
  if (const CUresult result = resolve(handle, &context); result != CUDA_SUCCESS) return result;
  *id = context->unique_id.load(std::memory_order_relaxed);
  return CUDA_SUCCESS;
}

// A stand-in for the driver's inner stream: an address per stream of a context, with the id as
// contents. Libraries key caches on the id, so none is ever used for another stream.
CUresult private_stream(CUcontext handle, CUstream stream, void** out, int per_thread) {
  Context* context = nullptr;
  if (const CUresult result = resolve(handle, &context); result != CUDA_SUCCESS) return result;
  uint64_t id = reinterpret_cast<uint64_t>(stream);
  if (is_default_stream(stream)) {
    ContextScope in_context(context);
    CUresult result;
    if (per_thread != 0 && stream == nullptr) {
      PerThreadDefaultStream scope;
      result = stream_to_wire(*context->session, stream, &id);
    } else {
      result = stream_to_wire(*context->session, stream, &id);
    }
    if (result != CUDA_SUCCESS) return result;
    // The legacy stream is one per context; its number is below all handles of streams.
    if (id == kLegacyStreamId) id = context->unique_id.load() * 16 + kLegacyStreamId;
  } else if (context_of(stream) == nullptr) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  static auto& mutex = *new std::mutex;
  static auto& ids = *new std::set<uint64_t>;  // nodes never move and are never erased
  std::lock_guard lock(mutex);
  *out = const_cast<uint64_t*>(&*ids.insert(id).first);
  return CUDA_SUCCESS;
}

CUresult private_stream_id(CUcontext, const void* stream, uint64_t* id) {
  if (stream == nullptr || id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *id = *static_cast<const uint64_t*>(stream);
  return CUDA_SUCCESS;
}

auto& context_identity() {
  static auto table = [] {
    auto words = blank<kContextIdentity, 93>();
    words[3] = word(&context_device);
    words[4] = word(&context_id);
    words[39] = word(&private_stream_id);
    words[51] = word(&private_stream);
    return words;
  }();
  return table;
}

// --- function enumeration
// -------------------------------------------------------------------------------------------------

using FunctionVisitor = void (*)(void* opaque, CUfunction function, const char* name);

// Not a CUresult: how many functions were visited. cuFFT insists on one for each of its modules.
int each_function(CUcontext, CUmodule module, FunctionVisitor visit, void* opaque) {
  unsigned count = 0;
  if (cuModuleGetFunctionCount(&count, module) != CUDA_SUCCESS) return 0;
  std::vector<CUfunction> functions(count);
  if (count > 0 && cuModuleEnumerateFunctions(functions.data(), count, module) != CUDA_SUCCESS) {
    return 0;
  }
  for (CUfunction function : functions) {
    const char* name = "";
    cuFuncGetName(&name, function);
    visit(opaque, function, name);
  }
  return static_cast<int>(count);
}

auto& function_enumeration() {
  static auto table = [] {
    auto words = blank<kFunctionEnumeration, 99>();
    words[7] = word(&each_function);
    return words;
  }();
  return table;
}

// --- cache of run-time compilation
// -------------------------------------------------------------------------------------------------

// There is none here. CuPy and PyTorch ask before every compilation, so nothing is logged.
CUresult refuse_silently() { return CUDA_ERROR_NOT_SUPPORTED; }

auto& compilation_cache() {
  static auto table = [] {
    auto words = blank<kCompilationCache, 7>();
    words[1] = word(&refuse_silently);
    return words;
  }();
  return table;
}

// --- what cuBLASLt asks when it chooses a kernel for half-precision products
// -------------------------------------------------------------------------------------------------

// Seen: cuBLASLt 13.0 calls slot 4 without looking whether it got the table, so it has to exist.
// Its size is not known.
auto& matmul_heuristics() {
  static auto table = blank<kMatmulHeuristics, 16>();
  return table;
}

// --- what CUPTI asks for first
// -------------------------------------------------------------------------------------------------

void refuse_profiler() {
  static std::atomic<bool> told{false};
  if (!told.exchange(true)) log::warn("{}", refusal_of_gpu_tool("CUPTI"));
}

// Seen with CUPTI 13.0 to 13.2: without it each of its functions fails with CUPTI_ERROR_UNKNOWN.
const void* no_profiler() {
  refuse_profiler();
  return nullptr;
}

// Seen with CUPTI 11.8 to 12.9, which fail with CUPTI_ERROR_NOT_INITIALIZED when its functions are
// refused, and with CUPTI 13.2, which calls itself without end until it has the table. Its size is
// not known; slot 32 is called.
const void* profiler_that_refuses() {
  static const auto table = [] {
    std::array<uintptr_t, 64> words;
    words.fill(word(&refuse_silently));
    words[0] = sizeof words;
    return words;
  }();
  refuse_profiler();
  return table.data();
}

struct Offer {
  uint8_t id[16];
  const void* (*table)();
};

constexpr Offer kOffers[] = {
    {{0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d,
      0xf9},
     []() -> const void* { return cudart_interface().data(); }},
    {{0xa0, 0x94, 0x79, 0x8c, 0x2e, 0x74, 0x2e, 0x74, 0x93, 0xf2, 0x08, 0x00, 0x20, 0x0c, 0x0a,
      0x66},
     []() -> const void* { return tools_hooks().data(); }},
    {{0x42, 0xd8, 0x5a, 0x81, 0x23, 0xf6, 0xcb, 0x47, 0x82, 0x98, 0xf6, 0xe7, 0x8a, 0x3a, 0xec,
      0xdc},
     []() -> const void* { return tools_tls().data(); }},
    {{0xc6, 0x93, 0x33, 0x6e, 0x11, 0x21, 0xdf, 0x11, 0xa8, 0xc3, 0x68, 0xf3, 0x55, 0xd8, 0x95,
      0x93},
     []() -> const void* { return context_storage().data(); }},
    {{0x26, 0x3e, 0x88, 0x60, 0x7c, 0xd2, 0x61, 0x43, 0x92, 0xf6, 0xbb, 0xd5, 0x00, 0x6d, 0xfa,
      0x7e},
     []() -> const void* { return context_checks().data(); }},
    {{0xd4, 0x08, 0x20, 0x55, 0xbd, 0xe6, 0x70, 0x4b, 0x8d, 0x34, 0xba, 0x12, 0x3c, 0x66, 0xe1,
      0xf2},
     []() -> const void* { return integrity_check().data(); }},
    {{0x21, 0x31, 0x8c, 0x60, 0x97, 0x14, 0x32, 0x48, 0x8c, 0xa6, 0x41, 0xff, 0x73, 0x24, 0xc8,
      0xf2},
     []() -> const void* { return context_identity().data(); }},
    {{0x6e, 0x16, 0x3f, 0xbe, 0xb9, 0x58, 0x44, 0x4d, 0x83, 0x5c, 0xe1, 0x82, 0xaf, 0xf1, 0x99,
      0x1e},
     []() -> const void* { return function_enumeration().data(); }},
    {{0xda, 0x91, 0x51, 0xd3, 0x3a, 0xe6, 0xcc, 0x41, 0xa5, 0xc0, 0x4f, 0x26, 0xd5, 0x33, 0xe3,
      0x28},
     []() -> const void* { return compilation_cache().data(); }},
    {{0x17, 0x34, 0xdc, 0x26, 0x80, 0x0d, 0x47, 0x45, 0x87, 0x26, 0xc0, 0xf1, 0xe7, 0xdd, 0x8b,
      0xca},
     []() -> const void* { return matmul_heuristics().data(); }},
    {{0x2c, 0x8e, 0x0a, 0xd8, 0x07, 0x10, 0xab, 0x4e, 0x90, 0xdd, 0x54, 0x71, 0x9f, 0xe5, 0xf7,
      0x4b},
     no_profiler},
    {{0x7c, 0xb6, 0x3f, 0x9b, 0x9c, 0xa4, 0x8e, 0x42, 0xa4, 0x84, 0xbe, 0xb6, 0x6e, 0x6a, 0xed,
      0x7f},
     profiler_that_refuses},
};

}  // namespace

const void* export_table(const CUuuid& id) {
  for (const Offer& offer : kOffers) {
    if (std::memcmp(offer.id, id.bytes, sizeof offer.id) == 0) return offer.table();
  }
  return nullptr;
}

}  // namespace fargpu::client::interop
