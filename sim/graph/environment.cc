#include "sim/graph/environment.h"

#include <algorithm>

#include "sim/base/task_queue.h"
#include "sim/graph/device_node.h"
#include "sim/object/api.h"

namespace fargpu::sim {
namespace {

constexpr int kSuccess = 0, kInvalidValue = 1;  // of cudaError_t

// cudaStreamGraphTailLaunch and the other two.
constexpr uint64_t kTail = uint64_t{1} << 56, kFireAndForget = uint64_t{2} << 56,
                   kSibling = uint64_t{3} << 56;

}  // namespace

void Environment::serve_kernels_outside() {
  static auto* outside = new Environment(nullptr);  // never destroyed: kernels may outlive main
  GraphScope::set_outside(*outside);
}

uint64_t Environment::current() const {
  return exec_ != nullptr && exec_->for_device() ? exec_->handle() : 0;
}

int Environment::launch(uint64_t handle, uint64_t stream) {
  auto exec = Driver::get().registry().find<Exec>(handle);
  if (exec_ == nullptr || !exec || !exec->for_device() || !exec->on_device()) return kInvalidValue;
  switch (stream) {
    case kTail:
      return launch_behind(std::move(exec));
    case kFireAndForget:
      return launch_beside(std::move(exec));
    case kSibling:
      return around_->launch_beside(std::move(exec));
    default:
      return kInvalidValue;
  }
}

int Environment::launch_beside(std::shared_ptr<Exec> exec) {
  std::lock_guard lock(mutex_);
  if ((exec_ != nullptr && launched_ == kMostBeside) || !exec->begin()) return kInvalidValue;
  ++launched_;
  beside_.push_back(std::make_shared<Completion>());
  const auto run = [this, exec = std::move(exec)] {
    Environment own(exec, this);
    own.run();
    own.finish();
  };
  std::make_shared<TaskQueue>()->push(Task{run, {}, beside_.back()});
  return kSuccess;
}

int Environment::launch_behind(std::shared_ptr<Exec> exec) {
  std::lock_guard lock(mutex_);
  if (tails_.size() == kMostTails) return kInvalidValue;
  // Its own is launched once, while it runs; others do not run.
  const bool possible =
      exec == exec_ ? std::ranges::find(tails_, exec) == tails_.end() : exec->begin();
  if (!possible) return kInvalidValue;
  tails_.push_back(std::move(exec));
  return kSuccess;
}

void Environment::run() {
  const GraphScope scope(this);
  run_plan(*exec_->on_device());
}

Environment::Tails Environment::end() {
  std::unique_lock lock(mutex_);
  while (!beside_.empty()) {
    const Fence fence = beside_.back();
    beside_.pop_back();
    lock.unlock();
    fence->wait();
    lock.lock();
  }
  if (exec_ != nullptr) exec_->end();
  return std::move(tails_);
}

void Environment::finish() {
  Tails tails = end();
  while (!tails.empty()) {
    const std::shared_ptr<Exec> next = std::move(tails.front());
    tails.pop_front();
    (void)next->begin();  // it may be its own
    Environment own(next, around_);
    own.run();
    Tails first = own.end();
    tails.insert(tails.begin(), std::make_move_iterator(first.begin()),
                 std::make_move_iterator(first.end()));
  }
}

int Environment::set_parameter(uint64_t node, size_t offset, std::span<const std::byte> value) {
  const auto found = DeviceNode::find(node);
  return found ? found->set_parameter(offset, value) : kInvalidValue;
}

int Environment::set_enabled(uint64_t node, bool enabled) {
  const auto found = DeviceNode::find(node);
  return found ? found->set_enabled(enabled) : kInvalidValue;
}

int Environment::set_grid(uint64_t node, const std::array<uint32_t, 3>& grid) {
  const auto found = DeviceNode::find(node);
  return found ? found->set_grid(grid) : kInvalidValue;
}

}  // namespace fargpu::sim
