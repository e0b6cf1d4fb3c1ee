#include "client/stream/host_turns.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace fargpu::client {

// Those of one function, or of one launch of a graph.
class HostTurns::Turns {
 public:
  Turns(HostTurns& of, std::shared_ptr<Share> stream, Of kind)
      : of_(of), stream_(std::move(stream)), kind_(kind) {}
  ~Turns() {
    {
      std::lock_guard lock(of_.mutex_);
      if (stream_->last == this) end_last();
      stream_->taken -= taken_;
      of_.taken_ -= taken_;
    }
    of_.fewer_.notify_all();
  }
  Turns(const Turns&) = delete;
  Turns& operator=(const Turns&) = delete;

  // The rest with the mutex held.
  const std::shared_ptr<Share>& stream() const { return stream_; }
  bool has_turns() const { return taken_ > 0; }
  unsigned of_work_behind() const { return of_work_behind_; }
  void take(unsigned turns) {
    taken_ += turns;
    stream_->taken += turns;
    of_.taken_ += turns;
  }
  void begin_last(unsigned of_work_behind) {
    of_work_behind_ = of_work_behind;
    if (Turns* const before = stream_->last; before != nullptr) {
      of_work_behind_ = std::max(of_work_behind_, before->of_work_behind_);
      before->end_last();
    }
    stream_->last = this;
    of_.lasts_[static_cast<size_t>(kind_)].insert(this);
  }
  void end_last() {
    stream_->last = nullptr;
    of_.lasts_[static_cast<size_t>(kind_)].erase(this);
  }

 private:
  HostTurns& of_;
  const std::shared_ptr<Share> stream_;
  const Of kind_;
  unsigned taken_ = 0, of_work_behind_ = 1;
};

std::shared_ptr<void> HostTurns::add(std::shared_ptr<Share> stream, Of of, unsigned functions,
                                     const std::function<bool()>& beside_legacy_work,
                                     const Lost& lost) {
  auto turns = std::make_shared<Turns>(*this, std::move(stream), of);
  wait_to_enter(turns, functions, beside_legacy_work, lost);
  return turns;
}

bool HostTurns::may_enter(const std::shared_ptr<void>& functions, unsigned count,
                          const std::function<bool()>& beside_legacy_work, const Lost& lost) {
  Turns& turns = *static_cast<Turns*>(functions.get());
  const bool beside = beside_legacy_work();
  Lock lock(mutex_);
  if (!beside || turns.has_turns()) return true;
  if (is_full(*turns.stream(), count)) return lost();
  turns.take(count);
  return true;
}

void HostTurns::wait_to_enter(const std::shared_ptr<void>& functions, unsigned count,
                              const std::function<bool()>& beside_legacy_work, const Lost& lost) {
  Turns& turns = *static_cast<Turns*>(functions.get());
  bool beside = beside_legacy_work();
  Lock lock(mutex_);
  while (beside && is_full(*turns.stream(), count) && !lost()) {
    wait_for_fewer(lock);
    lock.unlock();
    beside = beside_legacy_work();
    lock.lock();
  }
  if (beside) turns.take(count);
}

void HostTurns::has_entered(const std::shared_ptr<void>& functions, unsigned turns) {
  Lock lock(mutex_);
  static_cast<Turns*>(functions.get())->begin_last(turns);
}

// A stream without turns may go on: it may do what a function of another stream waits for.
bool HostTurns::is_full(const Share& stream, unsigned turns) const {
  return taken_ + turns > kMost && (stream.taken > 0 || taken_ >= kMostOfAll);
}

void HostTurns::wait_for_fewer(Lock& lock) {
  constexpr std::chrono::milliseconds kLook{20};  // for what nobody notifies
  fewer_.wait_for(lock, kLook);
}

// Until there is room or `enough`.
void HostTurns::wait(Lock& lock, const Share& stream, unsigned turns,
                     const std::function<bool()>& enough) {
  while (is_full(stream, turns) && !enough()) wait_for_fewer(lock);
}

std::shared_ptr<void> HostTurns::add_graph(std::shared_ptr<Share> stream, Of of, unsigned turns,
                                           const Lost& lost) {
  // As seen on an H200: in turn with another graph, for each host node; behind a function, beside
  // the turn of that; and beside the legacy stream.
  const unsigned in_turn = turns / kOfHostNode;
  constexpr unsigned kBehindFunction = 1, kBesideLegacy = 1;
  Share& share = *stream;
  auto taken = std::make_shared<Turns>(*this, std::move(stream), of);
  Lock lock(mutex_);
  turns += in_turn;
  if (of != Of::kApart) turns += kBesideLegacy;
  if (share.is_behind_function || share.last != nullptr) turns += kBehindFunction;
  wait(lock, share, turns, lost);
  taken->take(turns);
  return taken;
}

void HostTurns::take_last(Lock& lock, Share& stream, const Lost& lost) {
  // The function may return meanwhile, and then there is nothing to take.
  wait(lock, stream, stream.last->of_work_behind(),
       [&] { return stream.last == nullptr || lost(); });
  if (Turns* const last = stream.last; last != nullptr) {
    last->end_last();
    last->take(last->of_work_behind());
  }
}

void HostTurns::take_lasts(Lock& lock, Of of, const Lost& lost) {
  const auto& lasts = lasts_[static_cast<size_t>(of)];
  while (!lasts.empty()) {
    Turns* const last = *lasts.begin();
    if (last->has_turns()) {  // those beside the legacy stream
      last->end_last();
      continue;
    }
    const std::shared_ptr<Share> stream = last->stream();  // it may end meanwhile
    take_last(lock, *stream, lost);
  }
}

void HostTurns::enter(Share& stream, Of of, const Lost& lost) {
  Lock lock(mutex_);
  stream.is_behind_function = stream.last != nullptr;
  if (stream.last != nullptr) take_last(lock, stream, lost);
  if (of == Of::kBlocking) take_lasts(lock, Of::kLegacy, lost);
  if (of == Of::kLegacy) take_lasts(lock, Of::kBlocking, lost);
}

}  // namespace fargpu::client
