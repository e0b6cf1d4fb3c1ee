// JIT options of module loads and links, from the wire to the driver. Values, one thread.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "schema/support/cuda_rules.h"

namespace fargpu::server {

inline constexpr unsigned kMaxJitOptions = 64;
using schema::kMaxLogBytes;

// JIT options whose value is a plain number. The others are left out: logs are handled here, an
// elapsed time is the client's to tell, counts belong to arrays of pointers, which it refuses.
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
    case CU_JIT_NEW_SM3X_OPT:
    case CU_JIT_FAST_COMPILE:
    case CU_JIT_LTO:
    case CU_JIT_FTZ:
    case CU_JIT_PREC_DIV:
    case CU_JIT_PREC_SQRT:
    case CU_JIT_FMA:
    case CU_JIT_OPTIMIZE_UNUSED_DEVICE_VARIABLES:
    case CU_JIT_POSITION_INDEPENDENT_CODE:
    case CU_JIT_MIN_CTA_PER_SM:
    case CU_JIT_MAX_THREADS_PER_BLOCK:
    case CU_JIT_OVERRIDE_DIRECTIVE_VALUES:
    case CU_JIT_SPLIT_COMPILE:
      return true;
    default:
      return false;
  }
}

// Options as the driver takes them: ids and values-as-pointers.
class JitOptions {
 public:
  // Each option with the value at the same index. False: there are too many.
  bool read(std::span<const int> options, std::span<const unsigned long long> values) {
    if (options.size() > kMaxJitOptions) return false;
    for (size_t i = 0; i < options.size(); ++i)
      if (is_jit_scalar(options[i])) add(static_cast<CUjit_option>(options[i]), values[i]);
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
