#include "client/stream/host_calls.h"

#include <algorithm>
#include <utility>

namespace fargpu::client {

uint64_t HostCalls::add(const HostFunction& function) {
  std::unique_lock lock(mutex_);
  loaded_.wait_for(lock, kLongestGate, [&] { return !gated(function.device); });
  return enter(function);
}

std::vector<unsigned long long> HostCalls::add_all(std::vector<HostFunction> functions) {
  std::vector<unsigned long long> ids;
  std::unique_lock lock(mutex_);
  loaded_.wait_for(lock, kLongestGate, [&] { return !gated(functions[0].device); });
  ids.reserve(functions.size());
  for (const HostFunction& function : functions) ids.push_back(enter(function));
  return ids;
}

uint64_t HostCalls::enter(const HostFunction& function) {
  const uint64_t id = last() + 1;
  last_id_.store(id, std::memory_order_release);
  waiting_.emplace(id, function);
  if (functions_++ == 0) observers_.add(Observers::kHostFunctions);
  one_more(function.device);
  return id;
}

void HostCalls::hold(uint16_t device) {
  std::unique_lock lock(mutex_);
  loaded_.wait_for(lock, kLongestGate, [&] { return !gated(device); });
  one_more(device);
}

void HostCalls::release(uint16_t device) {
  std::lock_guard lock(mutex_);
  one_less(device);
}

void HostCalls::cancel(uint64_t id) {
  HostFunction never;  // what it keeps goes without the lock
  std::lock_guard lock(mutex_);
  const auto found = waiting_.find(id);
  if (found == waiting_.end()) return;
  never = std::move(found->second);
  waiting_.erase(found);
  one_function_less(never.device);
}

void HostCalls::due(uint64_t id, CUresult status) {
  std::lock_guard lock(mutex_);
  auto found = waiting_.find(id);
  if (found == waiting_.end()) return;
  due_.push_back({found->second, id, status, true});
  waiting_.erase(found);
  ready_.notify_one();
}

void HostCalls::lost(CUresult status) {
  std::map<uint64_t, HostFunction> never;  // what they keep goes without the lock
  std::lock_guard lock(mutex_);
  for (const auto& [id, function] : waiting_) {
    if (function.callback != nullptr) {
      due_.push_back({function, id, status, false});
    } else {
      one_function_less(function.device);
    }
  }
  never.swap(waiting_);
  lost_ = true;
  ready_.notify_one();
  fewer_.notify_all();
  loaded_.notify_all();
}

HostCalls::Due HostCalls::next() {
  runs_host_functions = true;
  std::unique_lock lock(mutex_);
  ready_.wait(lock, [this] { return !due_.empty(); });
  Due next = std::move(due_.front());
  due_.pop_front();
  running_ = next.id;
  return next;
}

void HostCalls::run(const Due& due) {
  const HostFunction& function = due.function;
  if (function.callback != nullptr) {
    function.callback(function.stream, due.status, function.user_data);
  } else if (due.status == CUDA_SUCCESS) {
    function.function(function.user_data);
  }
}

void HostCalls::ended(const Due& due) {
  std::lock_guard lock(mutex_);
  running_ = 0;
  one_function_less(due.function.device);
}

uint64_t HostCalls::last_up_to(uint64_t id) {
  id = std::min(std::max(id, followed_by_all_.last()), last());
  std::lock_guard lock(mutex_);
  return oldest() <= id ? id : 0;
}

uint64_t HostCalls::oldest() const {
  uint64_t id = waiting_.empty() ? UINT64_MAX : waiting_.begin()->first;
  if (running_ != 0) id = std::min(id, running_);
  for (const Due& due : due_) id = std::min(id, due.id);
  return id;
}

void HostCalls::one_more(uint16_t device) {
  ++holds_[device];
  if (outstanding_++ != 0) return;
  observers_.add(Observers::kHeldStreams);
  period_.fetch_add(1, std::memory_order_release);
}

void HostCalls::one_function_less(uint16_t device) {
  if (--functions_ == 0) observers_.remove(Observers::kHostFunctions);
  one_less(device);
}

void HostCalls::one_less(uint16_t device) {
  const auto found = holds_.find(device);
  if (--found->second == 0) holds_.erase(found);
  if (--outstanding_ == 0) observers_.remove(Observers::kHeldStreams);
  if (!loads_.empty()) fewer_.notify_all();
}

bool HostCalls::concerns(uint16_t load, uint16_t function) const {
  return load == function || load == 0 || function == 0 || joined_.load(std::memory_order_relaxed);
}

bool HostCalls::held(uint16_t load) const {
  return std::any_of(holds_.begin(), holds_.end(),
                     [&](const auto& hold) { return concerns(load, hold.first); });
}

bool HostCalls::gated(uint16_t function) const {
  if (lost_) return false;
  return std::any_of(loads_.begin(), loads_.end(),
                     [&](const auto& load) { return concerns(load.first, function); });
}

void HostCalls::begin_load(uint16_t device) {
  std::unique_lock lock(mutex_);
  ++loads_[device];
  if (!runs_host_functions) fewer_.wait(lock, [&] { return lost_ || !held(device); });
}

bool HostCalls::begin_short_load(uint16_t device) {
  return begin_briefly(device, [this] { return lost_ || functions_ == 0; });
}

bool HostCalls::begin_short_drain(uint16_t device) {
  return begin_briefly(device, [this, device] { return lost_ || !held(device); });
}

bool HostCalls::begin_briefly(uint16_t device, const std::function<bool()>& none_left) {
  std::unique_lock lock(mutex_);
  ++loads_[device];
  if (none_left()) return true;
  if (!runs_host_functions && waited_in_vain_ != period()) {
    if (fewer_.wait_for(lock, kPatience, none_left)) return true;
    waited_in_vain_ = period();
  }
  one_load_less(device);
  return false;
}

void HostCalls::end_load(uint16_t device) {
  std::lock_guard lock(mutex_);
  one_load_less(device);
}

void HostCalls::one_load_less(uint16_t device) {
  const auto found = loads_.find(device);
  if (--found->second == 0) loads_.erase(found);
  loaded_.notify_all();
}

}  // namespace fargpu::client
