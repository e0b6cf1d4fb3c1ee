// Other processes, or this one, stopped and taken off their GPUs. These calls go on while the
// process that makes them is locked.
#include <algorithm>
#include <cstring>
#include <iterator>

#include "sim/api/checkpoint.h"
#include "sim/object/api.h"

using namespace fargpu::sim;

namespace {

template <typename Array>
bool is_zero(const Array& reserved) {
  return std::all_of(std::begin(reserved), std::end(reserved),
                     [](const auto& each) { return each == 0; });
}

template <typename Valid>
CUresult ask(int pid, Valid&& valid, const Checkpoint::Request& request, int32_t* value = nullptr) {
  if (!Driver::initialized()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!valid()) return CUDA_ERROR_INVALID_VALUE;
  return guarded([&] { return Checkpoint::ask(pid, request, value); });
}

// Each GPU of the process stays what it is.
CUresult check_pairs(const CUcheckpointRestoreArgs& args) {
  const auto devices = Driver::get().devices();
  if (args.gpuPairsCount == 0) return CUDA_SUCCESS;
  if (args.gpuPairs == nullptr || args.gpuPairsCount > devices.size())
    return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < args.gpuPairsCount; ++i) {
    const CUcheckpointGpuPair& pair = args.gpuPairs[i];
    if (std::memcmp(&pair.oldUuid, &pair.newUuid, sizeof pair.oldUuid) != 0)
      return CUDA_ERROR_NOT_SUPPORTED;
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult CUDAAPI cuCheckpointProcessGetRestoreThreadId(int pid, int* tid) {
  return ask(
      pid, [&] { return tid != nullptr; }, {Checkpoint::Order::kThread, 0}, tid);
}

CUresult CUDAAPI cuCheckpointProcessGetState(int pid, CUprocessState* state) {
  int32_t value = 0;
  const CUresult result = ask(
      pid, [&] { return state != nullptr; }, {Checkpoint::Order::kState, 0}, &value);
  if (result == CUDA_SUCCESS) *state = static_cast<CUprocessState>(value);
  return result;
}

CUresult CUDAAPI cuCheckpointProcessLock(int pid, CUcheckpointLockArgs* args) {
  const auto valid = [&] {
    return args == nullptr || (args->reserved0 == 0 && is_zero(args->reserved1));
  };
  return ask(pid, valid, {Checkpoint::Order::kLock, args != nullptr ? args->timeoutMs : 0});
}

CUresult CUDAAPI cuCheckpointProcessCheckpoint(int pid, CUcheckpointCheckpointArgs* args) {
  const auto valid = [&] { return args == nullptr || is_zero(args->reserved); };
  return ask(pid, valid, {Checkpoint::Order::kCheckpoint, 0});
}

CUresult CUDAAPI cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs* args) {
  const auto valid = [&] {
    return args == nullptr || (is_zero(args->reserved) && args->reserved1 == 0);
  };
  if (Driver::initialized() && args != nullptr && valid())
    if (const CUresult result = check_pairs(*args); result != CUDA_SUCCESS) return result;
  return ask(pid, valid, {Checkpoint::Order::kRestore, 0});
}

CUresult CUDAAPI cuCheckpointProcessUnlock(int pid, CUcheckpointUnlockArgs* args) {
  const auto valid = [&] { return args == nullptr || is_zero(args->reserved); };
  return ask(pid, valid, {Checkpoint::Order::kUnlock, 0});
}
