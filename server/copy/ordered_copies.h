// OrderedCopies: asynchronous copies between device memory and memory of the client on the other
// side of a network. They keep the order of their stream, and the client does not wait for them.
//
// A delivery (to the host) is copied to a staging block in stream order. When the stream has passed
// it, its bytes follow as notices `delivery`, or over rdma are written before them, or go by the
// bulk connection, as a notice there says. flush() sends every delivery that is done; Responder
// calls it before each reply and notice, so the client never learns of a later state of the GPU
// before it has the bytes, or the notice that they are on their way. A fetch (to the device) is a
// gate in the stream with a copy behind it. When the stream reaches it, the notice `fetch` asks the
// client for the bytes; the gate opens when they have come. A barrier is such a gate without a
// copy. An amended copy (to the device) has its bytes from the beginning, in a staging block of its
// own, where the client may replace them until the stream has passed it. The client learns that
// beside other notices and replies, or a little later.
//
// Staging memory is bounded. A copy without a free block waits, by a gate in its stream, for blocks
// of earlier copies of the same stream. Nothing here waits for the GPU or the client. The client's
// frames are checked: an id or a range that was not asked for ends its session. One thread (the
// executor's).
#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "common/base/status.h"
#include "common/copy/copy.h"
#include "server/copy/asked_bytes.h"
#include "server/copy/copy_chain.h"
#include "server/copy/copy_notices.h"
#include "server/core/core.h"
#include "server/stream/gate_words.h"

namespace fargpu::server {

using copy::Copy;

class MemoryAccount;
class RemoteStaging;
class StagingPool;
class StreamHolds;

class OrderedCopies {
 public:
  // Staging memory of all copies that may wait for blocks.
  static constexpr uint64_t kStagingBytes = 64u << 20;

  struct Order {
    uint64_t id = 0;  // the client's, for its notices
    uint16_t context = 0;
    uint64_t stream_id = 0;
    CUstream stream = nullptr;
    // Of a barrier: none. Gates are for copies during which the client holds back calls that make
    // the driver wait for streams (client/stream/host_calls.h); only such copies may block their
    // stream.
    Copy copy{};

    uint64_t bytes() const { return copy.shape.bytes(); }
  };

  OrderedCopies(const Core& core, StreamHolds& holds, StagingPool& staging,
                RemoteStaging& remote_staging, MemoryAccount& memory, uint64_t max_bulk_bytes);
  OrderedCopies(const OrderedCopies&) = delete;
  OrderedCopies& operator=(const OrderedCopies&) = delete;

  // The order's context must be current and its id new. An error is also reported by a notice,
  // which ends the copy.
  CUresult deliver(const Order& order);
  CUresult fetch(const Order& order);
  CUresult amended(const Order& order, std::span<const std::byte> bytes);
  // An amended copy is over, or could not be made.
  void end_amended(uint64_t id);
  // Makes the stream wait until the client has confirmed, by delivered(), the bytes of all earlier
  // deliveries.
  CUresult barrier(const Order& order);
  // The session ends: releases all streams, so that nothing waits for one.
  void close();
  // Reports an order that could not be made.
  void refuse(const Order& order, CUresult result);
  // Whether the client may still refer to a copy by this id.
  bool knows(uint64_t id) const { return named_.contains(id); }

  // The client has the bytes of a delivery that blocks its stream, or of the deliveries before a
  // barrier.
  Status delivered(uint64_t id);
  // The memory for bytes that were asked for; empty: they are no longer needed.
  Result<std::span<std::byte>> target(uint64_t id, uint64_t offset, uint64_t bytes);
  // The bytes have arrived. No bytes: the client has acknowledged the end of the copy.
  Status fetched(uint64_t id, uint64_t offset, uint64_t bytes);
  // The same for bytes that came by the bulk connection. The order of its frames does not show the
  // client that the bytes have arrived: the worker reports it after the last ones.
  Status landed(uint64_t id, uint64_t offset, uint64_t bytes);
  // All bytes of an amended copy. If calls wait at the gate, it may be one of them: they are kept.
  Status amend(uint64_t id, std::span<const std::byte> bytes);
  bool amends(uint64_t id) const { return amended_.contains(id); }
  void calls_wait(bool wait) {
    calls_wait_ = wait;
    if (!wait) early_.clear();
  }
  // For the thread that reads the bulk connection.
  AskedBytes& asked() { return asked_; }
  // CopyNotices::deliver_beside().
  void deliver_beside(BulkDeliveries* beside) { notices_.deliver_beside(beside); }

  // Whether gates may open from now on. Gates that are due meanwhile open at the next permitted
  // poll.
  void may_open_gates(bool may) { may_open_ = may; }
  bool outstanding() const { return !chains_.empty() || !landed_.empty() || !passed_.empty(); }
  // Polls once. Returns how many elements have progressed.
  size_t poll();
  // Sends all deliveries that the GPU is done with.
  void flush();

  // The stream is destroyed; its id may be given to another stream.
  void stream_ended(const ObjectEnd& end);
  void context_ended(ContextEnd& end);

 private:
  using ChainPointer = std::unique_ptr<CopyChain>;

  static std::shared_ptr<OrderedCopy> begin(const Order& order);
  CopyChain& chain_of(const Order& order);
  CUresult add_pieces(CopyChain& chain, const std::shared_ptr<OrderedCopy>& copy,
                      const Order& order, bool may_gate);
  CUresult add_piece(CopyChain& chain, const std::shared_ptr<OrderedCopy>& copy, const Order& order,
                     const copy::Piece& piece, bool may_gate);
  bool add_direct(CopyChain& chain, const std::shared_ptr<OrderedCopy>& copy, const Order& order,
                  CUresult* result);
  CUresult add_element(CopyChain& chain, CopyElement element, CUstream stream, CUresult result);
  CUresult take_block(CopyChain& chain, bool may_reuse, CopyElement* element);
  CUresult add_gate(CopyChain& chain, CopyElement* element, CUstream stream);
  CUresult record(uint16_t context, CUstream stream, CUevent* event);
  void release(uint16_t context, CUevent event);
  // Ends the copy and notifies the client.
  void drop(OrderedCopy& copy, CUresult result);
  void end_amended(const CopyElement& element) {
    if (element.kind == CopyElement::Kind::kAmended) end_amended(element.copy->id);
  }
  void tell_passed();

  bool look();
  bool is_done(CopyChain& chain, CopyElement& element);
  void retire(CopyChain& chain);
  void send_ready();
  bool send_oldest();
  void ask(CopyChain& chain);
  void remove_empty_chains();
  // Also notifies the client of copies that have landed.
  void open_gates();

  const Core core_;
  StagingPool& staging_;
  RemoteStaging& remote_staging_;
  MemoryAccount& memory_;
  CopyNotices notices_;
  GateWords gate_words_;
  AskedBytes asked_;
  std::vector<ChainPointer> chains_;  // of streams that have such copies
  // Copies that the client may name: fetches, barriers, and deliveries that hold their stream.
  std::unordered_map<uint64_t, std::shared_ptr<OrderedCopy>> named_;
  std::unordered_map<uint64_t, std::shared_ptr<StagingBlock>> amended_;  // in chains
  std::vector<uint32_t> passed_;            // amended copies of which the client is to be told
  transport::Clock::time_point passed_at_;  // the first of them
  std::unordered_map<uint64_t, std::vector<std::byte>> early_;  // for copies that wait as calls
  bool calls_wait_ = false;
  uint64_t staged_bytes_ = 0;
  uint64_t next_number_ = 0;
  size_t to_send_ = 0;  // elements
  bool may_open_ = true;
  std::vector<std::shared_ptr<OrderedCopy>> landed_;  // complete; the client must be notified
  bool flushing_ = false;
};

}  // namespace fargpu::server
