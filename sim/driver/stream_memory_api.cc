// Waiting for and writing values in memory, in stream order.
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "sim/driver/api.h"

using namespace fargpu::sim;

namespace {

constexpr unsigned kMaxBatch = 256;

struct MemoryOperation {
  enum class Kind { kWait, kWrite, kNothing } kind = Kind::kNothing;
  uint64_t address = 0;
  uint64_t value = 0;
  unsigned condition = CU_STREAM_WAIT_VALUE_GEQ;
  bool wide = false;  // 64 bits
};

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

CUresult check(const MemoryOperation& operation) {
  if (operation.kind == MemoryOperation::Kind::kNothing) return CUDA_SUCCESS;
  const uint64_t bytes = operation.wide ? 8 : 4;
  const bool usable = operation.address % bytes == 0 &&
                      Driver::get().allocations().covered(operation.address, bytes);
  return usable ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult submit(CUstream handle, std::vector<MemoryOperation> operations) {
  return with_stream(
      handle, [&](Context& context, const std::shared_ptr<Stream>& stream) -> CUresult {
        for (const MemoryOperation& operation : operations) {
          if (CUresult result = check(operation); result != CUDA_SUCCESS) return result;
        }
        context.submit(stream,
                       [owner = context.shared_from_this(), operations = std::move(operations)] {
                         for (const MemoryOperation& operation : operations) {
                           if (owner->error() != CUDA_SUCCESS || !owner->alive()) return;
                           if (operation.kind == MemoryOperation::Kind::kWait)
                             wait_for(*owner, operation);
                           if (operation.kind == MemoryOperation::Kind::kWrite) write(operation);
                         }
                       });
        return CUDA_SUCCESS;
      });
}

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

CUresult wait_value(CUstream stream, CUdeviceptr address, uint64_t value, unsigned flags,
                    bool wide) {
  MemoryOperation operation;
  const CUresult result = make_wait(address, value, flags, wide, &operation);
  return result == CUDA_SUCCESS ? submit(stream, {operation}) : result;
}

CUresult write_value(CUstream stream, CUdeviceptr address, uint64_t value, unsigned flags,
                     bool wide) {
  MemoryOperation operation;
  const CUresult result = make_write(address, value, flags, wide, &operation);
  return result == CUDA_SUCCESS ? submit(stream, {operation}) : result;
}

}  // namespace

CUresult CUDAAPI cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                                        unsigned int flags) {
  return wait_value(stream, addr, value, flags, false);
}
CUresult CUDAAPI cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                                        unsigned int flags) {
  return wait_value(stream, addr, value, flags, true);
}
CUresult CUDAAPI cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                                         unsigned int flags) {
  return write_value(stream, addr, value, flags, false);
}
CUresult CUDAAPI cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                                         unsigned int flags) {
  return write_value(stream, addr, value, flags, true);
}

CUresult CUDAAPI cuStreamBatchMemOp_v2(CUstream stream, unsigned int count,
                                       CUstreamBatchMemOpParams* paramArray, unsigned int flags) {
  if (count == 0 || count > kMaxBatch || paramArray == nullptr || flags != 0)
    return CUDA_ERROR_INVALID_VALUE;
  return guarded([&]() -> CUresult {
    std::vector<MemoryOperation> operations(count);
    for (unsigned i = 0; i < count; ++i) {
      if (CUresult result = make(paramArray[i], &operations[i]); result != CUDA_SUCCESS)
        return result;
    }
    return submit(stream, std::move(operations));
  });
}
