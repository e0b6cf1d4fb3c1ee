#include "client/stream/host_turns.h"

#include <chrono>
#include <utility>

namespace fargpu::client {

// Those of one function, or of one launch of a graph.
class HostTurns::Turns {
 public:
  Turns(HostTurns& of, std::shared_ptr<Share> stream) : of_(of), stream_(std::move(stream)) {}
  ~Turns() {
    {
      std::lock_guard lock(of_.mutex_);
      if (stream_->last == this) stream_->last = nullptr;
      stream_->taken -= taken_;
      of_.taken_ -= taken_;
    }
    of_.fewer_.notify_all();
  }
  Turns(const Turns&) = delete;
  Turns& operator=(const Turns&) = delete;

  // With the mutex held.
  void take(unsigned turns) {
    taken_ += turns;
    stream_->taken += turns;
    of_.taken_ += turns;
  }

 private:
  HostTurns& of_;
  const std::shared_ptr<Share> stream_;
  unsigned taken_ = 0;
};

std::shared_ptr<void> HostTurns::add(std::shared_ptr<Share> stream) {
  Share& share = *stream;
  auto turns = std::make_shared<Turns>(*this, std::move(stream));
  std::lock_guard lock(mutex_);
  share.last = turns.get();
  return turns;
}

// Until there is room or `enough`. A stream without turns may go on: it may do what a function of
// another stream waits for.
void HostTurns::wait(std::unique_lock<std::mutex>& lock, const Share& stream, unsigned turns,
                     const std::function<bool()>& enough) {
  constexpr std::chrono::milliseconds kLook{20};  // for what nobody notifies
  while (stream.taken > 0 && taken_ + turns > kMost && !enough()) fewer_.wait_for(lock, kLook);
}

std::shared_ptr<void> HostTurns::add_graph(std::shared_ptr<Share> stream, unsigned turns,
                                           const std::function<bool()>& lost) {
  Share& share = *stream;
  auto taken = std::make_shared<Turns>(*this, std::move(stream));
  std::unique_lock lock(mutex_);
  wait(lock, share, turns, lost);
  taken->take(turns);
  return taken;
}

void HostTurns::enter(Share& stream, const std::function<bool()>& lost) {
  std::unique_lock lock(mutex_);
  if (stream.last == nullptr) return;
  // The function may return meanwhile, and then there is nothing to take.
  wait(lock, stream, 1, [&] { return stream.last == nullptr || lost(); });
  if (stream.last != nullptr) std::exchange(stream.last, nullptr)->take(1);
}

}  // namespace fargpu::client
