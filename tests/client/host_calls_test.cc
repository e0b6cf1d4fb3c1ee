#include "client/host_calls.h"

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace fargpu::client {
namespace {

// What happened, in order; waits until enough did.
class Journal {
 public:
  void add(int what) {
    std::lock_guard lock(mutex_);
    entries_.push_back(what);
    changed_.notify_all();
  }
  std::vector<int> wait_for(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(30), [&] { return entries_.size() >= count; });
    return entries_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int> entries_;
};

// The thread of the functions never ends, so what it uses is never destroyed.
Journal& journal() {
  static auto* made = new Journal;
  return *made;
}

struct Note {
  int number;
};

void note(void* data) {
  EXPECT_TRUE(HostCalls::on_this_thread());
  journal().add(static_cast<Note*>(data)->number);
}

// The thread of the functions counts one less after it has told the worker.
bool none_outstanding_soon(const HostCalls& calls) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (calls.outstanding()) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

void note_status(CUstream, CUresult status, void* data) {
  journal().add(static_cast<Note*>(data)->number + static_cast<int>(status));
}

TEST(HostCalls, RunsInTheOrderOfTheNoticesThenTells) {
  auto& calls = *new HostCalls([](uint64_t id) { journal().add(-static_cast<int>(id)); });
  static Note one{10}, two{20}, never{30}, callback{1000}, lost_callback{2000};
  const uint64_t a = calls.add({.function = &note, .user_data = &one});
  const uint64_t b = calls.add({.function = &note, .user_data = &two});
  EXPECT_TRUE(calls.outstanding());
  calls.due(b, CUDA_SUCCESS);
  calls.due(a, CUDA_SUCCESS);
  calls.due(77, CUDA_SUCCESS);  // an id that never was
  const int na = -static_cast<int>(a), nb = -static_cast<int>(b);
  EXPECT_EQ(journal().wait_for(4), (std::vector<int>{20, nb, 10, na}));
  EXPECT_TRUE(none_outstanding_soon(calls));
  EXPECT_FALSE(HostCalls::on_this_thread());

  // A host function is skipped when its stream failed, a callback is told; the worker hears of
  // both.
  const uint64_t c = calls.add({.function = &note, .user_data = &never});
  const uint64_t d = calls.add({.callback = &note_status, .user_data = &callback});
  calls.due(c, CUDA_ERROR_LAUNCH_FAILED);
  calls.due(d, CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(journal().wait_for(7), (std::vector<int>{20, nb, 10, na, -static_cast<int>(c),
                                                     1000 + 719, -static_cast<int>(d)}));

  // When the session is lost only callbacks run, and nobody is told.
  calls.add({.function = &note, .user_data = &never});
  calls.add({.callback = &note_status, .user_data = &lost_callback});
  calls.lost(CUDA_ERROR_DEVICE_UNAVAILABLE);
  EXPECT_EQ(journal().wait_for(8).back(), 2000 + 46);
}

TEST(HostCalls, Cancel) {
  auto& calls = *new HostCalls([](uint64_t) {});
  static Note unused{1};
  const uint64_t id = calls.add({.function = &note, .user_data = &unused});
  calls.cancel(id);
  EXPECT_TRUE(none_outstanding_soon(calls));
}

}  // namespace
}  // namespace fargpu::client
