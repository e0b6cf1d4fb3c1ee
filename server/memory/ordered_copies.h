// OrderedCopies: asynchronous copies between device memory and memory of the client that the
// network lies in between, in the order of their stream and without a wait of the client.
//
// A delivery (to the host) goes to a staging block in stream order; its bytes follow as notices
// `delivery` when the stream has passed it, or over rdma are written before them. Before the client
// is told anything that a later state of the GPU implies, flush() sends every delivery that is
// done: Responder calls it before each reply and notice. A fetch (to the device) is a gate in the
// stream and a copy behind it; when the stream gets there, the notice `fetch` asks the client for
// the bytes, and the gate opens when they have come. A meeting is such a gate without a copy.
//
// Staging memory is bounded: a copy for which none is left waits, by a gate in its stream, for
// blocks that earlier copies of the same stream use. Nothing here waits for the GPU or the client.
// What the client says is checked: an id or a range that was not asked for ends its session.
// One thread (the executor's).
#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "common/base/status.h"
#include "server/memory/copy_chain.h"
#include "server/memory/copy_notices.h"
#include "server/memory/copy_shape.h"
#include "server/stream/gate_words.h"

namespace fargpu::server {

class Worker;

class OrderedCopies {
 public:
  // What the copy engine and the network take turns with.
  static constexpr uint64_t kPieceBytes = 4u << 20;
  // Staging memory of all copies that may wait for blocks.
  static constexpr uint64_t kStagingBytes = 64u << 20;
  // Of one call: bounds what a call can put into a stream.
  static constexpr uint64_t kMostBytes = 64u << 20;
  // Of a delivery that must not wait for staging memory.
  static constexpr uint64_t kMostUngatedBytes = 32u << 20;
  // What the adapter writes to the client by itself goes in smaller pieces, unless there were too
  // many of them.
  static constexpr uint64_t kSmallPieceBytes = 1u << 20;
  static constexpr uint64_t kWrittenInSmallPieces = 16u << 20;

  // What a delivery may do to its stream. Gates are for copies during which the client holds back
  // calls that make the driver wait for streams (client/stream/host_calls.h).
  enum class Hold : int { kNever = 0, kForStaging = 1, kUntilDelivered = 2 };

  struct Order {
    uint64_t id = 0;  // the client's, for its notices
    uint16_t context = 0;
    uint64_t stream_id = 0;
    CUstream stream = nullptr;
    CUdeviceptr device = 0;
    Shape shape{};
    uint64_t bytes = 0;                    // of the shape, not 0
    std::optional<DeliveryTarget> target;  // of a delivery
  };

  explicit OrderedCopies(Worker& worker);
  OrderedCopies(const OrderedCopies&) = delete;
  OrderedCopies& operator=(const OrderedCopies&) = delete;

  // The order's context is current, and its id not known. What goes wrong is also said by a notice:
  // the copy is then over.
  CUresult deliver(const Order& order, Hold hold);
  CUresult fetch(const Order& order);
  // The stream waits until the client has said, by delivered(), that it has the bytes of all
  // deliveries that were before this.
  CUresult meet(const Order& order);
  // The session ends: no stream is held any more, so that nobody waits for one.
  void close();
  // Says so of an order that could not be made; a meeting has no bytes.
  void refuse(uint64_t id, bool fetch, uint64_t bytes, CUresult result);
  // A copy that the client may still name has this id.
  bool knows(uint64_t id) const { return named_.contains(id); }

  // The client has the bytes of a delivery that holds its stream, or of those before a meeting.
  Status delivered(uint64_t id);
  // Where bytes that were asked for go; empty: nobody wants them any more.
  Result<std::span<std::byte>> target(uint64_t id, uint64_t offset, uint64_t bytes);
  // They are there. No bytes: the client knows that the copy is over.
  Status fetched(uint64_t id, uint64_t offset, uint64_t bytes);

  bool outstanding() const { return !chains_.empty(); }
  // Looks once; how much has moved.
  size_t poll();
  // Sends all deliveries that the GPU is done with.
  void flush();
  // How many notices with bytes the session has had.
  uint32_t notices_sent() const { return notices_.sent(); }

  // The id may soon be another stream's.
  void forget_stream(uint64_t stream_id);
  // The context goes; it is current, and idle or failed.
  void end_context(uint16_t context);
  // Then: host memory of the context, to be freed before it.
  std::vector<void*> take_pages(uint16_t context) { return gate_words_.take_pages(context); }

 private:
  using ChainPointer = std::unique_ptr<CopyChain>;

  CopyChain& chain_of(const Order& order);
  CUresult add_piece(CopyChain& chain, const std::shared_ptr<OrderedCopy>& copy, const Order& order,
                     uint64_t offset, bool may_gate, uint64_t* bytes);
  bool add_direct(CopyChain& chain, const std::shared_ptr<OrderedCopy>& copy, const Order& order,
                  CUresult* result);
  CUresult add_element(CopyChain& chain, CopyElement element, CUstream stream, CUresult result);
  CUresult take_block(CopyChain& chain, bool may_reuse, CopyElement* element);
  CUresult add_gate(CopyChain& chain, CopyElement* element, CUstream stream);
  CUresult record(uint16_t context, CUstream stream, CUevent* event);
  void release(uint16_t context, CUevent event);
  // The copy is over; tells the client.
  void drop(OrderedCopy& copy, CUresult result);

  bool look();
  bool is_done(CopyChain& chain, CopyElement& element);
  void retire(CopyChain& chain);
  void send_ready();
  bool send_oldest();
  void ask(CopyChain& chain);
  void remove_empty_chains();

  Worker& worker_;
  CopyNotices notices_;
  GateWords gate_words_;
  std::vector<ChainPointer> chains_;  // of streams that have such copies
  // Copies that the client may name: fetches, meetings, and deliveries that hold their stream.
  std::unordered_map<uint64_t, std::shared_ptr<OrderedCopy>> named_;
  std::unordered_map<uint16_t, std::vector<CUevent>> events_;  // unused ones, by context
  uint64_t staged_bytes_ = 0;
  uint64_t next_number_ = 0;
  size_t to_send_ = 0;  // elements
  bool flushing_ = false;
};

}  // namespace fargpu::server
