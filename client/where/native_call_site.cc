#include "client/where/native_call_site.h"

#include <execinfo.h>
#include <fmt/format.h>

#include <cctype>
#include <mutex>
#include <new>
#include <string_view>
#include <unordered_map>

#include "client/where/modules.h"
#include "client/where/symbols.h"

namespace fargpu::client::where {
namespace {

constexpr int kDeepest = 64;
constexpr size_t kMostAddresses = 65536;

// Of an address; empty: it is the driver's or the runtime library's.
using Names = std::unordered_map<const void*, std::string>;

// Constructed again in a forked child, where its owner may not exist.
alignas(std::mutex) constinit std::mutex mutex;
constinit Names* names = nullptr;  // guarded by the mutex; never freed: calls come until the end

std::string_view file_of(std::string_view path) { return path.substr(path.rfind('/') + 1); }

// That which nvcc links into programs: its own symbols, the functions that it exports, and what
// CUDA's headers put around them.
bool is_runtime(std::string_view function) {
  for (const char* const begin : {"libcudart_static_", "__cuda", "cudaError cuda"})
    if (function.starts_with(begin)) return true;
  return function.starts_with("cuda") && function.size() > 4 &&
         std::isupper(static_cast<unsigned char>(function[4])) != 0 &&
         function.find('(') == std::string_view::npos;
}

// `address` is one to return to: the call is before it.
std::string describe(const void* address) {
  static const uintptr_t own = module_of(reinterpret_cast<const void*>(&describe)).begin;
  const void* const call = static_cast<const char*>(address) - 1;
  const Module module = module_of(call);
  const std::string_view file = file_of(module.path);
  if (module.begin == 0) return "code without a file";
  if (module.begin == own || file.starts_with("libcudart.")) return {};
  const uint64_t in_file = reinterpret_cast<uintptr_t>(call) - module.base;
  const std::string function = function_in_file(module.path, in_file);
  if (is_runtime(function)) return {};
  return function.empty() ? fmt::format("{}+{:#x}", file, in_file)
                          : fmt::format("{}: {}", file, function);
}

std::string name_of(const void* address) {
  {
    const std::lock_guard lock(mutex);
    if (names == nullptr) names = new Names;
    if (const auto known = names->find(address); known != names->end()) return known->second;
  }
  std::string name = describe(address);
  const std::lock_guard lock(mutex);
  if (names != nullptr && names->size() < kMostAddresses) names->emplace(address, name);
  return name;
}

}  // namespace

void begin_native() {
  void* none[1];
  ::backtrace(none, 1);
}

std::string native_call_site() {
  void* stack[kDeepest];
  const int depth = ::backtrace(stack, kDeepest);
  for (int i = 0; i < depth; ++i) {
    if (std::string name = name_of(stack[i]); !name.empty()) return name;
  }
  return {};
}

void forget_natives_after_fork() {
  new (&mutex) std::mutex;
  names = nullptr;
}

}  // namespace fargpu::client::where
