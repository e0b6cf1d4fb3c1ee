#include "client/managed/fault_service.h"

#include <algorithm>
#include <utility>

#include "common/base/thread.h"

namespace fargpu::client {

void FaultService::start(Bring bring, Fail fail, Ahead ahead) {
  std::lock_guard lock(mutex_);
  if (started_) return;
  bring_ = std::move(bring);
  fail_ = std::move(fail);
  ahead_ = std::move(ahead);
  Thread([this] { run(); }).detach();
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

void FaultService::post(uint64_t address, bool is_write, uint64_t heard) {
  std::lock_guard lock(mutex_);
  const bool is_known = std::any_of(posted_.begin(), posted_.end(), [&](const Request& other) {
    return other.address == address && other.is_write == is_write;
  });
  if (is_known) return;
  posted_.push_back({address, is_write, heard});
  more_.notify_one();
}

void FaultService::post_ahead(uint64_t address) {
  constexpr size_t kMost = 8;
  std::lock_guard lock(mutex_);
  if (std::find(wanted_.begin(), wanted_.end(), address) != wanted_.end()) return;
  if (wanted_.size() == kMost) wanted_.pop_front();
  wanted_.push_back(address);
  more_.notify_one();
}

void FaultService::run_ahead(std::unique_lock<std::mutex>& lock) {
  const uint64_t address = wanted_.front();
  wanted_.pop_front();
  lock.unlock();
  ahead_(address);
  lock.lock();
}

void FaultService::run_posted(std::unique_lock<std::mutex>& lock) {
  const Request request = posted_.front();
  posted_.pop_front();
  lock.unlock();
  const CUresult result = bring_(request.address, request.is_write, request.heard);
  if (result != CUDA_SUCCESS) fail_(request.address, result);
  lock.lock();
}

void FaultService::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    more_.wait(lock, [this] { return !requests_.empty() || !posted_.empty() || !wanted_.empty(); });
    if (requests_.empty()) {
      posted_.empty() ? run_ahead(lock) : run_posted(lock);
      continue;
    }
    Request& request = *requests_.front();
    requests_.pop_front();
    lock.unlock();
    const CUresult result = bring_(request.address, request.is_write, std::nullopt);
    lock.lock();
    request.result = result;
    request.done = true;
    done_.notify_all();
  }
}

}  // namespace fargpu::client
