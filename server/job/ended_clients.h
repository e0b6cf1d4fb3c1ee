// EndedClients: waits until workers whose client has ended have ended, too. Only then has the GPU
// the memory of such a program back, and the host its seat; natively both are so when the program
// can be waited for.
//
// A wait is for certain sessions. Each goes from it when its client turns out to be there, or when
// its worker's process has gone. On the daemon's event loop; starts no processes and sends no
// messages.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <set>

namespace fargpu::server {

class EndedClients {
 public:
  using Done = std::function<void()>;
  using WaitId = uint64_t;
  // A GPU that takes longer to take contexts down hangs.
  static constexpr std::chrono::milliseconds kLimit{10000};

  explicit EndedClients(boost::asio::io_context& loop, std::chrono::milliseconds limit = kLimit)
      : loop_(loop), limit_(limit) {}

  // `done` is called once, later, from the loop: when no session is left, or after the limit.
  WaitId wait(std::set<uint64_t> sessions, Done done);
  // The session's client is there. Unknown waits and sessions are nothing.
  void there(WaitId wait, uint64_t session);
  // Its worker's process has gone.
  void gone(uint64_t session);
  size_t waits() const { return waits_.size(); }

 private:
  struct Wait {
    std::set<uint64_t> sessions;
    Done done;
    boost::asio::steady_timer limit;
  };
  void finish_if_over(std::map<WaitId, Wait>::iterator wait);
  void finish(std::map<WaitId, Wait>::iterator wait);

  boost::asio::io_context& loop_;
  const std::chrono::milliseconds limit_;
  std::map<WaitId, Wait> waits_;
  WaitId next_ = 1;
};

}  // namespace fargpu::server
