// Waiting for and writing values in memory: work of a stream, or of a graph's node.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <vector>

namespace fargpu::sim {

class Context;

struct MemoryOperation {
  enum class Kind { kWait, kWrite, kNothing } kind = Kind::kNothing;
  uint64_t address = 0;
  uint64_t value = 0;
  unsigned condition = CU_STREAM_WAIT_VALUE_GEQ;
  bool wide = false;  // 64 bits
};

// CUDA_ERROR_INVALID_VALUE: no such operation or flag.
CUresult make_wait(CUdeviceptr address, uint64_t value, unsigned flags, bool wide,
                   MemoryOperation* operation);
CUresult make_write(CUdeviceptr address, uint64_t value, unsigned flags, bool wide,
                    MemoryOperation* operation);
CUresult make_operations(const CUstreamBatchMemOpParams* params, unsigned count, unsigned flags,
                         std::vector<MemoryOperation>* operations);
// The addresses must be usable, now or when memory of allocation nodes is there.
CUresult check_operations(const std::vector<MemoryOperation>& operations, bool later = false);
// One after the other. Ends early when the context fails or is being destroyed.
void run_operations(const Context& context, const std::vector<MemoryOperation>& operations);

}  // namespace fargpu::sim
