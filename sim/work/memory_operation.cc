#include "sim/work/memory_operation.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "sim/context/context.h"
#include "sim/driver/driver.h"

namespace fargpu::sim {
namespace {

constexpr unsigned kMaxBatch = 256;

template <typename T, typename Signed>
bool satisfied(const MemoryOperation& operation) {
  const T found =
      std::atomic_ref<T>(*reinterpret_cast<T*>(operation.address)).load(std::memory_order_acquire);
  const T value = static_cast<T>(operation.value);
  switch (operation.condition) {
    case CU_STREAM_WAIT_VALUE_EQ:
      return found == value;
    case CU_STREAM_WAIT_VALUE_AND:
      return (found & value) != 0;
    case CU_STREAM_WAIT_VALUE_NOR:
      return static_cast<T>(~(found | value)) != 0;
    default:
      return static_cast<Signed>(static_cast<T>(found - value)) >= 0;
  }
}

// Ends when the value is there, or the context failed or is being destroyed.
void wait_for(const Context& context, const MemoryOperation& operation) {
  for (unsigned turn = 0; context.alive() && context.error() == CUDA_SUCCESS; ++turn) {
    if (operation.wide ? satisfied<uint64_t, int64_t>(operation)
                       : satisfied<uint32_t, int32_t>(operation))
      return;
    if (turn < 100) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
}

void write(const MemoryOperation& operation) {
  if (operation.wide) {
    std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(operation.address))
        .store(operation.value, std::memory_order_release);
  } else {
    std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(operation.address))
        .store(static_cast<uint32_t>(operation.value), std::memory_order_release);
  }
}

CUresult check(const MemoryOperation& operation, bool later) {
  if (operation.kind == MemoryOperation::Kind::kNothing) return CUDA_SUCCESS;
  const uint64_t bytes = operation.wide ? 8 : 4;
  const AllocationMap& allocations = Driver::get().allocations();
  const bool known = later ? allocations.covered_later(operation.address, bytes)
                           : allocations.covered(operation.address, bytes);
  return known && operation.address % bytes == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult make(const CUstreamBatchMemOpParams& params, MemoryOperation* operation) {
  switch (params.operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
      return make_wait(params.waitValue.address, params.waitValue.value, params.waitValue.flags,
                       false, operation);
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      return make_wait(params.waitValue.address, params.waitValue.value64, params.waitValue.flags,
                       true, operation);
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
      return make_write(params.writeValue.address, params.writeValue.value, params.writeValue.flags,
                        false, operation);
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      return make_write(params.writeValue.address, params.writeValue.value64,
                        params.writeValue.flags, true, operation);
    case CU_STREAM_MEM_OP_BARRIER:
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
      return CUDA_SUCCESS;  // memory is coherent here
  }
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

CUresult make_wait(CUdeviceptr address, uint64_t value, unsigned flags, bool wide,
                   MemoryOperation* operation) {
  const unsigned condition = flags & ~unsigned{CU_STREAM_WAIT_VALUE_FLUSH};
  if (condition > CU_STREAM_WAIT_VALUE_NOR) return CUDA_ERROR_INVALID_VALUE;
  *operation = {MemoryOperation::Kind::kWait, address, value, condition, wide};
  return CUDA_SUCCESS;
}

CUresult make_write(CUdeviceptr address, uint64_t value, unsigned flags, bool wide,
                    MemoryOperation* operation) {
  if ((flags & ~unsigned{CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER}) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  *operation = {MemoryOperation::Kind::kWrite, address, value, 0, wide};
  return CUDA_SUCCESS;
}

CUresult make_operations(const CUstreamBatchMemOpParams* params, unsigned count, unsigned flags,
                         std::vector<MemoryOperation>* operations) {
  if (count == 0 || count > kMaxBatch || params == nullptr || flags != 0)
    return CUDA_ERROR_INVALID_VALUE;
  operations->resize(count);
  for (unsigned i = 0; i < count; ++i) {
    const CUresult result = make(params[i], &(*operations)[i]);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUresult check_operations(const std::vector<MemoryOperation>& operations, bool later) {
  for (const MemoryOperation& operation : operations) {
    if (CUresult result = check(operation, later); result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

void run_operations(const Context& context, const std::vector<MemoryOperation>& operations) {
  for (const MemoryOperation& operation : operations) {
    if (context.error() != CUDA_SUCCESS || !context.alive()) return;
    if (operation.kind == MemoryOperation::Kind::kWait) wait_for(context, operation);
    if (operation.kind == MemoryOperation::Kind::kWrite) write(operation);
  }
}

}  // namespace fargpu::sim
