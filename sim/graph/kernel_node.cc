#include "sim/graph/kernel_node.h"

#include <algorithm>

#include "sim/graph/graph.h"
#include "sim/object/api.h"
#include "sim/work/launch_attributes.h"

namespace fargpu::sim {
namespace {

bool of_nodes(int id) {
  switch (id) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
    case CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING:
      return true;
    default:
      return false;
  }
}

// The function of a node in its context: of a CUfunction its own, of a CUkernel the given one.
CUresult find_target(const CUDA_KERNEL_NODE_PARAMS_v3& params, std::shared_ptr<Context>* context,
                     LaunchTarget* target) {
  const auto handle =
      params.func != nullptr ? params.func : reinterpret_cast<CUfunction>(params.kern);
  if (handle == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (const auto function = Driver::get().registry().find<Function>(params.func)) {
    const auto module = function->module.lock();
    *context = module ? module->context.lock() : nullptr;
    if (!*context || !(*context)->alive()) return CUDA_ERROR_INVALID_HANDLE;
  } else if (params.func != nullptr) {
    return CUDA_ERROR_INVALID_HANDLE;  // a kernel is no function of a node
  } else if (CUresult result = node_context(params.ctx, context); result != CUDA_SUCCESS) {
    return result;
  }
  return find_function(**context, handle, target);
}

}  // namespace

void ToldParameters::take(const std::vector<std::byte>& block, const std::vector<uint32_t>& offsets,
                          bool as_extra) {
  block_.resize(block.size());
  std::ranges::copy(block, block_.begin());
  bytes_ = block_.size();
  as_block_ = as_extra && !offsets.empty();
  pointers_.resize(as_block_ ? 5 : offsets.size());
  for (size_t i = 0; i < offsets.size() && !as_block_; ++i)
    pointers_[i] = block_.data() + offsets[i];
  if (as_block_) {
    pointers_ = {CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes_, CU_LAUNCH_PARAM_BUFFER_POINTER,
                 block_.data(), CU_LAUNCH_PARAM_END};
  }
}

void ToldParameters::give(CUDA_KERNEL_NODE_PARAMS_v3* out) {
  if (!pointers_.empty()) (as_block_ ? out->extra : out->kernelParams) = pointers_.data();
}

KernelOperation::KernelOperation(std::shared_ptr<Context> context, KernelWork work, bool as_extra,
                                 KernelAttributes attributes,
                                 std::shared_ptr<DeviceNode> device_node)
    : Operation(CU_GRAPH_NODE_TYPE_KERNEL),
      context_(std::move(context)),
      work_(std::move(work)),
      as_extra_(as_extra),
      attributes_(std::move(attributes)),
      device_node_(std::move(device_node)) {}

void KernelOperation::params(CUgraphNodeParams* out) const {
  *out = {};
  out->type = type();
  CUDA_KERNEL_NODE_PARAMS_v3& kernel = out->kernel;
  const std::string& name = work_.target.function->info->name;
  kernel.func = to_handle<CUfunction>(function_handle(work_.target.module, name));
  if (const auto library = work_.target.module->library.lock()) {
    const auto found = library->kernels.find(name);
    if (found != library->kernels.end()) kernel.kern = to_handle<CUkernel>(found->second);
  }
  kernel.gridDimX = work_.grid.grid[0];
  kernel.gridDimY = work_.grid.grid[1];
  kernel.gridDimZ = work_.grid.grid[2];
  kernel.blockDimX = work_.grid.block[0];
  kernel.blockDimY = work_.grid.block[1];
  kernel.blockDimZ = work_.grid.block[2];
  kernel.sharedMemBytes = static_cast<unsigned>(work_.grid.dynamic_shared_bytes);
  kernel.ctx = context_->handle();
}

void KernelOperation::tell(ToldParameters& told) const {
  std::vector<uint32_t> offsets;
  for (const ParameterInfo& parameter : work_.target.function->info->parameters)
    offsets.push_back(static_cast<uint32_t>(parameter.offset));
  told.take(work_.parameters, offsets, as_extra_);
}

std::function<void()> KernelOperation::prepare(const Fence&) const {
  if (device_node_ == nullptr) return [this] { run_kernel(*context_, work_); };
  return [this] {
    KernelWork work = work_;
    if (device_node_->apply(&work)) run_kernel(*context_, work);
  };
}

CUgraphExecUpdateResult KernelOperation::accepts(const Operation& next) const {
  const auto& other = static_cast<const KernelOperation&>(next);
  if (other.context_ != context_) return CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE;
  if (other.work_.grid.cooperative != work_.grid.cooperative)
    return CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED;
  return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

// They came with compute capability 10.
bool KernelOperation::has_preferred_clusters() const {
  return context_->device().attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) >= 10;
}

CUresult KernelOperation::attribute(int id, CUlaunchAttributeValue* value) const {
  // One is set, but not read.
  if (!of_nodes(id) || id == CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING)
    return CUDA_ERROR_INVALID_VALUE;
  if (id == CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION && !has_preferred_clusters())
    return CUDA_ERROR_INVALID_VALUE;
  if (id == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE && device_node_ != nullptr) {
    *value = {};
    value->deviceUpdatableKernelNode = {
        1, reinterpret_cast<CUgraphDeviceNode>(device_node_->handle())};
    return CUDA_SUCCESS;
  }
  const auto found = attributes_.find(id);
  *value = {};
  if (id == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP) value->memSyncDomainMap = {0, 1};
  if (found != attributes_.end()) *value = found->second;
  return CUDA_SUCCESS;
}

CUresult KernelOperation::with_attribute(int id, const CUlaunchAttributeValue& value,
                                         OperationPtr* out) const {
  if (!of_nodes(id)) return CUDA_ERROR_INVALID_VALUE;
  if (id == CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION && !has_preferred_clusters())
    return CUDA_ERROR_INVALID_VALUE;
  if (id == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE) {
    const int wanted = value.deviceUpdatableKernelNode.deviceUpdatable;
    if ((wanted != 0 && wanted != 1) || value.deviceUpdatableKernelNode.devNode != nullptr)
      return CUDA_ERROR_INVALID_VALUE;
    // There is no way back.
    if (wanted == 0 && device_node_ != nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (wanted == 0 || device_node_ != nullptr) return with_attributes(attributes_, out);
    *out = std::make_shared<KernelOperation>(context_, work_, as_extra_, attributes_,
                                             DeviceNode::make());
    return CUDA_SUCCESS;
  }
  KernelAttributes attributes = attributes_;
  attributes[id] = value;
  if (id == CU_LAUNCH_ATTRIBUTE_PRIORITY)
    attributes[id].priority = std::clamp(value.priority, kGreatestPriority, kLeastPriority);
  return with_attributes(attributes, out);
}

// The rules for the values are those of launches.
CUresult KernelOperation::with_attributes(const KernelAttributes& attributes,
                                          OperationPtr* out) const {
  std::vector<CUlaunchAttribute> list;
  for (const auto& [id, value] : attributes) {
    CUlaunchAttribute& attribute = list.emplace_back();
    attribute.id = static_cast<CUlaunchAttributeID>(id);
    attribute.value = value;
  }
  CUlaunchConfig config{};
  config.gridDimX = work_.grid.grid[0];
  config.gridDimY = work_.grid.grid[1];
  config.gridDimZ = work_.grid.grid[2];
  config.attrs = list.data();
  config.numAttrs = static_cast<unsigned>(list.size());
  LaunchAttributes read;
  if (CUresult result = read_attributes(config, &read); result != CUDA_SUCCESS) return result;
  KernelWork work = work_;
  work.grid.cooperative = read.cooperative;
  work.grid.cluster = read.cluster;
  const KernelInfo& info = *work.target.function->info;
  if (CUresult result = check_cluster(*work.target.function, work.grid); result != CUDA_SUCCESS)
    return result;
  if (read.cooperative) {
    const CUresult result = check_cooperative(context_->device(), info, work.grid);
    if (result != CUDA_SUCCESS) return result;
  }
  *out = std::make_shared<KernelOperation>(context_, std::move(work), as_extra_, attributes,
                                           device_node_);
  return CUDA_SUCCESS;
}

CUresult KernelOperation::with_settings_of(const KernelOperation& other, OperationPtr* out) const {
  const auto made = std::make_shared<KernelOperation>(context_, work_, as_extra_, attributes_,
                                                      other.device_node_);
  return made->with_attributes(other.attributes_, out);
}

DeviceNode* device_node(const Operation& operation) {
  return operation.type() != CU_GRAPH_NODE_TYPE_KERNEL
             ? nullptr
             : static_cast<const KernelOperation&>(operation).device_node().get();
}

void tell_device_node(const Operation& operation, CUlaunchAttributeID id,
                      const CUlaunchAttributeValue* value) {
  const DeviceNode* const node = device_node(operation);
  if (id != CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE || node == nullptr) return;
  // The caller's, and an output of the call for all its type.
  auto* const out = const_cast<CUlaunchAttributeValue*>(value);
  out->deviceUpdatableKernelNode.devNode = reinterpret_cast<CUgraphDeviceNode>(node->handle());
}

bool has_device_nodes(const Graph& graph) {
  return std::ranges::any_of(graph.nodes, [](const auto& node) {
    return device_node(*node->operation) != nullptr ||
           std::ranges::any_of(node->operation->bodies(),
                               [](const auto& body) { return has_device_nodes(*body); });
  });
}

CUresult make_kernel(const CUDA_KERNEL_NODE_PARAMS_v3& params, OperationPtr* operation) {
  std::shared_ptr<Context> context;
  LaunchTarget target;
  if (CUresult result = find_target(params, &context, &target); result != CUDA_SUCCESS)
    return result;
  const Launch launch{{{params.gridDimX, params.gridDimY, params.gridDimZ},
                       {params.blockDimX, params.blockDimY, params.blockDimZ},
                       params.sharedMemBytes,
                       false},
                      params.kernelParams,
                      params.extra};
  KernelWork work;
  const CUresult result = prepare_kernel(*context, target, launch, &work);
  // A buffer of parameters that is too long.
  if (result == CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES) return CUDA_ERROR_INVALID_VALUE;
  if (result != CUDA_SUCCESS) return result;
  *operation = std::make_shared<KernelOperation>(std::move(context), std::move(work),
                                                 params.extra != nullptr, KernelAttributes{});
  return CUDA_SUCCESS;
}

}  // namespace fargpu::sim
