// ToldStreams: streams that have written the word of a client's wait, so that the client knows they
// are done, while the driver may still say that they are not: it learns of the end of the write a
// few microseconds later. Until then questions about streams wait.
//
// A stream is one of them until more work enters it. Never for long: what enters it by another way
// must not keep a question waiting. One thread (the executor's).
#pragma once

#include <cuda.h>

#include <chrono>
#include <cstdint>
#include <vector>

#include "server/core/core.h"
#include "server/object/frame_stream.h"
#include "server/object/object_end.h"
#include "server/stream/lifetime.h"

namespace fargpu::server {

class ToldStreams {
 public:
  static constexpr std::chrono::milliseconds kMost{10};

  explicit ToldStreams(const Core& core) : core_(core) {}
  ToldStreams(const ToldStreams&) = delete;
  ToldStreams& operator=(const ToldStreams&) = delete;

  // The stream is going to write the word, behind all of its work.
  void will_write(const UntilPassed& stream, const StreamWord& word);
  void work_enters(const FrameStream& stream) {
    if (!streams_.empty()) forget(stream.context, stream.handle);
  }
  bool any() const { return !streams_.empty(); }
  // Whether the driver does not know yet of the end of one of them.
  bool any_unknown() { return !streams_.empty() && look(); }

  void stream_ended(const ObjectEnd& end);
  void context_ended(const ContextEnd& end);

 private:
  using Clock = std::chrono::steady_clock;
  struct Stream {
    uint16_t context;
    CUstream handle;
    StreamWord word;
    bool is_told;             // by this word or an earlier one
    Clock::time_point until;  // when a look has found it told; from then on it counts so long
  };
  bool look();
  void forget(uint16_t context, CUstream handle);

  const Core core_;
  std::vector<Stream> streams_;
};

}  // namespace fargpu::server
