// HostTurns: how often a program may change from host functions to device work in its streams
// before the functions have run.
//
// A driver takes any number of host functions, but for device work behind one it sets aside a part
// of its queue of 4 MiB: an H100 with driver 580 takes 56 functions with work behind each, and two
// parts for each host node of a graph. Then the submitting call waits. In the worker the waiting
// thread would be the executor, the only one that can read that a function has returned. So the
// thread that would submit more waits here, in the client, until an earlier function has returned.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>

namespace fargpu::client {

// Any thread. Outlives the functions that it was told of.
class HostTurns {
 public:
  // Streams may share a queue of the driver, so this is for all streams of a session. Some are left
  // for the first turns of further streams (enter()).
  static constexpr unsigned kMost = 52;
  static constexpr unsigned kOfHostNode = 2;

  class Turns;
  // A stream's part; guarded by the mutex of its session's HostTurns.
  struct Share {
    Turns* last = nullptr;  // of the stream's last function, while no device work is behind it
    unsigned taken = 0;
  };

  // Before a function enters the stream. What is returned is to live until it has run.
  std::shared_ptr<void> add(std::shared_ptr<Share> stream);
  // Before a graph with host nodes is launched: waits for its turns, unless the stream has none.
  // `lost` ends the wait.
  std::shared_ptr<void> add_graph(std::shared_ptr<Share> stream, unsigned turns,
                                  const std::function<bool()>& lost);
  // Before device work enters the stream. Waits if it is behind a function, kMost turns are taken,
  // and the stream has some of them.
  void enter(Share& stream, const std::function<bool()>& lost);

 private:
  void wait(std::unique_lock<std::mutex>& lock, const Share& stream, unsigned turns,
            const std::function<bool()>& enough);

  std::mutex mutex_;
  std::condition_variable fewer_;
  unsigned taken_ = 0;  // guarded by mutex_
};

}  // namespace fargpu::client
