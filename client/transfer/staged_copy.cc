#include "client/transfer/staged_copy.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "client/copy/copy_team.h"
#include "client/copy/pieces.h"
#include "client/entry/here.h"
#include "client/transfer/ordered_copy.h"
#include "client/transfer/synchronous_copy.h"
#include "common/rpc/copy_order.h"

namespace fargpu::client {
namespace {

using Clock = std::chrono::steady_clock;

// A slot that takes longer than this is held by a stream that does not move, perhaps until this
// very thread continues. The piece then travels in a frame, which needs no slot.
constexpr auto kPatience = std::chrono::milliseconds(50);
// Smaller pieces than slots let a middle-sized copy overlap with itself.
constexpr size_t kSmallestPiece = 256u << 10;
constexpr size_t kPiecesWanted = 4;

constexpr int kInStream = static_cast<int>(rpc::CopyOrder::kStream);

size_t bytes_of(const Box& box) { return box.width * box.height * box.depth; }

size_t piece_bytes(Session& session, const Box& box) {
  const size_t wanted =
      std::clamp(bytes_of(box) / kPiecesWanted, kSmallestPiece, StagingRing::kSlotBytes);
  return std::min<size_t>(wanted, session.piece_bytes());
}

void fill(std::byte* slot, const Box& box, const Side& from) {
  if (is_packed(box, from)) {
    CopyTeam::get().copy(slot, reinterpret_cast<const void*>(from.address), bytes_of(box));
  } else {
    pack(box, from, slot);
  }
}

void empty(const std::byte* slot, const Box& box, const Side& to) {
  if (is_packed(box, to)) {
    CopyTeam::get().copy(reinterpret_cast<void*>(to.address), slot, bytes_of(box));
  } else {
    unpack(box, to, slot);
  }
}

// What the worker gets: the slot by its key, the copy by its ticket.
CUresult call_remote(Session& session, bool to_device, const StagingRing& ring,
                     const StagingRing::Slot& slot, const Side& device, const Box& box,
                     CUstream stream, int order) {
  const transport::RemoteKey key = ring.registered()->key();
  const uint64_t offset = reinterpret_cast<uint64_t>(slot.memory) - key.address;
  const uint16_t context = current_context_id();
  if (to_device) {
    return call_fgCopyFromRemote(session, context, key.address, key.bytes, key.key, offset,
                                 device.address, device.pitch, device.slice, box.width, box.height,
                                 box.depth, stream, ring.ticket(slot), order);
  }
  return call_fgCopyToRemoteLater(session, context, key.address, key.bytes, key.key, offset,
                                  device.address, device.pitch, device.slice, box.width, box.height,
                                  box.depth, stream, ring.ticket(slot));
}

// Sends and flushes: the GPU works while the next piece is prepared. `order`: for a copy to the
// device.
CUresult send(Session& session, bool to_device, const StagingRing& ring,
              const StagingRing::Slot& slot, const Side& device, const Box& box, CUstream stream,
              int order) {
  const CUresult result =
      ring.registered() != nullptr
          ? call_remote(session, to_device, ring, slot, device, box, stream, order)
          : call_fgCopyShared(session, current_context_id(), to_device,
                              reinterpret_cast<uint64_t>(slot.memory), box.width,
                              box.width * box.height, device.address, device.pitch, device.slice,
                              box.width, box.height, box.depth, stream,
                              reinterpret_cast<uint64_t>(slot.word), slot.value, order);
  return result == CUDA_SUCCESS ? from_status(session.channel().flush()) : result;
}

// A single piece over rdma: the reply comes to this thread itself, a notice would come by way of
// another one.
CUresult fetch_one(Session& session, StagingRing& ring, const StagingRing::Slot& slot,
                   const Side& to, const Side& from, const Box& box, CUstream stream) {
  const transport::RemoteKey key = ring.registered()->key();
  const uint64_t offset = reinterpret_cast<uint64_t>(slot.memory) - key.address;
  const CUresult result = call_fgCopyToRemote(session, current_context_id(), key.address, key.bytes,
                                              key.key, offset, from.address, from.pitch, from.slice,
                                              box.width, box.height, box.depth, stream);
  if (result == CUDA_SUCCESS) empty(slot.memory, box, to);
  ring.give_back(slot, false);
  return result;
}

CUresult ping(Session& session) {
  // the channel's keepalive notices a dead server long before
  constexpr auto kLimit = std::chrono::minutes(10);
  return from_status(session.channel().ping(Clock::now() + kLimit));
}

// Waits until the worker says that the slot's copy is done. Returns its result.
CUresult await(Session& session, StagingRing& ring, const StagingRing::Slot& slot) {
  constexpr auto kLookForLife = std::chrono::seconds(1);
  while (!ring.wait_until_done(*slot.word, slot.value, session.settings.spin,
                               Clock::now() + kLookForLife)) {
    if (ring.closed()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (const CUresult result = ping(session); result != CUDA_SUCCESS) return result;
  }
  session.channel().see_sent();
  // What device code printed before the copy must have arrived before the application continues.
  if (slot.word->outputs.load(std::memory_order_relaxed) !=
      session.outputs_received.load(std::memory_order_relaxed)) {
    if (const CUresult result = ping(session); result != CUDA_SUCCESS) return result;
  }
  return static_cast<CUresult>(slot.word->result.load(std::memory_order_relaxed));
}

// Copies to the host that are under way, oldest first.
class Arriving {
 public:
  Arriving(Session& session, StagingRing& ring) : session_(session), ring_(ring) {}
  ~Arriving() {
    for (; count_ > 0; --count_) ring_.give_back(pieces_[begin_++ % pieces_.size()].slot, true);
  }
  bool empty() const { return count_ == 0; }
  void add(const StagingRing::Slot& slot, const Box& box, const Side& to) {
    pieces_[(begin_ + count_++) % pieces_.size()] = {slot, box, to};
  }
  // Waits for the oldest and empties its slot.
  CUresult finish_one() {
    const Piece piece = pieces_[begin_++ % pieces_.size()];
    --count_;
    const CUresult result = await(session_, ring_, piece.slot);
    if (result == CUDA_SUCCESS) client::empty(piece.slot.memory, piece.box, piece.to);
    ring_.give_back(piece.slot, true);
    return result;
  }

 private:
  struct Piece {
    StagingRing::Slot slot;
    Box box;
    Side to;
  };
  Session& session_;
  StagingRing& ring_;
  std::array<Piece, StagingRing::kSlots> pieces_{};  // as many as there are slots
  size_t begin_ = 0, count_ = 0;
};

}  // namespace

std::shared_ptr<StagingRing> ring_for(Session& session, const Box& box) {
  if (bytes_of(box) < kStagedFrom || !StagingRing::possible(session)) return nullptr;
  Context* const context = current_context();
  return context == nullptr ? nullptr : session.staging_rings.get(session, *context);
}

CUresult staged_to_device(Session& session, StagingRing& ring, const Side& dst, const Side& src,
                          const Box& box, CUstream stream, const SynchronousCopy& synchronous,
                          Overflow overflow) {
  size_t left = bytes_of(box);
  return for_each_piece(box, dst, src, piece_bytes(session, box),
                        [&](const Box& piece, const Side& to, const Side& from) -> CUresult {
                          left -= bytes_of(piece);
                          const int order = synchronous.order(/*last=*/left == 0);
                          const bool fetched = overflow == Overflow::kFetched;
                          if (const auto slot = fetched ? ring.try_take() : ring.take(kPatience)) {
                            fill(slot->memory, piece, from);
                            const CUresult result =
                                send(session, true, ring, *slot, to, piece, stream, order);
                            ring.give_back(*slot, result == CUDA_SUCCESS);
                            return result;
                          }
                          if (fetched) return fetch_to_device(session, to, from, piece, stream);
                          const size_t bytes = bytes_of(piece);
                          const void* data = reinterpret_cast<const void*>(from.address);
                          std::unique_ptr<std::byte[]> packed;
                          if (!is_packed(piece, from)) {
                            packed = std::make_unique<std::byte[]>(bytes);
                            pack(piece, from, packed.get());
                            data = packed.get();
                          }
                          return call_fgCopyToDevice(session, current_context_id(), to.address,
                                                     to.pitch, to.slice, piece.width, piece.height,
                                                     piece.depth, stream, data, bytes, order);
                        });
}

CUresult staged_to_host(Session& session, StagingRing& ring, const Side& dst, const Side& src,
                        const Box& box, CUstream stream) {
  if (ring.registered() != nullptr && bytes_of(box) <= piece_bytes(session, box)) {
    if (const auto slot = ring.take(kPatience))
      return fetch_one(session, ring, *slot, dst, src, box, stream);
  }
  Arriving arriving(session, ring);
  const CUresult result = for_each_piece(
      box, src, dst, piece_bytes(session, box),
      [&](const Box& piece, const Side& from, const Side& to) -> CUresult {
        auto slot = ring.try_take();
        while (!slot && !arriving.empty()) {
          if (const CUresult finished = arriving.finish_one(); finished != CUDA_SUCCESS)
            return finished;
          slot = ring.try_take();
        }
        if (!slot) slot = ring.take(kPatience);
        if (slot) {
          const CUresult sent = send(session, false, ring, *slot, from, piece, stream, kInStream);
          if (sent == CUDA_SUCCESS) {
            arriving.add(*slot, piece, to);
          } else {
            ring.give_back(*slot, false);
          }
          return sent;
        }
        const size_t bytes = bytes_of(piece);
        const bool direct = is_packed(piece, to);
        std::unique_ptr<std::byte[]> packed;
        if (!direct) packed = std::make_unique<std::byte[]>(bytes);
        std::byte* const data = direct ? reinterpret_cast<std::byte*>(to.address) : packed.get();
        const CUresult copied =
            call_fgCopyToHost(session, current_context_id(), from.address, from.pitch, from.slice,
                              piece.width, piece.height, piece.depth, stream, data, bytes);
        if (copied == CUDA_SUCCESS && !direct) unpack(piece, to, data);
        return copied;
      });
  if (result != CUDA_SUCCESS) return result;
  while (!arriving.empty()) {
    if (const CUresult finished = arriving.finish_one(); finished != CUDA_SUCCESS) return finished;
  }
  return CUDA_SUCCESS;
}

}  // namespace fargpu::client
