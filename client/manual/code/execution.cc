// Kernel launches: checked here against what is known, sent without waiting.
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

#include "client/capture/captures.h"
#include "client/image/launch.h"
#include "client/image/launch_attributes.h"
#include "client/image/load.h"
#include "client/image/twins.h"
#include "client/manual/common.h"
#include "client/object/launch_blocking.h"
#include "client/transfer/exposure.h"
#include "client/transfer/host_functions.h"
#include "client/transfer/submission.h"
#include "common/wire/fixed_message.h"
#include "generated/schema/internal.capnp.h"
#include "generated/schema/opcodes.h"
#include "schema/support/cuda_rules.h"

namespace fargpu::client {
namespace {

bool is_cooperative(LaunchKind kind, std::span<const CUlaunchAttribute> attributes) {
  return kind == LaunchKind::kCooperative ||
         std::any_of(attributes.begin(), attributes.end(), [](const CUlaunchAttribute& attribute) {
           return attribute.id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE &&
                  attribute.value.cooperative != 0;
         });
}

// A kernel has no context: it runs in that of the stream.
bool is_of_another_context(const Function& function, CUstream stream) {
  if (function.context == nullptr) return false;
  const Context* const own = context_of(stream);
  return own != nullptr && own != function.context;
}

// The function has no cluster of its own (PTX: .explicitcluster without .reqnctapercluster).
bool needs_cluster(const FunctionAttributes& attributes) {
  const auto value = [&](CUfunction_attribute id) {
    return attributes[static_cast<size_t>(id)].load(std::memory_order_relaxed);
  };
  return value(CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET) > 0 &&
         value(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH) <= 0;
}

bool has_cluster(std::span<const CUlaunchAttribute> attributes) {
  return std::ranges::any_of(attributes, [](const CUlaunchAttribute& attribute) {
    return attribute.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  });
}

// Most kernels have few parameters: those are packed where the message has them.
constexpr size_t kFewBytes = 4096;
using Message = wire::FixedMessage<schema::FgLaunchParams, kFewBytes>;

// What call_fgLaunch() does for a launch without attributes whose parameters are in the message.
CUresult send_plain_launch(const CallTarget& target, uint64_t function, const LaunchShape& shape,
                           CUstream stream, LaunchKind kind, size_t parameter_bytes,
                           Message& message) {
  return send_work(target, schema::op_fgLaunch, stream, [&](uint64_t id) -> const Message& {
    auto params = message.root();
    params.setFunction(function);
    put_shape(params, shape);
    params.setStream(id);
    params.setKind(static_cast<int>(kind));
    params.setParameterBytes(static_cast<uint32_t>(parameter_bytes));
    constexpr size_t kParameters = 1;  // behind the attributes
    if (parameter_bytes > 0) message.set_data(kParameters, parameter_bytes);
    return message;
  });
}

CUresult launch(const LaunchShape& shape, CUfunction f, CUstream stream, LaunchKind kind,
                std::span<const CUlaunchAttribute> attributes, void** kernel_params, void** extra) {
  const CallTarget target = CallTarget::of(stream);
  f = in_session(target.session, f);
  Function* function = nullptr;
  if (const CUresult result = find_function(target.session, f, &function); result != CUDA_SUCCESS)
    return result;
  if (is_of_another_context(*function, stream)) return CUDA_ERROR_INVALID_HANDLE;
  const Context* context = current_context();
  const Device& device = *target.session.device(context->device);
  FunctionAttributes* known = nullptr;
  if (const CUresult result = attributes_in(target.session, *function, *context, &known);
      result != CUDA_SUCCESS) {
    return result;
  }
  if (const CUresult result = check_launch(shape, device, *function, *known);
      result != CUDA_SUCCESS) {
    return result;
  }
  if (needs_cluster(*known) && !has_cluster(attributes)) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  const bool plain = kind == LaunchKind::kPlain && attributes.empty();
  if (!plain && is_cooperative(kind, attributes)) {
    if (const CUresult result = check_cooperative(shape, f); result != CUDA_SUCCESS) return result;
  }

  Message message;
  std::unique_ptr<std::byte[]> heap_buffer;
  std::byte* buffer = message.data();
  if (function->parameter_bytes > kFewBytes) [[unlikely]] {
    heap_buffer = std::make_unique<std::byte[]>(function->parameter_bytes);
    buffer = heap_buffer.get();
  }
  std::span<const std::byte> packed;
  if (const CUresult result = pack_parameters(*function, kernel_params, extra, buffer, &packed);
      result != CUDA_SUCCESS) {
    return result;
  }
  if (const CUresult result = expose_words(target.session, packed.data(), packed.size());
      result != CUDA_SUCCESS) {
    return result;
  }
  constexpr size_t kOfOnePlace = StreamQueue::kBytesOfPlace - StreamQueue::kBytesOfLaunch;
  if (packed.size() > kOfOnePlace) [[unlikely]] {
    const auto bytes = static_cast<uint32_t>(packed.size()) + StreamQueue::kBytesOfLaunch;
    const CUresult taken = take_places(target.session, StreamQueue::places_of(bytes), stream);
    if (taken != CUDA_SUCCESS) return taken;
  }
  const CUresult result =
      attributes.empty() && heap_buffer == nullptr
          ? send_plain_launch(target, function->id, shape, stream, kind, packed.size(), message)
          : call_fgLaunch(
                target.session, target.context, function->id, shape.grid[0], shape.grid[1],
                shape.grid[2], shape.block[0], shape.block[1], shape.block[2], shape.shared_bytes,
                stream, static_cast<int>(kind), static_cast<unsigned>(attributes.size()),
                attributes.empty() ? nullptr : attributes.data(),
                static_cast<unsigned>(packed.size()), packed.empty() ? nullptr : packed.data());
  if (result != CUDA_SUCCESS) return result;
  if (!attributes.empty()) {
    const uint64_t key = attributes_key(attributes, shape, *context);
    if (!admitted_before(*function, key)) {
      if (const CUresult refused = flush(target.session); refused != CUDA_SUCCESS) return refused;
      remember_admitted(*function, key);
    }
  }
  return launches_block.load(std::memory_order_relaxed)
             ? call_cuStreamSynchronize(target.session, target.context, stream)
             : CUDA_SUCCESS;
}

// Handles inside attributes become ids of the wire; attributes that hold pointers are refused.
CUresult translate(Session& session, std::span<CUlaunchAttribute> attributes) {
  for (CUlaunchAttribute& attribute : attributes) {
    CUevent* event = nullptr;
    switch (attribute.id) {
      case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
        event = &attribute.value.programmaticEvent.event;
        break;
      case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
        event = &attribute.value.launchCompletionEvent.event;
        break;
      case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
        return CUDA_ERROR_NOT_SUPPORTED;
      default:
        break;
    }
    if (event == nullptr) continue;
    if (const CUresult result = check_event_of_launch(attribute, /*is_captured=*/false);
        result != CUDA_SUCCESS)
      return result;
    uint64_t id = 0;
    if (const CUresult result = handle_to_wire(session, rpc::HandleKind::kEvent, *event, &id);
        result != CUDA_SUCCESS) {
      return result;
    }
    capture::note_record(*event);
    *event = reinterpret_cast<CUevent>(id);
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult manual_cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                               unsigned int gridDimZ, unsigned int blockDimX,
                               unsigned int blockDimY, unsigned int blockDimZ,
                               unsigned int sharedMemBytes, CUstream hStream, void** kernelParams,
                               void** extra) {
  return launch({{gridDimX, gridDimY, gridDimZ}, {blockDimX, blockDimY, blockDimZ}, sharedMemBytes},
                f, hStream, LaunchKind::kPlain, {}, kernelParams, extra);
}

CUresult manual_cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX,
                                          unsigned int gridDimY, unsigned int gridDimZ,
                                          unsigned int blockDimX, unsigned int blockDimY,
                                          unsigned int blockDimZ, unsigned int sharedMemBytes,
                                          CUstream hStream, void** kernelParams) {
  const LaunchShape shape{
      {gridDimX, gridDimY, gridDimZ}, {blockDimX, blockDimY, blockDimZ}, sharedMemBytes};
  return launch(shape, f, hStream, LaunchKind::kCooperative, {}, kernelParams, nullptr);
}

CUresult manual_cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f, void** kernelParams,
                                 void** extra) {
  if (config == nullptr || (config->numAttrs != 0 && config->attrs == nullptr))
    return CUDA_ERROR_INVALID_VALUE;
  if (config->numAttrs > schema::kMaxLaunchAttributes) return CUDA_ERROR_INVALID_VALUE;
  std::array<CUlaunchAttribute, schema::kMaxLaunchAttributes> attributes;
  std::copy_n(config->attrs, config->numAttrs, attributes.begin());
  const std::span used(attributes.data(), config->numAttrs);
  const CallTarget target = CallTarget::of(config->hStream);
  if (const CUresult result = translate(target.session, used); result != CUDA_SUCCESS)
    return result;
  const LaunchShape shape{{config->gridDimX, config->gridDimY, config->gridDimZ},
                          {config->blockDimX, config->blockDimY, config->blockDimZ},
                          config->sharedMemBytes};
  return launch(shape, f, config->hStream, LaunchKind::kEx, used, kernelParams, extra);
}

CUresult manual_cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void* userData) {
  if (fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return put_into_stream(CallTarget::of(hStream),
                         {.function = fn, .user_data = userData, .stream = hStream});
}

}  // namespace fargpu::client
