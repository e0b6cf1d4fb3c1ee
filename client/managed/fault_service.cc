#include "client/managed/fault_service.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <memory>
#include <thread>

#include "client/managed/managed_memory.h"
#include "common/base/log.h"
#include "common/host/thread.h"

namespace fargpu::client {
namespace {

// Before the program may end by it. A thread of its own logs: the waiting thread may be writing to
// the log's file, and hold its lock.
void say_why(uint64_t address, CUresult why) {
  auto said = std::make_shared<std::promise<void>>();
  auto done = said->get_future();
  Thread([address, why, said] {
    log::error("managed memory at 0x{:x} cannot be fetched: error {}", address,
               static_cast<int>(why));
    said->set_value();
  }).detach();
  (void)done.wait_for(std::chrono::seconds(1));
}

}  // namespace

void FaultService::start() {
  Thread([this] { run(); }).detach();
}

CUresult FaultService::ask(uint64_t address, bool is_write) {
  std::optional<CUresult> answer;
  std::unique_lock lock(mutex_);
  requests_.push_back({address, is_write, std::nullopt, &answer});
  more_.notify_one();
  done_.wait(lock, [&answer] { return answer.has_value(); });
  return *answer;
}

void FaultService::post(uint64_t address, bool is_write, uint64_t heard) {
  std::lock_guard lock(mutex_);
  const bool is_known = std::any_of(requests_.begin(), requests_.end(), [&](const Request& other) {
    return other.address == address && other.is_write == is_write;
  });
  if (is_known) return;
  requests_.push_back({address, is_write, heard});
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

void FaultService::fail(uint64_t address, CUresult why) {
  // Another thread ends the process, which must not end by this access instead.
  constexpr auto kEndOfProcess = std::chrono::seconds(5);
  if (why == CUDA_ERROR_DEINITIALIZED) std::this_thread::sleep_for(kEndOfProcess);
  if (why != CUDA_ERROR_NOT_MAPPED) say_why(address, why);
  memory_.fail(address);
}

void FaultService::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    more_.wait(lock, [this] { return !requests_.empty() || !wanted_.empty(); });
    if (requests_.empty()) {
      const uint64_t address = wanted_.front();
      wanted_.pop_front();
      lock.unlock();
      memory_.bring_ahead(address);
      lock.lock();
      continue;
    }
    const Request request = requests_.front();
    requests_.pop_front();
    lock.unlock();
    const CUresult result = memory_.bring(request.address, request.is_write, request.heard);
    if (request.answer == nullptr && result != CUDA_SUCCESS) fail(request.address, result);
    lock.lock();
    if (request.answer == nullptr) continue;
    *request.answer = result;
    done_.notify_all();
  }
}

}  // namespace fargpu::client
