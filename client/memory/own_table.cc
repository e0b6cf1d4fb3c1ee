#include "client/memory/own_table.h"

#include <linux/close_range.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/host/thread.h"

namespace fargpu::client {
namespace {

// The first call leaves the table that the process shares, without what lies above; the second
// closes what was copied. No lock and no file of the program is touched: those belong to its table.
bool leave_shared_table(int kept) {
  if (kept < 0 || ::syscall(SYS_close_range, kept + 1, ~0U, CLOSE_RANGE_UNSHARE) != 0) return false;
  return kept == 0 || ::syscall(SYS_close_range, 0, kept - 1, 0) == 0;
}

}  // namespace

bool OwnTable::start(int descriptor) {
  std::unique_lock lock(mutex_);
  if (state_ == State::kNone) {
    Thread([this, descriptor] { serve(descriptor); }).detach();
    state_ = State::kStarting;  // it waits for the lock
  }
  changed_.wait(lock, [this] { return state_ == State::kReady || state_ == State::kRefused; });
  return state_ == State::kReady;
}

long OwnTable::run(const std::function<long()>& task) {
  std::unique_lock lock(mutex_);
  if (state_ != State::kReady) return -1;
  changed_.wait(lock, [this] { return task_ == nullptr; });
  task_ = &task;
  done_ = false;
  changed_.notify_all();
  changed_.wait(lock, [this] { return done_; });
  const long result = result_;
  task_ = nullptr;
  changed_.notify_all();
  return result;
}

void OwnTable::serve(int descriptor) {
  const bool ready = leave_shared_table(descriptor);
  std::unique_lock lock(mutex_);
  state_ = ready ? State::kReady : State::kRefused;
  changed_.notify_all();
  if (!ready) return;
  while (true) {
    changed_.wait(lock, [this] { return task_ != nullptr && !done_; });
    const std::function<long()>& task = *task_;
    lock.unlock();
    const long result = task();
    lock.lock();
    result_ = result;
    done_ = true;
    changed_.notify_all();
  }
}

}  // namespace fargpu::client
