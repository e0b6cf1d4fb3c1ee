#include "client/managed/fault_service.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "common/base/signals_blocked.h"

namespace fargpu::client {

void FaultService::start(Bring bring, Fail fail) {
  std::lock_guard lock(mutex_);
  if (started_) return;
  bring_ = std::move(bring);
  fail_ = std::move(fail);
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

void FaultService::post(uint64_t address, bool is_write) {
  std::lock_guard lock(mutex_);
  const bool is_known = std::any_of(posted_.begin(), posted_.end(), [&](const Request& other) {
    return other.address == address && other.is_write == is_write;
  });
  if (is_known) return;
  posted_.push_back({address, is_write});
  more_.notify_one();
}

void FaultService::run_posted(std::unique_lock<std::mutex>& lock) {
  const Request request = posted_.front();
  posted_.pop_front();
  lock.unlock();
  const CUresult result = bring_(request.address, request.is_write);
  if (result != CUDA_SUCCESS) fail_(request.address, result);
  lock.lock();
}

void FaultService::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    more_.wait(lock, [this] { return !requests_.empty() || !posted_.empty(); });
    if (requests_.empty()) {
      run_posted(lock);
      continue;
    }
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
