// Attributes of core dumps: what the application sets it finds again, but no dump can be enabled.
// The server's driver would write it there, with memory of the worker.
#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "client/manual/common.h"

namespace fargpu::client {
namespace {

constexpr size_t kTextBytes = 1024;

struct Attributes {
  std::optional<bool> lightweight;
  std::optional<std::string> file, pipe;
  std::optional<unsigned> flags;
};

std::mutex mutex;  // guards what follows
Attributes global;
bool trigger_host = true;                    // also where it is set for a context
std::map<uint64_t, Attributes> of_contexts;  // by the context's id, which is never used again

bool is_flag(CUcoredumpSettings attribute) {
  return attribute >= CU_COREDUMP_ENABLE_ON_EXCEPTION &&
         attribute <= CU_COREDUMP_ENABLE_USER_TRIGGER;
}

bool is_text(CUcoredumpSettings attribute) {
  return attribute == CU_COREDUMP_FILE || attribute == CU_COREDUMP_PIPE;
}

// These are the process's.
bool is_only_global(CUcoredumpSettings attribute) {
  return attribute == CU_COREDUMP_ENABLE_USER_TRIGGER || attribute == CU_COREDUMP_PIPE;
}

// NULL asks for the size. `*asked`: that was all.
CUresult check(CUcoredumpSettings attribute, const void* value, size_t* size, bool is_global,
               bool* asked) {
  const bool known = attribute >= CU_COREDUMP_ENABLE_ON_EXCEPTION && attribute < CU_COREDUMP_MAX;
  if (!known || size == nullptr || (!is_global && is_only_global(attribute)))
    return CUDA_ERROR_INVALID_VALUE;
  const size_t wanted = is_flag(attribute)   ? sizeof(bool)
                        : is_text(attribute) ? kTextBytes
                                             : sizeof(unsigned);
  *asked = value == nullptr;
  if (*asked) *size = wanted;
  return *asked || is_text(attribute) || *size == wanted ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

template <typename T>
T value_of(const std::optional<T>& own, const std::optional<T>& everywhere, T otherwise) {
  return own ? *own : everywhere.value_or(otherwise);
}

CUresult get(CUcoredumpSettings attribute, void* value, size_t* size, const Attributes& own) {
  const auto put = [value](auto found) { std::memcpy(value, &found, sizeof found); };
  const auto put_text = [&](const std::string& text) {
    if (*size == 0) return;
    const size_t bytes = std::min(text.size(), *size - 1);
    std::memcpy(value, text.data(), bytes);
    static_cast<char*>(value)[bytes] = '\0';
  };
  switch (attribute) {
    case CU_COREDUMP_TRIGGER_HOST:
      put(trigger_host);
      break;
    case CU_COREDUMP_LIGHTWEIGHT:
      put(value_of(own.lightweight, global.lightweight, false));
      break;
    case CU_COREDUMP_FILE:
      put_text(value_of(own.file, global.file, std::string()));
      break;
    case CU_COREDUMP_PIPE:
      put_text(value_of(own.pipe, global.pipe, std::string()));
      break;
    case CU_COREDUMP_GENERATION_FLAGS:
      // Those of a context add to those of the process.
      put(own.flags.value_or(CU_COREDUMP_DEFAULT_FLAGS) |
          global.flags.value_or(CU_COREDUMP_DEFAULT_FLAGS));
      break;
    default:
      put(false);  // not enabled
  }
  return CUDA_SUCCESS;
}

CUresult set(CUcoredumpSettings attribute, const void* value, size_t size, Attributes& own) {
  const auto flag = [value] {
    unsigned char byte = 0;
    std::memcpy(&byte, value, sizeof byte);
    return byte != 0;
  };
  const auto text = [&] {
    const auto* const begin = static_cast<const char*>(value);
    return std::string(begin, strnlen(begin, std::min(size, kTextBytes - 1)));
  };
  switch (attribute) {
    case CU_COREDUMP_TRIGGER_HOST:
      trigger_host = flag();
      break;
    case CU_COREDUMP_LIGHTWEIGHT:
      own.lightweight = flag();
      own.flags = flag() ? unsigned{CU_COREDUMP_LIGHTWEIGHT_FLAGS} : 0;
      break;
    case CU_COREDUMP_FILE:
      own.file = text();
      break;
    case CU_COREDUMP_PIPE:
      own.pipe = text();
      break;
    case CU_COREDUMP_GENERATION_FLAGS: {
      unsigned flags = 0;
      std::memcpy(&flags, value, sizeof flags);
      own.flags = flags;
      break;
    }
    default:
      return flag() ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult manual_cuCoredumpGetAttribute(CUcoredumpSettings attrib, void* value, size_t* size) {
  bool asked = false;
  const CUresult result = check(attrib, value, size, /*is_global=*/false, &asked);
  if (result != CUDA_SUCCESS || asked) return result;
  const std::lock_guard lock(mutex);
  const auto own = of_contexts.find(current_context()->unique_id);
  return get(attrib, value, size, own == of_contexts.end() ? global : own->second);
}

CUresult manual_cuCoredumpGetAttributeGlobal(CUcoredumpSettings attrib, void* value, size_t* size) {
  bool asked = false;
  const CUresult result = check(attrib, value, size, /*is_global=*/true, &asked);
  if (result != CUDA_SUCCESS || asked) return result;
  const std::lock_guard lock(mutex);
  return get(attrib, value, size, global);
}

CUresult manual_cuCoredumpSetAttribute(CUcoredumpSettings attrib, void* value, size_t* size) {
  bool asked = false;
  const CUresult result = check(attrib, value, size, /*is_global=*/false, &asked);
  if (result != CUDA_SUCCESS || asked) return result;
  const std::lock_guard lock(mutex);
  return set(attrib, value, *size, of_contexts[current_context()->unique_id]);
}

CUresult manual_cuCoredumpSetAttributeGlobal(CUcoredumpSettings attrib, void* value, size_t* size) {
  bool asked = false;
  const CUresult result = check(attrib, value, size, /*is_global=*/true, &asked);
  if (result != CUDA_SUCCESS || asked) return result;
  const std::lock_guard lock(mutex);
  return set(attrib, value, *size, global);
}

}  // namespace fargpu::client
