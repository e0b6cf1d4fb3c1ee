#include "client/managed/fault_service.h"

#include <thread>
#include <utility>

#include "common/base/signals_blocked.h"

namespace fargpu::client {

void FaultService::start(Bring bring) {
  std::lock_guard lock(mutex_);
  if (started_) return;
  bring_ = std::move(bring);
  const SignalsBlocked blocked;
  std::thread([this] { run(); }).detach();
  started_ = true;
}

CUresult FaultService::ask(uint64_t address, bool is_write) {
  Request request{address, is_write};
  std::unique_lock lock(mutex_);
  requests_.push_back(&request);
  more_.notify_one();
  done_.wait(lock, [&request] { return request.done; });
  return request.result;
}

void FaultService::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    more_.wait(lock, [this] { return !requests_.empty(); });
    Request& request = *requests_.front();
    requests_.pop_front();
    lock.unlock();
    const CUresult result = bring_(request.address, request.is_write);
    lock.lock();
    request.result = result;
    request.done = true;
    done_.notify_all();
  }
}

}  // namespace fargpu::client
