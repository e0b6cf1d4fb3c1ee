#include "client/graph/node_params.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "client/graph/host_copy.h"
#include "client/graph/node_attributes.h"
#include "client/image/launch.h"
#include "client/image/load.h"
#include "client/image/twins.h"
#include "client/process/process.h"

namespace fargpu::client {
namespace {

// As many as a driver takes.
constexpr unsigned kMaxOperations = 256;
constexpr unsigned kMaxBodies = 4096;

bool is_zero(const void* bytes, size_t size) {
  const auto* const all = static_cast<const unsigned char*>(bytes);
  return std::all_of(all, all + size, [](unsigned char byte) { return byte == 0; });
}

// nullptr: the current one.
CUresult find_context(CUcontext named, Context** context) {
  *context =
      named == nullptr ? current_context() : home_of(Process::get().tables()->contexts.find(named));
  if (*context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return (*context)->usable() ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

// Whether the parameters are zero but for their first bytes.
bool is_zero_behind(const CUgraphNodeParams& given, size_t used) {
  return is_zero(reinterpret_cast<const char*>(given.reserved1) + used,
                 sizeof given.reserved1 - used);
}

bool is_possible_wait(CUdeviceptr address, unsigned flags, unsigned bytes) {
  const unsigned condition = flags & ~static_cast<unsigned>(CU_STREAM_WAIT_VALUE_FLUSH);
  return condition <= CU_STREAM_WAIT_VALUE_NOR && address % bytes == 0;
}

bool is_possible_write(CUdeviceptr address, unsigned flags, unsigned bytes) {
  return flags == CU_STREAM_WRITE_VALUE_DEFAULT && address % bytes == 0;
}

bool is_possible_operation(const CUstreamBatchMemOpParams& operation) {
  switch (operation.operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
      return is_possible_wait(operation.waitValue.address, operation.waitValue.flags, 4);
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      return is_possible_wait(operation.waitValue.address, operation.waitValue.flags, 8);
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
      return is_possible_write(operation.writeValue.address, operation.writeValue.flags, 4);
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      return is_possible_write(operation.writeValue.address, operation.writeValue.flags, 8);
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
    case CU_STREAM_MEM_OP_BARRIER:
      return true;
  }
  return false;
}

bool is_possible_side(CUmemorytype type, const copy::Part& part, CUarray array,
                      const copy::Shape& shape) {
  copy::Rows rows;
  switch (type) {
    case CU_MEMORYTYPE_HOST:
    case CU_MEMORYTYPE_DEVICE:
    case CU_MEMORYTYPE_UNIFIED:
      return part.address != 0 && place(part, shape, &rows);
    case CU_MEMORYTYPE_ARRAY:
      return array != nullptr;
  }
  return false;
}

}  // namespace

NodeParams& NodeParams::operator=(const NodeParams& other) {
  if (this == &other) return *this;
  given_ = other.given_;
  context_ = other.context_;
  epoch_ = other.epoch_;
  packed_ = other.packed_;
  offsets_ = other.offsets_;
  each_ = other.each_;
  buffer_size_ = other.buffer_size_;
  extra_ = other.extra_;
  attributes_ = other.attributes_;
  captured_ = other.captured_;
  operations_ = other.operations_;
  access_ = other.access_;
  allocation_ = other.allocation_;
  bodies_ = other.bodies_;
  device_node_ = other.device_node_;
  updatable_ = other.updatable_;
  point();
  return *this;
}

void NodeParams::point() {
  if (given_.type == CU_GRAPH_NODE_TYPE_KERNEL) {
    each_.resize(offsets_.size());
    std::transform(offsets_.begin(), offsets_.end(), each_.begin(),
                   [&](uint32_t offset) { return packed_.data() + offset; });
    if (!buffer_size_.empty()) {
      // In the order of a driver.
      extra_ = {CU_LAUNCH_PARAM_BUFFER_SIZE, buffer_size_.data(), CU_LAUNCH_PARAM_BUFFER_POINTER,
                packed_.data(), CU_LAUNCH_PARAM_END};
    }
    given_.kernel.extra = extra_.empty() ? nullptr : extra_.data();
    given_.kernel.kernelParams = each_.empty() || !extra_.empty() ? nullptr : each_.data();
  } else if (given_.type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP) {
    given_.memOp.paramArray = operations_.data();
  } else if (given_.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
    access_.reserve(1);  // a driver gives a pointer without descriptions, too
    given_.alloc.accessDescs = access_.data();
  } else if (given_.type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
    given_.conditional.phGraph_out = bodies_.empty() ? nullptr : bodies_.data();
  }
}

void NodeParams::become(NodeParams next) {
  const bool alike = type() == CU_GRAPH_NODE_TYPE_KERNEL && next.type() == type() &&
                     next.offsets_ == offsets_ && next.packed_.size() == packed_.size();
  if (alike) {
    std::copy(next.packed_.begin(), next.packed_.end(), packed_.begin());
    next.packed_.swap(packed_);
    next.each_.swap(each_);
  }
  *this = std::move(next);
  point();
}

void NodeParams::set_bodies(std::vector<CUgraph> bodies) {
  bodies_ = std::move(bodies);
  point();
}

void NodeParams::set_allocation(CUdeviceptr address, unsigned number) {
  given_.alloc.dptr = address;
  allocation_ = number;
}

CUresult NodeParams::take(const CUgraphNodeParams& given, NodeParams* params) {
  if (!is_known(given)) return CUDA_ERROR_INVALID_VALUE;
  NodeParams made;
  made.given_ = given;
  CUresult result = CUDA_SUCCESS;
  switch (given.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      result = made.take_kernel();
      break;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      result = made.take_copy();
      break;
    case CU_GRAPH_NODE_TYPE_MEMSET:
      result = made.take_fill();
      break;
    case CU_GRAPH_NODE_TYPE_HOST:
      if (given.host.fn == nullptr || !is_zero_behind(given, sizeof given.host))
        result = CUDA_ERROR_INVALID_VALUE;
      break;
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT: {
      // Both have the event alone.
      const auto id = reinterpret_cast<uint64_t>(given.eventRecord.event);
      if (Process::get().tables()->handles.find(rpc::HandleKind::kEvent, id) == nullptr)
        result = CUDA_ERROR_INVALID_VALUE;
      break;
    }
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      result = made.take_operations();
      break;
    case CU_GRAPH_NODE_TYPE_EMPTY:
      if (!is_zero_behind(given, 0)) result = CUDA_ERROR_INVALID_VALUE;
      break;
    case CU_GRAPH_NODE_TYPE_GRAPH:
      break;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      result = made.take_allocation();
      break;
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      if (given.free.dptr == 0) result = CUDA_ERROR_INVALID_VALUE;
      break;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      result = made.take_condition();
      break;
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
      result = CUDA_ERROR_NOT_SUPPORTED;
      break;
    default:
      result = CUDA_ERROR_INVALID_VALUE;
  }
  if (result != CUDA_SUCCESS) return result;
  made.point();
  *params = std::move(made);
  return CUDA_SUCCESS;
}

bool NodeParams::context_has_ended() const {
  return context_ != nullptr && (!context_->usable() || context_->epoch.load() != epoch_);
}

bool is_known(const CUgraphNodeParams& params) {
  return is_zero(params.reserved0, sizeof params.reserved0) && params.reserved2 == 0;
}

uint64_t function_of(const CUDA_KERNEL_NODE_PARAMS_v3& kernel) {
  return kernel.func != nullptr ? reinterpret_cast<uint64_t>(kernel.func)
                                : reinterpret_cast<uint64_t>(kernel.kern);
}

LaunchShape shape_of(const CUDA_KERNEL_NODE_PARAMS_v3& kernel) {
  return {{kernel.gridDimX, kernel.gridDimY, kernel.gridDimZ},
          {kernel.blockDimX, kernel.blockDimY, kernel.blockDimZ},
          kernel.sharedMemBytes};
}

CUresult context_of(const CUDA_KERNEL_NODE_PARAMS_v3& kernel, Context** context) {
  const uint64_t id = function_of(kernel);
  if (id == 0) return CUDA_ERROR_INVALID_HANDLE;
  if (rpc::handle_kind(id) == rpc::HandleKind::kFunction) {
    const Object* const found =
        Process::get().tables()->handles.find(rpc::HandleKind::kFunction, id);
    if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    *context = found->context;
    return CUDA_SUCCESS;
  }
  // A kernel is its own function (cuKernelGetFunction), in every context; that of the node stands
  // in what was read of it.
  const bool names_context =
      kernel.func == nullptr || id == reinterpret_cast<uint64_t>(kernel.kern);
  return find_context(names_context ? kernel.ctx : nullptr, context);
}

CUresult check_kernel(const CUDA_KERNEL_NODE_PARAMS_v3& kernel, const Context& context,
                      Function** function) {
  Session& session = *context.session;
  const uint64_t id = in_session(session, function_of(kernel));
  CUresult result = find_function(session, reinterpret_cast<const void*>(id), function);
  if (result != CUDA_SUCCESS) return result;
  FunctionAttributes* known = nullptr;
  result = attributes_in(session, **function, context, &known);
  if (result != CUDA_SUCCESS) return result;
  return check_launch(shape_of(kernel), *session.device(context.device), **function, *known);
}

uint64_t NodeParams::function() const { return function_of(given_.kernel); }

CUresult NodeParams::enter(CUcontext context) {
  if (const CUresult result = find_context(context, &context_); result != CUDA_SUCCESS)
    return result;
  epoch_ = context_->epoch.load();
  return CUDA_SUCCESS;
}

CUresult NodeParams::take_kernel() {
  CUDA_KERNEL_NODE_PARAMS_v3& kernel = given_.kernel;
  CUresult result = context_of(kernel, &context_);
  if (result != CUDA_SUCCESS) return result;
  epoch_ = context_->epoch.load();
  const uint64_t id = function();
  // What a driver gives: the function, and its kernel, by which the runtime library finds it.
  const bool is_kernel = rpc::handle_kind(id) == rpc::HandleKind::kKernel;
  kernel.func = reinterpret_cast<CUfunction>(id);
  kernel.kern = is_kernel ? reinterpret_cast<CUkernel>(id) : nullptr;
  kernel.ctx = context_->handle();
  const ContextScope scope(context_);
  Function* function = nullptr;
  result = check_kernel(kernel, *context_, &function);
  if (result != CUDA_SUCCESS) return result;
  packed_.resize(function->parameter_bytes);
  std::span<const std::byte> packed;
  result = pack_parameters(*function, kernel.kernelParams, kernel.extra, packed_.data(), &packed);
  // A buffer that is too long: a launch has an error of its own for that, a node has not.
  if (result == CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES) return CUDA_ERROR_INVALID_VALUE;
  if (result != CUDA_SUCCESS) return result;
  if (packed.data() != packed_.data() && !packed.empty())
    std::memcpy(packed_.data(), packed.data(), packed.size());
  for (const Parameter& parameter : function->parameters) offsets_.push_back(parameter.offset);
  if (kernel.kernelParams == nullptr && !offsets_.empty()) buffer_size_ = {packed_.size()};
  return CUDA_SUCCESS;
}

CUresult NodeParams::take_copy() {
  const CUDA_MEMCPY_NODE_PARAMS& node = given_.memcpy;
  const CUDA_MEMCPY3D& copy = node.copyParams;
  if (node.flags != 0 || node.reserved != 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = enter(node.copyCtx); result != CUDA_SUCCESS) return result;
  given_.memcpy.copyCtx = context_->handle();
  const copy::Shape shape{copy.WidthInBytes, copy.Height, copy.Depth};
  const bool possible =
      !shape.empty() && copy.srcLOD == 0 && copy.dstLOD == 0 &&
      is_possible_side(copy.srcMemoryType, source_part(copy), copy.srcArray, shape) &&
      is_possible_side(copy.dstMemoryType, destination_part(copy), copy.dstArray, shape);
  return possible ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult NodeParams::take_fill() {
  const CUDA_MEMSET_NODE_PARAMS_v2& fill = given_.memset;
  if (const CUresult result = enter(fill.ctx); result != CUDA_SUCCESS) return result;
  given_.memset.ctx = context_->handle();
  const unsigned element = fill.elementSize;
  if ((element != 1 && element != 2 && element != 4) || fill.dst == 0 || fill.dst % element != 0 ||
      fill.width == 0 || fill.height == 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (fill.height > 1 && (fill.pitch % element != 0 || fill.pitch / element < fill.width))
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

CUresult NodeParams::take_operations() {
  const CUDA_BATCH_MEM_OP_NODE_PARAMS_v2& node = given_.memOp;
  if (node.count == 0 || node.count > kMaxOperations || node.paramArray == nullptr ||
      node.flags != 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (node.ctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = enter(node.ctx); result != CUDA_SUCCESS) return result;
  given_.memOp.ctx = context_->handle();
  operations_.assign(node.paramArray, node.paramArray + node.count);
  const bool possible = std::all_of(operations_.begin(), operations_.end(), is_possible_operation);
  return possible ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult NodeParams::take_allocation() {
  const CUDA_MEM_ALLOC_NODE_PARAMS_v2& node = given_.alloc;
  const CUmemPoolProps& pool = node.poolProps;
  if (node.bytesize == 0 || pool.allocType != CU_MEM_ALLOCATION_TYPE_PINNED)
    return CUDA_ERROR_INVALID_VALUE;
  const bool on_host = pool.location.type == CU_MEM_LOCATION_TYPE_HOST ||
                       pool.location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
  if (pool.handleTypes != CU_MEM_HANDLE_TYPE_NONE || on_host) return CUDA_ERROR_NOT_SUPPORTED;
  if (pool.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
      Process::get().device(pool.location.id) == nullptr ||
      (node.accessDescCount != 0 && node.accessDescs == nullptr) ||
      node.accessDescCount > static_cast<size_t>(Process::get().device_count()))
    return CUDA_ERROR_INVALID_VALUE;
  access_.assign(node.accessDescs, node.accessDescs + node.accessDescCount);
  given_.alloc.dptr = 0;
  return CUDA_SUCCESS;
}

CUresult NodeParams::take_condition() {
  const CUDA_CONDITIONAL_NODE_PARAMS& node = given_.conditional;
  if (node.ctx == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (const CUresult result = enter(node.ctx); result != CUDA_SUCCESS) return result;
  given_.conditional.ctx = context_->handle();
  given_.conditional.phGraph_out = nullptr;
  switch (node.type) {
    case CU_GRAPH_COND_TYPE_IF:
      return node.size == 1 || node.size == 2 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_GRAPH_COND_TYPE_WHILE:
      return node.size == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_GRAPH_COND_TYPE_SWITCH:
      return node.size > 0 && node.size <= kMaxBodies ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

// Whether the node's device has the attribute: preferred clusters came with compute capability 10.
bool NodeParams::can_have(CUlaunchAttributeID id) const {
  if (id != CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION) return true;
  const Device* const device =
      context_ == nullptr ? nullptr : context_->session->device(context_->device);
  return device != nullptr && device->attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) >= 10;
}

CUresult NodeParams::get_attribute(CUlaunchAttributeID id, CUlaunchAttributeValue* value) const {
  if (!is_attribute_of_nodes(id)) return CUDA_ERROR_INVALID_VALUE;
  // This one is set, but not read.
  if (id == CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING || !can_have(id))
    return CUDA_ERROR_INVALID_VALUE;
  *value = {};
  if (id == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE && device_node_ != 0)
    value->deviceUpdatableKernelNode = {1, reinterpret_cast<CUgraphDeviceNode>(device_node_)};
  if (id == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP) value->memSyncDomainMap = {0, 1};
  if (id == CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE && captured_)
    value->clusterSchedulingPolicyPreference = CU_CLUSTER_SCHEDULING_POLICY_SPREAD;
  const auto found = std::find_if(attributes_.begin(), attributes_.end(),
                                  [&](const auto& attribute) { return attribute.id == id; });
  if (found != attributes_.end()) *value = found->value;
  return CUDA_SUCCESS;
}

CUresult NodeParams::set_attribute(CUlaunchAttributeID id, const CUlaunchAttributeValue& value) {
  if (!is_attribute_of_nodes(id) || !can_have(id)) return CUDA_ERROR_INVALID_VALUE;
  // The attribute cannot be cleared.
  if (id == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE && device_node_ != 0)
    return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = check_attribute(id, value, given_.kernel);
  if (result != CUDA_SUCCESS || is_without_effect(id)) return result;
  const auto found = std::find_if(attributes_.begin(), attributes_.end(),
                                  [&](const auto& attribute) { return attribute.id == id; });
  CUlaunchAttribute& attribute =
      found != attributes_.end() ? *found : attributes_.emplace_back(CUlaunchAttribute{});
  attribute.id = id;
  attribute.value = value;
  if (id == CU_LAUNCH_ATTRIBUTE_PRIORITY) {
    const Device& device = *Process::get().device(context_->device);
    attribute.value.priority =
        std::clamp(value.priority, device.greatest_priority, device.least_priority);
  }
  return CUDA_SUCCESS;
}

}  // namespace fargpu::client
