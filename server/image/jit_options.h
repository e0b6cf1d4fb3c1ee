// JIT options of module loads and links, from the wire to the driver. Values, one thread.
#pragma once

#include <capnp/message.h>
#include <cuda.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

namespace fargpu::server {

inline constexpr unsigned kMaxJitOptions = 64;
inline constexpr unsigned kMaxLogBytes = 64 << 10;

// JIT options whose value is a plain number. The others carry pointers and are left out: logs are
// handled here, the rest does not change results.
inline bool is_jit_scalar(int option) {
  switch (option) {
    case CU_JIT_MAX_REGISTERS:
    case CU_JIT_THREADS_PER_BLOCK:
    case CU_JIT_OPTIMIZATION_LEVEL:
    case CU_JIT_TARGET_FROM_CUCONTEXT:
    case CU_JIT_TARGET:
    case CU_JIT_FALLBACK_STRATEGY:
    case CU_JIT_GENERATE_DEBUG_INFO:
    case CU_JIT_LOG_VERBOSE:
    case CU_JIT_GENERATE_LINE_INFO:
    case CU_JIT_CACHE_MODE:
    case CU_JIT_POSITION_INDEPENDENT_CODE:
    case CU_JIT_MIN_CTA_PER_SM:
    case CU_JIT_MAX_THREADS_PER_BLOCK:
    case CU_JIT_OVERRIDE_DIRECTIVE_VALUES:
      return true;
    default:
      return false;
  }
}

// Options as the driver takes them: ids and values-as-pointers.
class JitOptions {
 public:
  // False when the two lists do not belong together or are too long.
  bool read(unsigned count, capnp::Data::Reader options, capnp::Data::Reader values) {
    if (count > kMaxJitOptions || options.size() != count * sizeof(int) ||
        values.size() != count * sizeof(unsigned long long)) {
      return false;
    }
    for (unsigned i = 0; i < count; ++i) {
      int option = 0;
      unsigned long long value = 0;
      std::memcpy(&option, options.begin() + i * sizeof(option), sizeof(option));
      std::memcpy(&value, values.begin() + i * sizeof(value), sizeof(value));
      if (is_jit_scalar(option)) add(static_cast<CUjit_option>(option), value);
    }
    return true;
  }
  void add_log(CUjit_option buffer, CUjit_option size, std::vector<char>& log) {
    if (log.empty()) return;
    add(buffer, reinterpret_cast<unsigned long long>(log.data()));
    add(size, log.size());
  }
  unsigned count() const { return static_cast<unsigned>(ids_.size()); }
  CUjit_option* ids() { return ids_.data(); }
  void** values() { return values_.data(); }

 private:
  void add(CUjit_option option, unsigned long long value) {
    ids_.push_back(option);
    values_.push_back(reinterpret_cast<void*>(value));
  }
  std::vector<CUjit_option> ids_;
  std::vector<void*> values_;
};

inline std::string text_of(const std::vector<char>& log) {
  return std::string(log.begin(), std::find(log.begin(), log.end(), '\0'));
}

}  // namespace fargpu::server
