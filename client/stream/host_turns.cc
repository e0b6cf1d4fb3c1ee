#include "client/stream/host_turns.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace fargpu::client {

// Those of one function, or of one launch of a graph with host nodes.
class HostTurns::Turns {
 public:
  Turns(HostTurns& of, std::shared_ptr<Share> stream, Of kind)
      : of_(of), stream_(std::move(stream)), kind_(kind) {}
  ~Turns() {
    {
      std::lock_guard lock(of_.mutex_);
      end_last();
      stream_->taken -= taken_;
      of_.taken_ -= taken_;
    }
    of_.fewer_.notify_all();
  }
  Turns(const Turns&) = delete;
  Turns& operator=(const Turns&) = delete;

  // The rest with the mutex held.
  const std::shared_ptr<Share>& stream() const { return stream_; }
  Of kind() const { return kind_; }
  bool has_turns() const { return taken_ > 0; }
  void take(unsigned turns) {
    taken_ += turns;
    stream_->taken += turns;
    of_.taken_ += turns;
  }
  void begin_last() {
    begin_ = ++stream_->clock;
    end_ = 0;
    stream_->lasts.push_back(this);
    of_.lasts_[static_cast<size_t>(kind_)].insert(this);
  }
  // No work comes right behind those that were sent before the sending of this one began.
  void sent() {
    end_ = ++stream_->clock;
    const std::vector<Turns*> lasts = stream_->lasts;
    for (Turns* const other : lasts)
      if (other->is_sent() && other->end_ < begin_) other->end_last();
  }
  void end_last() {
    std::erase(stream_->lasts, this);
    of_.lasts_[static_cast<size_t>(kind_)].erase(this);
  }

 private:
  bool is_sent() const { return end_ != 0; }

  HostTurns& of_;
  const std::shared_ptr<Share> stream_;
  const Of kind_;
  unsigned taken_ = 0;
  uint64_t begin_ = 0, end_ = 0;  // of the sending, by the stream's clock
};

bool HostTurns::is_beside_work(const StreamQueue* legacy, const Follow& follow_legacy) {
  if (legacy == nullptr || !legacy->may_have_work()) return false;
  if (std::chrono::steady_clock::now() - first_ < kSendsOfBefore) return true;
  // Nobody may have waited for it. In front of the function: it would be behind it.
  follow_legacy();
  return legacy->may_have_work();
}

std::shared_ptr<void> HostTurns::make(std::shared_ptr<Share> stream, Of of) {
  std::call_once(first_functions_, [this] { first_ = std::chrono::steady_clock::now(); });
  return std::make_shared<Turns>(*this, std::move(stream), of);
}

// Device work that is being sent may come before the function or behind it.
bool HostTurns::is_followed(const Turns& function) const {
  return function.stream()->sending > 0 || (function.kind() == Of::kLegacy && sending_ > 0);
}

bool HostTurns::may_enter(const std::shared_ptr<void>& function, const StreamQueue* legacy,
                          const Follow& follow_legacy, const Lost& lost) {
  Turns& turns = *static_cast<Turns*>(function.get());
  const bool was_beside = is_beside_work(legacy, follow_legacy);
  Lock lock(mutex_);
  // Work of the legacy stream that came since has looked for functions, and this was not there.
  const bool is_beside = was_beside || (legacy != nullptr && legacy->may_have_work());
  const bool followed = is_followed(turns);
  const unsigned needed = (is_beside ? 1 : 0) + (followed ? 1 : 0);
  if (needed != 0 && is_full(*turns.stream(), needed) && !lost()) return false;
  turns.begin_last();
  if (followed) turns.end_last();
  turns.take(needed);
  return true;
}

void HostTurns::has_entered(const std::shared_ptr<void>& function) {
  Lock lock(mutex_);
  static_cast<Turns*>(function.get())->sent();
}

void HostTurns::wait_to_enter(const std::shared_ptr<void>& function, const StreamQueue* legacy,
                              const Follow& follow_legacy, const Lost& lost) {
  Turns& turns = *static_cast<Turns*>(function.get());
  for (;;) {
    const bool is_beside = is_beside_work(legacy, follow_legacy);
    Lock lock(mutex_);
    const unsigned needed = (is_beside ? 1 : 0) + (is_followed(turns) ? 1 : 0);
    if (needed == 0 || !is_full(*turns.stream(), needed) || lost()) return;
    wait_for_fewer(lock);
  }
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

std::shared_ptr<void> HostTurns::add_graph(std::shared_ptr<Share> stream, Of of,
                                           unsigned host_nodes, const Lost& lost) {
  // As seen on an H200: behind a function, beside the turn of that; and beside the legacy stream.
  constexpr unsigned kBehindFunction = 1, kBesideLegacy = 1;
  Share& share = *stream;
  auto taken = std::make_shared<Turns>(*this, std::move(stream), of);
  Lock lock(mutex_);
  unsigned turns = kOfHostNode * host_nodes;
  if (of != Of::kApart) turns += kBesideLegacy;
  if (share.is_behind_function || !share.lasts.empty()) turns += kBehindFunction;
  wait(lock, share, turns, lost);
  taken->take(turns);
  return taken;
}

void HostTurns::take(Lock& lock, Turns* function, const Lost& lost) {
  const std::shared_ptr<Share> stream = function->stream();  // it may end meanwhile
  const auto has_ended = [&] {
    return std::find(stream->lasts.begin(), stream->lasts.end(), function) == stream->lasts.end();
  };
  wait(lock, *stream, 1, [&] { return has_ended() || lost(); });
  if (has_ended()) return;
  function->end_last();
  function->take(1);
}

void HostTurns::take_lasts(Lock& lock, Of of, const Lost& lost) {
  const auto& lasts = lasts_[static_cast<size_t>(of)];
  while (!lasts.empty()) {
    Turns* const last = *lasts.begin();
    if (last->has_turns()) {  // those beside the legacy stream
      last->end_last();
      continue;
    }
    take(lock, last, lost);
  }
}

void HostTurns::enter(Share& stream, Of of, const Lost& lost) {
  Lock lock(mutex_);
  stream.is_behind_function = !stream.lasts.empty();
  while (!stream.lasts.empty()) take(lock, stream.lasts.front(), lost);
  if (of == Of::kBlocking) take_lasts(lock, Of::kLegacy, lost);
  if (of == Of::kLegacy) take_lasts(lock, Of::kBlocking, lost);
  ++stream.sending;
  if (of == Of::kBlocking) ++sending_;
}

void HostTurns::sent(Share& stream, Of of) {
  Lock lock(mutex_);
  --stream.sending;
  if (of == Of::kBlocking) --sending_;
}

}  // namespace fargpu::client
