// A cooperative launch on several devices of one server: one message, since the driver starts the
// kernels together and lets their grids meet.
#include <deque>
#include <vector>

#include "client/call/capture.h"
#include "client/image/launch.h"
#include "client/image/load.h"
#include "client/image/twins.h"
#include "client/manual/common.h"
#include "client/transfer/exposure.h"
#include "client/transfer/ordered_copy.h"
#include "client/transfer/submission.h"

namespace fargpu::client {
namespace {

constexpr unsigned kKnownFlags = CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_PRE_LAUNCH_SYNC |
                                 CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_POST_LAUNCH_SYNC;
constexpr size_t kAlignment = 16;

class MultiDeviceLaunch {
 public:
  explicit MultiDeviceLaunch(Session& session) : session_(session) {}

  CUresult add(const CUDA_LAUNCH_PARAMS& given, Context& context) {
    for (const Context* other : contexts_)
      if (other->device == context.device) return CUDA_ERROR_INVALID_VALUE;
    const ContextScope scope(&context);
    const CUfunction handle = in_session(session_, given.function);
    Function* function = nullptr;
    FunctionAttributes* known = nullptr;
    CUresult result = find_function(session_, handle, &function);
    if (result == CUDA_SUCCESS) result = attributes_in(session_, *function, context, &known);
    if (result != CUDA_SUCCESS) return result;
    const LaunchShape shape{{given.gridDimX, given.gridDimY, given.gridDimZ},
                            {given.blockDimX, given.blockDimY, given.blockDimZ},
                            given.sharedMemBytes};
    result = check_launch(shape, *session_.device(context.device), *function, *known);
    if (result == CUDA_SUCCESS) result = check_cooperative(shape, handle);
    if (result != CUDA_SUCCESS) return result;
    std::vector<std::byte> buffer(function->parameter_bytes);
    std::span<const std::byte> packed;
    result = pack_parameters(*function, given.kernelParams, nullptr, buffer.data(), &packed);
    if (result == CUDA_SUCCESS) result = expose_words(session_, packed.data(), packed.size());
    if (result != CUDA_SUCCESS) return result;
    CUDA_LAUNCH_PARAMS launch = given;
    launch.function = reinterpret_cast<CUfunction>(function->id);
    launch.kernelParams = reinterpret_cast<void**>(packed.size());
    launches_.push_back(launch);
    contexts_.push_back(&context);
    parameters_.insert(parameters_.end(), packed.begin(), packed.end());
    parameters_.resize((parameters_.size() + kAlignment - 1) / kAlignment * kAlignment);
    return CUDA_SUCCESS;
  }

  CUresult send(unsigned flags) {
    std::deque<Submission> works;
    for (size_t i = 0; i < launches_.size(); ++i) {
      const ContextScope scope(contexts_[i]);
      const CUstream stream = launches_[i].hStream;
      const Submission& work =
          works.emplace_back(session_, contexts_[i]->wire_id, stream,
                             Submission::kHostMemory | Submission::kQueuePlace);
      if (work.result() != CUDA_SUCCESS) return work.result();
      // The first one has sent what the application wrote, for all of them.
      if (i > 0 && session_.observers.any(Observers::kUnseenDeliveries)) {
        const CUresult met = wait_for_deliveries(session_, stream);
        if (met != CUDA_SUCCESS) return met;
      }
      launches_[i].hStream = reinterpret_cast<CUstream>(work.stream());
    }
    // Each waits for the streams of all.
    session_.host_calls.everything_follows();
    return wire::fgLaunchMultiDevice(session_, contexts_.front()->wire_id,
                                     static_cast<unsigned>(launches_.size()), launches_.data(),
                                     flags, static_cast<unsigned>(parameters_.size()),
                                     parameters_.empty() ? nullptr : parameters_.data());
  }

 private:
  Session& session_;
  std::vector<CUDA_LAUNCH_PARAMS> launches_;
  std::vector<Context*> contexts_;
  std::vector<std::byte> parameters_;
};

}  // namespace

CUresult manual_cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS* launchParamsList,
                                                     unsigned int numDevices, unsigned int flags) {
  if (launchParamsList == nullptr || (flags & ~kKnownFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  const auto launches = std::span(launchParamsList, numDevices);
  Session* session = nullptr;
  for (const CUDA_LAUNCH_PARAMS& each : launches) {
    if (is_default_stream(each.hStream) || each.function == nullptr)
      return CUDA_ERROR_INVALID_HANDLE;
    const Context* const context = context_of(each.hStream);
    if (context == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (capture::any()) {
      const auto judged = capture::judge(capture::Class::kForbidden, each.hStream);
      if (judged.result != CUDA_SUCCESS) return judged.result;
    }
    // Drivers of different servers cannot let grids meet.
    if (session != nullptr && session != context->session) return CUDA_ERROR_NOT_SUPPORTED;
    session = context->session;
  }
  if (session == nullptr) return CUDA_ERROR_INVALID_VALUE;  // no launches
  MultiDeviceLaunch whole(*session);
  for (const CUDA_LAUNCH_PARAMS& each : launches) {
    const CUresult result = whole.add(each, *context_of(each.hStream));
    if (result != CUDA_SUCCESS) return result;
  }
  return whole.send(flags);
}

}  // namespace fargpu::client
