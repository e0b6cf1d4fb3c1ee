// HostTurns: how often a program may change from host functions to device work in its streams
// before the functions have run.
//
// A driver takes any number of host functions, but for device work behind one it sets aside a part
// of its queue of 4 MiB: an H100 with driver 580 takes 56 functions with work behind each, and two
// parts for each host node of a graph. Then the submitting call waits. In the worker the waiting
// thread would be the executor, the only one that can read that a function has returned. So the
// thread that would submit more waits here, in the client, until an earlier function has returned.
//
// A graph of kernels takes two parts behind a graph that has host nodes alone, other work one; here
// both count as four, which leaves room for what the legacy stream adds; also with functions in
// between.
//
// Blocking streams and the legacy stream wait for each other, and that costs parts, too (an H200,
// docs/measurements/2026-11-28-calls-that-wait.md): while device work of the legacy stream has not
// ended, each function in a blocking stream takes one, although no work is behind it.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>

namespace fargpu::client {

// Any thread. Outlives the functions that it counts. `lost` ends a wait.
class HostTurns {
 public:
  // Streams may share a queue of the driver, so this is for all streams of a session. Some are left
  // for the first turns of further streams, of which there are kMostOfAll at most.
  static constexpr unsigned kMost = 52, kMostOfAll = 400;
  static constexpr unsigned kOfHostNode = 2;
  // Of device work behind a graph that has host nodes alone, however many.
  static constexpr unsigned kOfHostGraph = 4;

  // How the stream and the legacy stream wait for each other.
  enum class Of : uint8_t { kApart, kBlocking, kLegacy };

  class Turns;
  // A stream's part; guarded by the mutex of its session's HostTurns.
  struct Share {
    Turns* last = nullptr;  // of the stream's last function, while no device work is behind it
    unsigned taken = 0;
    bool is_behind_function = false;  // the device work that entered last
  };

  using Lost = std::function<bool()>;
  // Before `functions` enter the stream one behind the other; `beside_legacy_work`: the stream is
  // blocking, and work of the legacy stream may not have ended; called without a lock, again while
  // this waits. The result must live until the functions have run, and must be passed to
  // has_entered() when they are in the stream.
  std::shared_ptr<void> add(std::shared_ptr<Share> stream, Of of, unsigned functions,
                            const std::function<bool()>& beside_legacy_work, const Lost& lost);
  // Right before functions are sent, if add() was long ago: work of the legacy stream may have come
  // since. False: they need turns that there are not; wait_to_enter() first.
  bool may_enter(const std::shared_ptr<void>& functions, unsigned count,
                 const std::function<bool()>& beside_legacy_work, const Lost& lost);
  void wait_to_enter(const std::shared_ptr<void>& functions, unsigned count,
                     const std::function<bool()>& beside_legacy_work, const Lost& lost);
  // Device work that comes right behind them takes so many `turns`.
  void has_entered(const std::shared_ptr<void>& functions, unsigned turns = 1);
  // Before a graph with host nodes beside other nodes is launched, right before or after enter():
  // waits for its turns, unless the stream has none.
  std::shared_ptr<void> add_graph(std::shared_ptr<Share> stream, Of of, unsigned turns,
                                  const Lost& lost);
  // Before device work enters the stream. Waits if it is behind a function, kMost turns are taken,
  // and the function's stream has some of them.
  void enter(Share& stream, Of of, const Lost& lost);

 private:
  using Lock = std::unique_lock<std::mutex>;
  bool is_full(const Share& stream, unsigned turns) const;
  void wait_for_fewer(Lock& lock);
  void wait(Lock& lock, const Share& stream, unsigned turns, const std::function<bool()>& enough);
  // The stream's last function has work behind it.
  void take_last(Lock& lock, Share& stream, const Lost& lost);
  void take_lasts(Lock& lock, Of of, const Lost& lost);

  std::mutex mutex_;
  std::condition_variable fewer_;
  // Guarded by mutex_.
  unsigned taken_ = 0;
  std::array<std::set<Turns*>, 3> lasts_;  // the streams' last ones, by Of
};

}  // namespace fargpu::client
