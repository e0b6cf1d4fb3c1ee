// Completion: reports when the GPU has reached a point, without ever blocking the executor.
//
// when() polls an event from the worker's list of deferred work; for a stream it records one. Waits
// that the driver cannot poll (for a whole context), and calls in which the driver itself waits,
// run on helper threads: one for each wait, so that none waits behind another one's kernel. Each
// callback runs exactly once, on the executor's thread; if the context was destroyed meanwhile, it
// gets that error. No callback runs after the session has ended.
#pragma once

#include <cuda.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/base/inline_function.h"
#include "server/core/core.h"
#include "server/stream/lifetime.h"

namespace fargpu::server {

class StreamHolds;
class ToldStreams;

class Completion {
 public:
  using Done = InlineFunction<void(CUresult), 104>;
  using Call = std::function<CUresult()>;
  // More waits at once than this queue up. Each takes a thread, and a client has one wait for each
  // of its threads.
  static constexpr size_t kMaxThreads = 64;
  // Of when_idle(): a stream costs about a microsecond to ask.
  static constexpr size_t kMaxPolledStreams = 16;
  static constexpr std::chrono::milliseconds kPolledTime{5};
  // Each takes a place in the driver's queue of its stream, of which the client leaves about sixty.
  static constexpr size_t kMaxWords = 16;

  Completion(const Core& core, StreamHolds& holds, ToldStreams& told_streams)
      : core_(core), holds_(holds), told_streams_(told_streams) {}
  ~Completion();
  Completion(const Completion&) = delete;
  Completion& operator=(const Completion&) = delete;

  // `done` runs when the lifetime has ended.
  void when(const UntilPassed& lifetime, Done done);
  void when(const UntilReached& lifetime, Done done) {
    poll(lifetime.context, lifetime.event, /*ours=*/false, std::move(done));
  }
  // The same, where a client that sees the word would know as much as from a reply: the stream then
  // writes it, and no event is recorded. Else the word stays as it is.
  void when(const UntilPassed& lifetime, const StreamWord& word, Done done);
  // `kept`, which can be moved, lives until then.
  template <typename Lifetime, typename Kept>
  void keep(const Lifetime& lifetime, Kept kept) {
    when(lifetime, [kept = std::move(kept)](CUresult) {});
  }
  // `done` runs when everything submitted to the context so far is finished. Polls its streams at
  // first, which is the fastest way to know, and leaves the wait to a helper thread when that takes
  // long or there are many streams.
  void when_idle(uint16_t context, Done done);
  // Runs `call` on a helper thread with the context current (0: none), then `done` with its result.
  // For driver calls that may wait.
  void off_thread(uint16_t context, Call call, Done done);
  // For calls in which the driver waits for all streams of `device` (or
  // StreamHolds::kEveryDevice) while it holds its locks: made when the executor need not end
  // anything that blocks a stream.
  void off_thread_exclusive(uint16_t context, CUdevice device, Call call, Done done);
  // The same for a driver that compiles, which takes a core for up to minutes: kMaxCompilations at
  // once, the others wait for these. `device`: as in off_thread_exclusive(), or kNoDevice.
  void compile(uint16_t context, CUdevice device, Call call, Done done);
  static constexpr size_t kMaxCompilations = 4;
  static constexpr CUdevice kNoDevice = -1;
  // The same after the context has become idle or failed: inside `call` the driver then has hardly
  // anything to wait for.
  void off_thread_when_idle(uint16_t context, Call call, Done done);
  // The client destroys the stream: no more work enters it, but its pending work is still part of
  // the context's. The driver's stream goes when it is idle.
  CUresult stream_ends(uint16_t context, CUstream stream);
  // Queries all streams of the context and of its green contexts, including streams that the client
  // has destroyed. SUCCESS: idle. NOT_READY: not yet. Anything else: the context's error.
  CUresult ask(uint16_t context);
  // Driver calls that helper threads make or will make.
  size_t calls_under_way();
  // Of these, those that waited for a thread when the last one came. On the executor's thread.
  size_t queued() const { return queued_; }
  void context_ended(const ContextEnd& end);

 private:
  enum class How { kAtOnce, kAlone, kWhenIdle };
  struct Job {
    CUcontext context;
    How how;
    CUdevice device;  // that the call waits for; not with kAtOnce
    Call call;        // may be empty
    Done done;
    bool compiles = false;
  };
  // `ours`: of StreamEvents, which gets it back.
  void poll(const ContextRef& context, CUevent event, bool ours, Done&& done);
  // Whether a word that the stream writes now says all that a reply would say.
  bool word_says_all(const UntilPassed& lifetime) const;
  // A failed context writes no words, so it is asked now and then.
  CUresult ask_for_error(const ContextRef& context);
  // The same for the streams that the client has destroyed.
  CUresult ask_ending(uint16_t context);
  size_t streams_in(uint16_t context) const;
  // StreamHolds::kEveryDevice for no context.
  CUdevice device_of(uint16_t context) const;
  void start(uint16_t context, How how, CUdevice device, Call call, Done done,
             bool compiles = false);
  void queue(Job job);  // needs mutex_
  void run();
  CUresult execute(const Job& job);

  const Core core_;
  StreamHolds& holds_;
  ToldStreams& told_streams_;
  size_t queued_ = 0;
  size_t words_ = 0;                                            // under way
  std::unordered_map<uint16_t, std::vector<CUstream>> ending_;  // destroyed but busy, by context
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;              // guarded by mutex_
  std::deque<Job> compilations_;      // that wait; guarded by mutex_
  size_t compiling_ = 0;              // in jobs_ or under way; guarded by mutex_
  size_t idle_threads_ = 0;           // guarded by mutex_
  bool stopping_ = false;             // guarded by mutex_
  std::vector<std::thread> threads_;  // started when all others are busy
};

}  // namespace fargpu::server
