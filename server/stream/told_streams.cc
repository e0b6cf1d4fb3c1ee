#include "server/stream/told_streams.h"

#include <algorithm>

namespace fargpu::server {
namespace {

constexpr size_t kMany = 8;  // more are looked at when one is added

}  // namespace

void ToldStreams::will_write(const UntilPassed& stream, const StreamWord& word) {
  const auto found = std::find_if(streams_.begin(), streams_.end(), [&](const Stream& each) {
    return each.handle == stream.stream && each.context == stream.context;
  });
  if (found != streams_.end()) {
    found->is_told = found->is_told || found->word.is_written();
    found->word = word;
    found->until = {};
    return;
  }
  if (streams_.size() >= kMany) (void)look();
  streams_.push_back({stream.context, stream.stream, word, false, {}});
}

bool ToldStreams::look() {
  bool any = false;
  std::erase_if(streams_, [&](Stream& each) {
    if (!each.is_told && !each.word.is_written()) return false;
    each.is_told = true;
    if (each.until == Clock::time_point()) each.until = Clock::now() + kMost;
    if (core_.contexts.enter(each.context) != CUDA_SUCCESS ||
        core_.driver.cuStreamQuery(each.handle) != CUDA_ERROR_NOT_READY ||
        Clock::now() >= each.until)
      return true;
    any = true;
    return false;
  });
  return any;
}

void ToldStreams::forget(uint16_t context, CUstream handle) {
  std::erase_if(streams_, [&](const Stream& each) {
    return each.handle == handle && each.context == context;
  });
}

void ToldStreams::stream_ended(const ObjectEnd& end) {
  forget(end.context, static_cast<CUstream>(end.handle));
}

void ToldStreams::context_ended(const ContextEnd& end) {
  std::erase_if(streams_, [&](const Stream& each) { return each.context == end.id; });
}

}  // namespace fargpu::server
