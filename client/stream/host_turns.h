// HostTurns: how often a program may change from host functions to device work in its streams
// before the functions have run.
//
// A driver takes any number of host functions, but for device work behind one it sets aside a part
// of its queue of 4 MiB: an H100 with driver 580 takes 56 functions with work behind each, and 28
// if that is a graph that begins with a kernel. Then the submitting call waits. In the worker the
// waiting thread would be the executor, the only one that can read that a function has returned.
// So the thread that would submit more waits here, in the client, until an earlier function has
// returned. A turn is two of the 56 parts.
//
// Host nodes of graphs take more than is known. So the worker makes operations on words in their
// place (server/stream/host_words.h), but in graphs that it edits, which count with much more than
// any was seen to take.
//
// Blocking streams and the legacy stream wait for each other, and that costs parts, too (an H200,
// docs/measurements/2026-11-28-calls-that-wait.md): while device work of the legacy stream has not
// ended, each function in a blocking stream takes one, although no work is behind it.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "client/stream/stream_queue.h"

namespace fargpu::client {

// Any thread. Outlives the functions that it counts. `lost` ends a wait.
class HostTurns {
 public:
  // Streams may share a queue of the driver, so this is for all streams of a session. Some are left
  // for the first turns of further streams, of which there are kMostOfAll at most.
  static constexpr unsigned kMost = 26, kMostOfAll = 200;
  static constexpr unsigned kOfHostNode = 3;

  // How the stream and the legacy stream wait for each other.
  enum class Of : uint8_t { kApart, kBlocking, kLegacy };

  class Turns;
  // A stream's part; guarded by the mutex of its session's HostTurns.
  struct Share {
    // Of functions that device work may come right behind: the last one, and those that were being
    // sent at the same time, in whatever order. None behind which work has come.
    std::vector<Turns*> lasts;
    uint64_t clock = 0;  // counts beginnings and ends of their sending
    unsigned taken = 0;
    unsigned sending = 0;             // device work that has entered and is being sent
    bool is_behind_function = false;  // the device work that entered last
  };

  using Lost = std::function<bool()>;
  using Follow = std::function<void()>;
  // What threads were sending when the first functions came had not counted itself as being sent.
  // For so long no mark is believed to come behind it.
  static constexpr std::chrono::milliseconds kSendsOfBefore{50};
  // The turns of a function, none yet. Must live until it has run.
  std::shared_ptr<void> make(std::shared_ptr<Share> stream, Of of);
  // Right before it is sent, when HostCalls knows it: device work that begins from now on is taken
  // to be behind it. So is work that is being sent already, which may come before or behind it; it
  // takes its turn here. False: there are not as many turns, and it must not be sent;
  // wait_to_enter() first.
  // `legacy`: the queue of the legacy stream, if that and its stream wait for each other, or null.
  // `follow_legacy` makes what is known of the legacy stream newer; it may send.
  bool may_enter(const std::shared_ptr<void>& function, const StreamQueue* legacy,
                 const Follow& follow_legacy, const Lost& lost);
  void wait_to_enter(const std::shared_ptr<void>& function, const StreamQueue* legacy,
                     const Follow& follow_legacy, const Lost& lost);
  // It is sent: work that begins from now on comes behind it.
  void has_entered(const std::shared_ptr<void>& function);
  // Before a graph that has so many host nodes of the driver is launched, right before or after
  // enter(): waits for its turns, unless the stream has none.
  std::shared_ptr<void> add_graph(std::shared_ptr<Share> stream, Of of, unsigned host_nodes,
                                  const Lost& lost);
  // Before device work is sent into the stream. Waits if it is behind a function, kMost turns are
  // taken, and the function's stream has some of them. Then it counts as being sent until sent().
  void enter(Share& stream, Of of, const Lost& lost);
  void sent(Share& stream, Of of);

 private:
  using Lock = std::unique_lock<std::mutex>;
  bool is_full(const Share& stream, unsigned turns) const;
  bool is_beside_work(const StreamQueue* legacy, const Follow& follow_legacy);
  bool is_followed(const Turns& function) const;
  void wait_for_fewer(Lock& lock);
  void wait(Lock& lock, const Share& stream, unsigned turns, const std::function<bool()>& enough);
  // Work has come behind, or may have, unless the function has run meanwhile.
  void take(Lock& lock, Turns* function, const Lost& lost);
  void take_lasts(Lock& lock, Of of, const Lost& lost);

  std::once_flag first_functions_;
  std::chrono::steady_clock::time_point first_;  // when these came
  std::mutex mutex_;
  std::condition_variable fewer_;
  // Guarded by mutex_.
  unsigned taken_ = 0;
  unsigned sending_ = 0;  // device work that has entered blocking streams and is being sent
  std::array<std::set<Turns*>, 3> lasts_;  // those of all streams, by Of
};

}  // namespace fargpu::client
