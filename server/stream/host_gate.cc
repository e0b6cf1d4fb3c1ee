#include "server/stream/host_gate.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "common/wire/control.h"
#include "generated/schema/control.capnp.h"
#include "schema/support/sizes.h"
#include "server/stream/stream_holds.h"

namespace fargpu::server {

CUresult HostGate::enqueue(uint16_t context, CUstream stream, uint64_t id, bool with_status) {
  const DriverTable& driver = core_.driver;
  if (calls_.contains(id)) return CUDA_ERROR_INVALID_VALUE;
  if (calls_.empty() && begins_) begins_();
  const CUdevice device = core_.contexts.device_of(context);
  auto call = std::make_shared<Call>(Call{this, id, context, device, with_status});
  // The driver gets its own reference, given up in hold().
  auto* for_driver = new std::shared_ptr<Call>(call);
  {
    std::lock_guard lock(mutex_);
    with_driver_.emplace(for_driver);
  }
  CUresult result = CUDA_ERROR_NOT_SUPPORTED;
  holds_.hold(device);
  if (with_status && driver.cuStreamAddCallback != nullptr) {
    result = driver.cuStreamAddCallback(stream, &HostGate::reached_with_status, for_driver, 0);
  } else if (!with_status && driver.cuLaunchHostFunc != nullptr) {
    result = driver.cuLaunchHostFunc(stream, &HostGate::reached, for_driver);
  }
  if (result != CUDA_SUCCESS) {
    (void)take_back(for_driver);
    holds_.release(device);
    tell(id, result, /*cancelled=*/true);
    return result;
  }
  add(std::move(call));
  return CUDA_SUCCESS;
}

CUresult HostGate::expect(uint16_t context, const std::shared_ptr<Node>& node, uint64_t id) {
  if (calls_.contains(id)) return CUDA_ERROR_INVALID_VALUE;
  if (calls_.empty() && begins_) begins_();
  const CUdevice device = core_.contexts.device_of(context);
  auto call = std::make_shared<Call>(Call{this, id, context, device, /*with_status=*/false});
  call->node = node;
  {
    std::lock_guard lock(mutex_);
    node->due.push_back(call);
  }
  if (node->words != nullptr) {
    ++node->launches;
    if (!std::exchange(node->watched, true)) watched_.push_back(node);
  }
  holds_.hold(device);
  add(std::move(call));
  return CUDA_SUCCESS;
}

CUresult HostGate::give_words(Node& node) {
  const uint16_t context = core_.contexts.current();
  return context == 0 ? CUDA_ERROR_NOT_SUPPORTED : words_.take(core_.driver, context, &node.words);
}

size_t HostGate::poll() {
  size_t reached = 0;
  for (const auto& node : watched_) {
    if (node->launches == 0 || node->runs || !node->words->take_reached()) continue;
    ++reached;
    arrive(*node);
  }
  std::erase_if(watched_, [](const auto& node) {
    node->watched = node->launches > 0;
    return !node->watched;
  });
  return reached;
}

bool HostGate::any_to_pass(uint16_t context) const {
  return std::any_of(watched_.begin(), watched_.end(), [context](const auto& node) {
    return node->launches > 0 && node->words->context() == context;
  });
}

void HostGate::arrive(Node& node) {
  std::shared_ptr<Call> call;
  {
    std::lock_guard lock(mutex_);
    if (!node.due.empty()) {
      call = std::move(node.due.front());
      node.due.pop_front();
      call->reached = true;
    }
  }
  if (call == nullptr) return pass(node);  // given up
  node.runs = true;
  // As in hold().
  if (core_.output.flush().ok()) tell(call->id, CUDA_SUCCESS, /*cancelled=*/false);
}

void HostGate::pass(Node& node) {
  node.runs = false;
  if (node.launches > 0) --node.launches;
  node.words->let_go();
}

void HostGate::not_launched(uint64_t id, CUresult why) {
  const auto found = calls_.find(id);
  if (found == calls_.end()) return;
  forget(*found->second);
  end(found);
  tell(id, why, /*cancelled=*/true);
}

void HostGate::forget(const Call& call) {
  if (call.node == nullptr) return;
  Node& node = *call.node;
  if (node.words != nullptr && node.launches > 0) --node.launches;
  std::lock_guard lock(mutex_);
  std::erase_if(node.due, [&](const auto& due) { return due.get() == &call; });
}

void HostGate::reached_in_graph(void* pointer) {
  auto* const node = static_cast<Node*>(pointer);
  HostGate& gate = *node->gate;
  std::shared_ptr<Call> call;
  {
    std::lock_guard lock(gate.mutex_);
    if (node->due.empty()) return;  // given up
    call = std::move(node->due.front());
    node->due.pop_front();
  }
  gate.hold(*call, CUDA_SUCCESS);
}

uint64_t HostGate::oldest_outstanding() const {
  uint64_t oldest = UINT64_MAX;
  for (const auto& [id, call] : calls_) oldest = std::min(oldest, call->number);
  return oldest;
}

void HostGate::add(std::shared_ptr<Call> call) {
  call->number = ++last_number_;
  const uint64_t id = call->id;
  calls_.emplace(id, std::move(call));
}

HostGate::Calls::iterator HostGate::end(Calls::iterator call) {
  holds_.release(call->second->device);
  const auto next = calls_.erase(call);
  if (fewer_) fewer_();
  return next;
}

std::unique_ptr<std::shared_ptr<HostGate::Call>> HostGate::take_back(std::shared_ptr<Call>* call) {
  std::lock_guard lock(mutex_);
  with_driver_.erase(call);
  return std::unique_ptr<std::shared_ptr<Call>>(call);
}

void HostGate::reached(void* call) { reached_with_status(nullptr, CUDA_SUCCESS, call); }

void HostGate::reached_with_status(CUstream, CUresult status, void* pointer) {
  auto* const given = static_cast<std::shared_ptr<Call>*>(pointer);
  const auto call = (*given)->gate->take_back(given);
  (*call)->gate->hold(**call, status);
}

// On a thread of the driver.
void HostGate::hold(Call& call, CUresult status) {
  {
    std::lock_guard lock(mutex_);
    if (closed_ || call.reached) return;  // given up
    call.reached = true;
  }
  const uint64_t id = call.id;
  core_.posted.post([this, id, status] {
    // Printed text of earlier kernels belongs before what the function prints.
    if (core_.output.flush().ok()) tell(id, status, /*cancelled=*/false);
  });
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return call.released || closed_; });
}

void HostGate::tell(uint64_t id, CUresult status, bool cancelled) {
  rpc::Responder::Frame frame(core_.responder,
                              static_cast<uint16_t>(wire::ControlOpcode::kHostCall),
                              schema::fixed_bytes<schema::HostCall>());
  auto body = frame.init<schema::HostCall>();
  body.setId(id);
  body.setStatus(status);
  body.setCancelled(cancelled);
  // A failure means that the session is lost; the executor notices that elsewhere.
  (void)frame.send(0);
}

void HostGate::give_up(uint16_t context, CUresult why) {
  for (auto entry = calls_.begin(); entry != calls_.end();) {
    Call& call = *entry->second;
    bool never = false;
    if (call.context == context) {
      std::lock_guard lock(mutex_);
      never = !call.reached;
      call.reached = true;
    }
    if (!never) {
      ++entry;
      continue;
    }
    // A stream callback still runs, with the error; the client reports when it has returned.
    tell(call.id, why, /*cancelled=*/!call.with_status);
    if (call.with_status) {
      ++entry;
      continue;
    }
    forget(call);
    entry = end(entry);
  }
  // Nothing of such a context comes to its nodes any more, unless it is there already: also not of
  // launches in streams of other contexts.
  for (const auto& node : watched_) {
    if (node->words->context() != context) continue;
    std::deque<std::shared_ptr<Call>> due;
    {
      std::lock_guard lock(mutex_);
      due.swap(node->due);
      for (const auto& call : due) call->reached = true;
    }
    for (const auto& call : due) {
      tell(call->id, why, /*cancelled=*/true);
      end(calls_.find(call->id));
    }
    node->launches = node->runs ? 1 : 0;
    if (!node->runs) node->words->let_go();
  }
}

void HostGate::look() {
  const auto now = std::chrono::steady_clock::now();
  if (now < next_look()) return;
  last_look_ = now;
  std::set<uint16_t> contexts;
  for (const auto& [id, call] : calls_) contexts.insert(call->context);
  std::set<uint16_t> failed;
  for (const uint16_t context : contexts) {
    CUresult state = core_.contexts.enter(context);
    // Whatever the stream is, a sticky error of its context comes to light.
    if (state == CUDA_SUCCESS) state = core_.driver.cuStreamQuery(CU_STREAM_LEGACY);
    if (state == CUDA_SUCCESS || state == CUDA_ERROR_NOT_READY ||
        state == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT ||
        state == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) {
      continue;
    }
    if (failed_.contains(context)) {
      give_up(context, state);
    } else {
      failed.insert(context);
    }
  }
  failed_ = std::move(failed);
}

std::chrono::steady_clock::time_point HostGate::next_look() const {
  return calls_.empty() ? std::chrono::steady_clock::time_point::max() : last_look_ + kLookEvery;
}

Status HostGate::finished(uint64_t id) {
  const auto found = calls_.find(id);
  std::unique_lock lock(mutex_);
  if (found == calls_.end() || !found->second->reached) {
    return Status(StatusCode::kProtocol,
                  fmt::format("host call {} was reported done but does not run", id));
  }
  found->second->released = true;
  lock.unlock();
  changed_.notify_all();
  if (const auto& node = found->second->node; node != nullptr && node->words != nullptr)
    pass(*node);
  end(found);
  return Status();
}

void HostGate::close() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
}

}  // namespace fargpu::server
