#include "client/stream/host_calls.h"

#include <gtest/gtest.h>

#include <atomic>
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

// Functions with a thread that runs them. `told`: the ids that the worker hears of, negative. The
// thread never ends, so what it uses is never destroyed.
Journal& journal() {
  static auto* made = new Journal;
  return *made;
}
HostCalls& new_calls(Journal* told = nullptr, Observers& observers = *new Observers) {
  auto& calls = *new HostCalls(observers);
  std::thread([&calls, told] {
    for (;;) {
      const HostCalls::Due due = calls.next();
      HostCalls::run(due);
      if (due.tell && told != nullptr) told->add(-static_cast<int>(due.id));
      calls.ended(due);
    }
  }).detach();
  return calls;
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
  HostCalls& calls = new_calls(&journal());
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
  Observers observers;
  HostCalls calls(observers);
  static Note unused{1};
  const uint64_t id = calls.add({.function = &note, .user_data = &unused});
  calls.cancel(id);
  EXPECT_TRUE(none_outstanding_soon(calls));
}

// A load on a thread of its own.
class Load {
 public:
  Load(HostCalls& calls, uint16_t device)
      : calls_(calls), device_(device), thread_([this] {
          calls_.begin_load(device_);
          began_ = true;
        }) {}
  ~Load() {
    thread_.join();
    calls_.end_load(device_);
  }
  bool has_begun() const { return began_; }
  bool begins_soon() const {
    for (int i = 0; i < 3000 && !began_; ++i) std::this_thread::sleep_for(kMoment);
    return began_;
  }
  static constexpr std::chrono::milliseconds kMoment{10};

 private:
  HostCalls& calls_;
  const uint16_t device_;
  std::atomic<bool> began_{false};
  std::thread thread_;
};

TEST(HostCalls, ALoadWaitsForEarlierFunctionsAndLaterOnesForTheLoad) {
  HostCalls& calls = new_calls();
  const uint64_t earlier = calls.add({.device = 1});
  std::atomic<uint64_t> later{0};
  std::thread adds;
  {
    const Load load(calls, 1);
    std::this_thread::sleep_for(10 * Load::kMoment);
    EXPECT_FALSE(load.has_begun());
    adds = std::thread([&] { later = calls.add({.device = 1}); });
    std::this_thread::sleep_for(10 * Load::kMoment);
    EXPECT_EQ(later, 0u) << "the load would have to wait for this one too";
    calls.cancel(earlier);
    EXPECT_TRUE(load.begins_soon());
    EXPECT_EQ(later, 0u);
  }
  adds.join();
  EXPECT_NE(later, 0u);
}

TEST(HostCalls, ALoadConcernsTheFunctionsOfItsContextOnly) {
  HostCalls& calls = new_calls();
  calls.add({.device = 1});
  {
    const Load elsewhere(calls, 2);
    EXPECT_TRUE(elsewhere.begins_soon());
    calls.add({.device = 1});  // at once
  }
  const uint64_t third = calls.add({.device = 3});
  {
    const Load anywhere(calls, 0);
    std::this_thread::sleep_for(10 * Load::kMoment);
    EXPECT_FALSE(anywhere.has_begun());
    calls.lost(CUDA_ERROR_DEVICE_UNAVAILABLE);
  }
  calls.cancel(third);  // gone already
  EXPECT_FALSE(calls.outstanding());
}

// Not even for a function that runs and never returns.
TEST(HostCalls, ALoadDoesNotWaitWhenTheSessionIsLost) {
  HostCalls& calls = new_calls();
  static std::atomic<bool> stop{false};
  const uint64_t id = calls.add({.function =
                                     [](void*) {
                                       while (!stop) std::this_thread::yield();
                                     },
                                 .device = 1});
  calls.due(id, CUDA_SUCCESS);
  {
    const Load load(calls, 1);
    std::this_thread::sleep_for(10 * Load::kMoment);
    EXPECT_FALSE(load.has_begun());
    calls.lost(CUDA_ERROR_DEVICE_UNAVAILABLE);
  }  // it began
  stop = true;
  EXPECT_TRUE(none_outstanding_soon(calls));
}

TEST(HostCalls, ALoadConcernsAllFunctionsWhenContextsWaitForEachOther) {
  HostCalls& calls = new_calls();
  calls.join_contexts();
  const uint64_t id = calls.add({.device = 1});
  const Load load(calls, 2);
  std::this_thread::sleep_for(10 * Load::kMoment);
  EXPECT_FALSE(load.has_begun());
  calls.cancel(id);
}

TEST(HostCalls, KnowsUpToWhichFunctionAllHaveReturned) {
  Observers observers;
  HostCalls calls(observers);
  EXPECT_EQ(calls.last(), 0u);
  EXPECT_FALSE(calls.last_up_to(FunctionsAhead::kAll));
  const uint64_t first = calls.add({}), second = calls.add({}), third = calls.add({});
  EXPECT_EQ(calls.last(), third);
  calls.cancel(first);
  EXPECT_FALSE(calls.last_up_to(first));
  EXPECT_EQ(calls.last_up_to(second), second);
  EXPECT_EQ(calls.last_up_to(FunctionsAhead::kAll), third);
  calls.due(second, CUDA_SUCCESS);
  EXPECT_TRUE(calls.last_up_to(second));
  HostCalls::Due due;
  std::thread([&] { due = calls.next(); }).join();
  EXPECT_TRUE(calls.last_up_to(second));  // it runs
  calls.ended(due);
  EXPECT_FALSE(calls.last_up_to(second));
  EXPECT_TRUE(calls.last_up_to(third));
  calls.everything_follows();
  EXPECT_TRUE(calls.last_up_to(0));
  calls.cancel(third);
  EXPECT_FALSE(calls.last_up_to(FunctionsAhead::kAll));
}

// The earlier function may wait for the later one, which therefore must not wait for ever.
TEST(HostCalls, AShortLoadWaitsForShortFunctionsAndNotForLongOnes) {
  static Observers observers;
  static auto* calls = &new_calls(nullptr, observers);
  static std::atomic<bool> end{false};
  const uint16_t device = HostCalls::device_key(0);
  EXPECT_TRUE(calls->begin_short_load(device));  // nothing runs
  calls->end_load(device);
  const auto run = [&](CUhostFn function) {
    calls->due(calls->add({function, nullptr, nullptr, nullptr, device}), CUDA_SUCCESS);
  };
  const auto is_soon = [](auto begin) {
    return std::chrono::steady_clock::now() - begin < HostCalls::kPatience;
  };

  run([](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(20)); });
  EXPECT_TRUE(calls->begin_short_load(device));
  EXPECT_FALSE(observers.any(Observers::kHostFunctions));
  calls->end_load(device);

  run([](void*) {
    while (!end) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  auto begin = std::chrono::steady_clock::now();
  EXPECT_FALSE(calls->begin_short_load(device));
  EXPECT_FALSE(is_soon(begin));
  // It has waited in vain: not again while functions are left. And nothing has begun: further
  // functions do not wait.
  begin = std::chrono::steady_clock::now();
  EXPECT_FALSE(calls->begin_short_load(device));
  run([](void*) {});
  EXPECT_TRUE(is_soon(begin));
  end = true;
  EXPECT_TRUE(none_outstanding_soon(*calls));
}

TEST(HostCalls, AFunctionWaitsForALoadForALimitedTime) {
  HostCalls& calls = new_calls();
  const uint64_t earlier = calls.add({.device = 1});
  const Load load(calls, 1);
  std::this_thread::sleep_for(Load::kMoment);
  const uint64_t later = calls.add({.device = 1});
  EXPECT_FALSE(load.has_begun());
  calls.cancel(earlier);
  calls.cancel(later);
}

}  // namespace
}  // namespace fargpu::client
