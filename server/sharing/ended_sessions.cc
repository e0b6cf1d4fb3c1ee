#include "server/sharing/ended_sessions.h"

#include <utility>

#include "server/handover/worker_messages.h"

namespace fargpu::server {

using Clock = std::chrono::steady_clock;

bool EndedSessions::any_others() const {
  return source_.orders != nullptr && source_.version >= kEndedProtocol &&
         source_.orders->neighbours.load(std::memory_order_relaxed) != 0;
}

void EndedSessions::wait(std::function<void()> then) {
  if (!next_) next_ = std::make_shared<Batch>();
  core_.pending.add(
      [batch = next_, until = Clock::now() + kLimit, then = std::move(then)]() mutable {
        if (!batch->over && Clock::now() < until) return false;
        std::exchange(then, nullptr)();
        return true;
      });
  if (!asked_) ask();
}

// A socket that takes nothing more belongs to a daemon that answers nothing.
void EndedSessions::ask() {
  asked_ = std::exchange(next_, nullptr);
  const Status sent =
      send_message(source_.control, encode_await_ended(++sequence_), transport::Clock::now());
  if (sent.ok()) return;
  asked_->over = true;
  asked_ = nullptr;
}

void EndedSessions::answered(uint32_t sequence) {
  if (!asked_ || sequence != sequence_) return;
  asked_->over = true;
  asked_ = nullptr;
  if (next_) ask();
}

}  // namespace fargpu::server
