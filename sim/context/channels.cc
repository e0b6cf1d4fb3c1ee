#include "sim/context/channels.h"

#include <algorithm>
#include <utility>

namespace fargpu::sim {

Channels::Channels(int connections) {
  for (auto& kind : channels_) {
    for (int i = 0; i < connections; ++i) kind.push_back(std::make_shared<Channel>());
  }
}

void Channels::put(Task* task, ChannelKind kind, ChannelPointer* channel,
                   const Fence& passed) const {
  if (*channel == nullptr) {
    const auto& all = channels_[static_cast<size_t>(kind)];
    *channel = *std::ranges::min_element(all, {}, [](const ChannelPointer& one) {
      return std::pair(pending(one->newest), one.use_count());
    });
  }
  Fence& newest = (*channel)->newest;
  if (newest != passed && pending(newest)) task->after.push_back(newest);
  newest = passed;
}

void Channels::take(Task* task, ChannelKind kind, StreamChannels* stream) const {
  task->begun = std::make_shared<Completion>();
  put(task, kind, &(*stream)[static_cast<size_t>(kind)], task->begun);
}

void Channels::take_lanes(Task* task, size_t lanes, StreamChannels* stream,
                          std::vector<ChannelPointer>* side_lanes) const {
  if (lanes == 0) return;
  constexpr ChannelKind kKind = ChannelKind::kCompute;
  put(task, kKind, &(*stream)[static_cast<size_t>(kKind)], task->done);
  side_lanes->resize(std::max(side_lanes->size(), lanes - 1));
  for (size_t lane = 1; lane < lanes; ++lane)
    put(task, kKind, &(*side_lanes)[lane - 1], task->done);
}

}  // namespace fargpu::sim
