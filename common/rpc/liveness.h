// Liveness decides when a silent server counts as lost. Pure logic, without clock or transport. One
// thread.
//
// It counts only while a call waits. After one keepalive period without a received byte it asks for
// a ping, after a second period for another one, and after a third it says "lost". A period starts
// at the ping before it, so a client process that was stopped for an hour does not lose its
// session.
#pragma once

#include <chrono>
#include <cstdint>

namespace fargpu::rpc {

class Liveness {
 public:
  using Time = std::chrono::steady_clock::time_point;
  enum class Verdict { kFine, kPing, kLost };

  Liveness(std::chrono::milliseconds keepalive, Time now)
      : keepalive_(keepalive), silent_since_(now), asked_(now) {}

  Verdict look(Time now, bool call_waits, uint64_t received_bytes, uint64_t sent_bytes) {
    if (!call_waits || received_bytes != received_bytes_) {
      received_bytes_ = received_bytes;
      sign_of_life(now, sent_bytes);
      return Verdict::kFine;
    }
    if (now - asked_ < keepalive_) return Verdict::kFine;
    if (pings_ == kPings) return Verdict::kLost;
    ++pings_;
    asked_ = now;
    return Verdict::kPing;
  }

  // The ping could not be sent, because a sender is in the middle of a long frame. While the bytes
  // of that frame move, the server is alive.
  void could_not_ping(Time now, uint64_t sent_bytes) {
    if (sent_bytes != sent_bytes_) sign_of_life(now, sent_bytes);
  }

  // The silence so far was another connection's.
  void begins_again(Time now, uint64_t sent_bytes) { sign_of_life(now, sent_bytes); }

  std::chrono::duration<double> silence(Time now) const { return now - silent_since_; }

 private:
  static constexpr int kPings = 2;

  void sign_of_life(Time now, uint64_t sent_bytes) {
    silent_since_ = asked_ = now;
    sent_bytes_ = sent_bytes;
    pings_ = 0;
  }

  const std::chrono::milliseconds keepalive_;
  Time silent_since_, asked_;
  uint64_t received_bytes_ = 0, sent_bytes_ = 0;
  int pings_ = 0;
};

}  // namespace fargpu::rpc
