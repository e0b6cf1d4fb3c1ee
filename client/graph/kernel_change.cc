// Changes of kernels in executable graphs: like a launch each is checked here and sent without a
// wait.
#include <algorithm>

#include "client/graph/executable_graph.h"
#include "client/graph/node_params.h"
#include "client/image/launch.h"
#include "client/image/twins.h"
#include "client/process/session.h"
#include "client/transfer/exposure.h"
#include "common/wire/fixed_message.h"
#include "generated/schema/internal.capnp.h"
#include "generated/schema/opcodes.h"

namespace fargpu::client {
namespace {

// Of parameters; a change of more waits.
constexpr size_t kMostBytes = 4096;
using Message = wire::FixedMessage<schema::FgGraphSetKernelParams, kMostBytes>;

// Whether a driver takes parameters that have passed the checks of a launch. It may refuse another
// function (another context, or what the function launches), nodes with attributes, and changes of
// a graph that kernels launch.
bool is_taken(const GraphExec& exec, uint64_t node, const Placed& placed, uint64_t function,
              const Context& context) {
  return placed.function != 0 && placed.function == function && placed.context == &context &&
         (exec.flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) == 0 &&
         std::find(exec.disabled.begin(), exec.disabled.end(), node) == exec.disabled.end() &&
         exec.session->knows(schema::op_fgGraphSetKernel);
}

}  // namespace

std::optional<CUresult> change_kernel(GraphExec& exec, uint64_t node,
                                      const CUgraphNodeParams& params) {
  if (params.type != CU_GRAPH_NODE_TYPE_KERNEL || !is_known(params)) return std::nullopt;
  const CUDA_KERNEL_NODE_PARAMS_v3& kernel = params.kernel;
  Context* context = nullptr;
  if (context_of(kernel, &context) != CUDA_SUCCESS || !context->usable()) return std::nullopt;
  std::lock_guard lock(exec.mutex);
  const auto found = exec.nodes.find(node);
  const uint64_t id = function_of(kernel);
  if (found == exec.nodes.end() || !is_taken(exec, node, found->second, id, *context))
    return std::nullopt;
  Session& session = *context->session;
  const ContextScope scope(context);
  Function* function = nullptr;
  if (check_kernel(kernel, *context, &function) != CUDA_SUCCESS) return std::nullopt;
  if (function->parameter_bytes > kMostBytes) [[unlikely]]
    return std::nullopt;
  Message message;
  std::span<const std::byte> packed;
  CUresult result =
      pack_parameters(*function, kernel.kernelParams, kernel.extra, message.data(), &packed);
  if (result != CUDA_SUCCESS) return std::nullopt;
  result = expose_words(session, packed.data(), packed.size());
  if (result != CUDA_SUCCESS) return result;
  auto change = message.root();
  change.setExec(exec.id);
  change.setPlace(found->second.place);
  change.setFunction(in_session(session, id));
  put_shape(change, shape_of(kernel));
  change.setParameterBytes(static_cast<uint32_t>(packed.size()));
  if (!packed.empty()) message.set_data(0, packed.size());
  int32_t refused = CUDA_SUCCESS;
  const Status sent = session.channel().send_body(schema::op_fgGraphSetKernel, context->wire_id,
                                                  message.bytes(), &refused);
  return sent.ok() ? static_cast<CUresult>(refused) : from_status(sent);
}

}  // namespace fargpu::client
