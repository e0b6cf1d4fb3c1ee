// The memory that both ends of a shared-memory session map: one sealed memfd with two rings.
//
//   page 0   control words of both rings
//   then     data of the ring to the server
//   then     data of the ring to the client
//
// It has no name anywhere; the descriptor alone gives access. Its size is sealed, so that neither
// end can make the other's accesses fault by cutting it short. Any thread; the mapping lives as
// long as the object.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/base/fd.h"
#include "common/base/status.h"
#include "common/transport/shm/shm_ring.h"

namespace fargpu::transport {

// A ring is a power of two in these bounds.
inline constexpr uint64_t kSmallestShmRing = 64 << 10, kLargestShmRing = 1 << 30;

struct ShmSizes {
  uint64_t to_server = 0, to_client = 0;  // bytes of data
};

class ShmSegment {
 public:
  // kSystem or kInvalidArgument (sizes).
  static Result<ShmSegment> create(const ShmSizes& sizes);
  // Maps a peer's descriptor, after checking that it is sealed memory of exactly that size.
  // kProtocol when it is not.
  static Result<ShmSegment> adopt(Fd memory, const ShmSizes& sizes);

  ShmSegment(ShmSegment&& other) noexcept;
  ShmSegment& operator=(ShmSegment&&) = delete;
  ~ShmSegment();

  // Makes pages present in this process, at most `bytes` from `offset` on, without changing them.
  // Any thread. False: nothing is left behind them, or the system cannot do that.
  bool make_present(size_t offset, size_t bytes) const;

  RingMemory to_server() const;
  RingMemory to_client() const;
  // -1 once it was given up: the mapping does not need it.
  int descriptor() const { return memory_.get(); }
  void close_descriptor() { memory_.reset(); }

 private:
  ShmSegment(Fd memory, std::byte* base, const ShmSizes& sizes)
      : memory_(std::move(memory)), base_(base), sizes_(sizes) {}
  static Result<ShmSegment> map(Fd memory, const ShmSizes& sizes);

  Fd memory_;
  std::byte* base_ = nullptr;
  ShmSizes sizes_;
};

}  // namespace fargpu::transport
