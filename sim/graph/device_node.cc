#include "sim/graph/device_node.h"

#include <unordered_map>

#include "sim/graph/environment.h"

namespace fargpu::sim {
namespace {

constexpr int kSuccess = 0, kInvalidValue = 1;  // of cudaError_t

struct Nodes {
  std::mutex mutex;
  std::unordered_map<uint64_t, std::weak_ptr<DeviceNode>> by_handle;
};

Nodes& nodes() {
  static auto* nodes = new Nodes;  // never destroyed: threads may outlive main
  return *nodes;
}

}  // namespace

DeviceNode::DeviceNode() = default;

DeviceNode::~DeviceNode() {
  std::lock_guard lock(nodes().mutex);
  nodes().by_handle.erase(handle());
}

std::shared_ptr<DeviceNode> DeviceNode::make() {
  Environment::serve_kernels_outside();
  auto node = std::make_shared<DeviceNode>();
  std::lock_guard lock(nodes().mutex);
  nodes().by_handle[node->handle()] = node;
  return node;
}

std::shared_ptr<DeviceNode> DeviceNode::find(uint64_t handle) {
  std::lock_guard lock(nodes().mutex);
  const auto found = nodes().by_handle.find(handle);
  return found == nodes().by_handle.end() ? nullptr : found->second.lock();
}

void DeviceNode::reset(const KernelWork& work, bool enabled) {
  std::lock_guard lock(mutex_);
  on_device_ = true;
  enabled_ = enabled;
  parameter_bytes_ = work.parameters.size();
  changed_.clear();
  grid_.reset();
}

bool DeviceNode::apply(KernelWork* work) const {
  std::lock_guard lock(mutex_);
  if (grid_) work->grid.grid = *grid_;
  // A launch that began before the host gave the node another kernel has other parameters.
  for (const auto& [offset, byte] : changed_)
    if (offset < work->parameters.size()) work->parameters[offset] = byte;
  return enabled_;
}

int DeviceNode::set_parameter(size_t offset, std::span<const std::byte> value) {
  std::lock_guard lock(mutex_);
  if (!on_device_ || offset > parameter_bytes_ || value.size() > parameter_bytes_ - offset)
    return kInvalidValue;
  for (const std::byte byte : value) changed_[offset++] = byte;
  return kSuccess;
}

int DeviceNode::set_enabled(bool enabled) {
  std::lock_guard lock(mutex_);
  if (!on_device_) return kInvalidValue;
  enabled_ = enabled;
  return kSuccess;
}

int DeviceNode::set_grid(const std::array<uint32_t, 3>& grid) {
  constexpr uint32_t kMost[] = {0x7fffffff, 65535, 65535};
  std::lock_guard lock(mutex_);
  if (!on_device_) return kInvalidValue;
  for (size_t i = 0; i < grid.size(); ++i)
    if (grid[i] == 0 || grid[i] > kMost[i]) return kInvalidValue;
  grid_ = grid;
  return kSuccess;
}

}  // namespace fargpu::sim
