// Large copies from and to pageable memory, and from and to pinned memory that the worker does not
// reach, through a staging ring: pipelined, so that the CPU's copy and the GPU's overlap.
#include <algorithm>
#include <array>
#include <chrono>

#include "client/copy/pack.h"
#include "client/entry/call_target.h"
#include "client/transfer/ordered_copy.h"
#include "client/transfer/routes.h"
#include "common/copy/limits.h"
#include "common/copy/thread_team.h"

namespace fargpu::client {
namespace {

using Clock = std::chrono::steady_clock;

// A slot that takes longer than this is held by a stream that does not move, perhaps until this
// very thread continues. The piece then travels in a frame, which needs no slot.
constexpr auto kPatience = std::chrono::milliseconds(50);
// Smaller pieces than slots let a middle-sized copy overlap with itself.
constexpr size_t kSmallestPiece = 256u << 10;
constexpr size_t kPiecesWanted = 4;

uint64_t piece_bytes(const Transfer& transfer) {
  const uint64_t wanted =
      std::clamp<uint64_t>(transfer.bytes / kPiecesWanted, kSmallestPiece, StagingRing::kSlotBytes);
  return std::min<uint64_t>(wanted, transfer.session.piece_bytes());
}

void fill(const StagingRing::Slot& slot, const Transfer& transfer, const copy::Piece& piece) {
  const copy::Rows from = piece.of(transfer.host.rows);
  if (is_dense(piece.shape, from)) {
    ThreadTeam::get().copy(slot.memory, reinterpret_cast<const void*>(from.address), piece.bytes);
  } else {
    pack(piece.shape, from, 0, {slot.memory, piece.bytes});
  }
}

void empty(const StagingRing::Slot& slot, const Transfer& transfer, const copy::Piece& piece) {
  const copy::Rows to = piece.of(transfer.host.rows);
  if (is_dense(piece.shape, to)) {
    ThreadTeam::get().copy(reinterpret_cast<void*>(to.address), slot.memory, piece.bytes);
  } else {
    unpack(piece.shape, to, 0, {slot.memory, piece.bytes});
  }
}

// Where the worker finds the slot.
copy::Location location_of(const StagingRing& ring, const StagingRing::Slot& slot,
                           const copy::Shape& shape) {
  const auto memory = reinterpret_cast<uint64_t>(slot.memory);
  if (ring.registered() == nullptr) return copy::Location::shared(copy::dense(memory, shape));
  const transport::RemoteKey key = ring.registered()->key();
  return copy::Location::in(key, memory - key.address);
}

// Sends and flushes: the GPU works while the next piece is prepared. `order`: for a copy to the
// device.
CUresult send(const Transfer& transfer, const StagingRing::Slot& slot, const copy::Piece& piece,
              copy::Order order) {
  const StagingRing& ring = *transfer.ring;
  copy::Completion completion{transfer.plan.completion};
  if (completion.kind == copy::Completion::Kind::kNotice) {
    completion.number = ring.ticket(slot);
  } else {
    completion.number = slot.value;
    completion.word = reinterpret_cast<uint64_t>(slot.word);
  }
  const CUresult result = send_copy(
      transfer, transfer.piece(piece, location_of(ring, slot, piece.shape), completion, order));
  return result == CUDA_SUCCESS ? from_status(transfer.session.channel().flush()) : result;
}

// A single piece over rdma: the reply comes to this thread itself, a notice would come by way of
// another one.
CUresult fetch_one(const Transfer& transfer, const StagingRing::Slot& slot) {
  const copy::Piece all{transfer.shape, 0, 0, 0, 0, transfer.bytes};
  const CUresult result = send_copy_and_wait(
      transfer, transfer.piece(all, location_of(*transfer.ring, slot, transfer.shape),
                               {copy::Completion::Kind::kReply}));
  if (result == CUDA_SUCCESS) empty(slot, transfer, all);
  transfer.ring->give_back(slot, false);
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
  explicit Arriving(const Transfer& transfer) : transfer_(transfer), ring_(*transfer.ring) {}
  ~Arriving() {
    for (; count_ > 0; --count_) ring_.give_back(pieces_[begin_++ % pieces_.size()].slot, true);
  }
  bool empty() const { return count_ == 0; }
  void add(const StagingRing::Slot& slot, const copy::Piece& piece) {
    pieces_[(begin_ + count_++) % pieces_.size()] = {slot, piece};
  }
  // Waits for the oldest and empties its slot.
  CUresult finish_one() {
    const auto [slot, piece] = pieces_[begin_++ % pieces_.size()];
    --count_;
    const CUresult result = await(transfer_.session, ring_, slot);
    if (result == CUDA_SUCCESS) client::empty(slot, transfer_, piece);
    ring_.give_back(slot, true);
    return result;
  }

 private:
  struct Under {
    StagingRing::Slot slot;
    copy::Piece piece;
  };
  const Transfer& transfer_;
  StagingRing& ring_;
  std::array<Under, StagingRing::kSlots> pieces_{};  // as many as there are slots
  size_t begin_ = 0, count_ = 0;
};

// The source may change when this returns, except for pieces that are left to be fetched.
CUresult to_device(Transfer& transfer) {
  if (const CUresult result = await_source(transfer); result != CUDA_SUCCESS) return result;
  TakenCopy taken(transfer);
  // What happens to a piece for which no slot is free. Either it is left at once to be fetched when
  // the stream reaches it, so the caller does not wait; or after a while it travels in a frame.
  const bool fetched = transfer.plan.hold == copy::Hold::kForStaging;
  StagingRing& ring = *transfer.ring;
  const CUresult result =
      for_each_piece(transfer.shape, piece_bytes(transfer), [&](const copy::Piece& piece) {
        const copy::Order order = taken.order(piece);
        if (const auto slot = fetched ? ring.try_take() : ring.take(kPatience)) {
          fill(*slot, transfer, piece);
          const CUresult sent = send(transfer, *slot, piece, order);
          ring.give_back(*slot, sent == CUDA_SUCCESS);
          return sent;
        }
        return fetched ? fetch_piece(transfer, piece) : send_in_frame(transfer, piece, order);
      });
  return result == CUDA_SUCCESS ? taken.finish() : result;
}

// The bytes are there when this returns.
CUresult to_host(Transfer& transfer) {
  StagingRing& ring = *transfer.ring;
  if (ring.registered() != nullptr && transfer.bytes <= piece_bytes(transfer)) {
    if (const auto slot = ring.take(kPatience)) return fetch_one(transfer, *slot);
  }
  Arriving arriving(transfer);
  const CUresult result =
      for_each_piece(transfer.shape, piece_bytes(transfer), [&](const copy::Piece& piece) {
        auto slot = ring.try_take();
        while (!slot && !arriving.empty()) {
          if (const CUresult finished = arriving.finish_one(); finished != CUDA_SUCCESS)
            return finished;
          slot = ring.try_take();
        }
        if (!slot) slot = ring.take(kPatience);
        if (!slot) return receive_in_frame(transfer, piece);
        const CUresult sent = send(transfer, *slot, piece, copy::Order::kStream);
        if (sent == CUDA_SUCCESS) {
          arriving.add(*slot, piece);
        } else {
          ring.give_back(*slot, false);
        }
        return sent;
      });
  if (result != CUDA_SUCCESS) return result;
  while (!arriving.empty()) {
    if (const CUresult finished = arriving.finish_one(); finished != CUDA_SUCCESS) return finished;
  }
  return CUDA_SUCCESS;
}

}  // namespace

bool find_ring(Transfer& transfer) {
  if (Context* const context = current_context())
    transfer.ring = transfer.session.staging_rings.get(*context);
  return transfer.ring != nullptr;
}

CUresult carry_staged(Transfer& transfer) {
  if (transfer.to_device) return to_device(transfer);
  const CUresult result = to_host(transfer);
  return result == CUDA_SUCCESS ? after_synchronisation(transfer.session) : result;
}

}  // namespace fargpu::client
