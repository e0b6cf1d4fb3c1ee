#include "server/copy/ordered_copies.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "common/wire/control.h"
#include "server/copy/copy_rows.h"
#include "server/copy/direct_copy.h"
#include "server/copy/remote_staging.h"
#include "server/memory/memory_account.h"
#include "server/stream/stream_events.h"

namespace fargpu::server {
namespace {

constexpr size_t kMostEarly = 4096;  // the client has fewer such copies at a time
constexpr auto kLongestUntold = std::chrono::microseconds(500);  // beside nothing else

// The legacy stream has two names.
uint64_t stream_key(uint64_t stream_id) { return stream_id == 0 ? 1 : stream_id; }

}  // namespace

OrderedCopies::OrderedCopies(const Core& core, StreamHolds& holds, StagingPool& staging,
                             RemoteStaging& remote_staging, MemoryAccount& memory,
                             uint64_t max_bulk_bytes)
    : core_(core),
      staging_(staging),
      remote_staging_(remote_staging),
      memory_(memory),
      notices_(core, remote_staging, max_bulk_bytes),
      gate_words_(core.driver, holds) {}

void OrderedCopies::close() {
  for (const ChainPointer& chain : chains_) chain->open_all_gates();
}

CopyChain& OrderedCopies::chain_of(const Order& order) {
  const uint64_t key = stream_key(order.stream_id);
  for (const ChainPointer& chain : chains_) {
    if (chain->context == order.context && chain->stream_id == key && !chain->detached)
      return *chain;
  }
  auto chain = std::make_unique<CopyChain>();
  chain->context = order.context;
  chain->stream_id = key;
  chains_.push_back(std::move(chain));
  return *chains_.back();
}

CUresult OrderedCopies::record(uint16_t context, CUstream stream, CUevent* event) {
  return core_.events.record(context, stream, event);
}

void OrderedCopies::release(uint16_t context, CUevent event) {
  if (event != nullptr) core_.events.give_back(context, event);
}

CUresult OrderedCopies::take_block(CopyChain& chain, bool may_reuse, CopyElement* element) {
  if (may_reuse && staged_bytes_ + element->bytes > kStagingBytes &&
      chain.share_block(element->bytes, element))
    return CUDA_SUCCESS;
  // Pinned also where the copy engine only reads: from other memory a driver takes the bytes when
  // the copy is submitted.
  Result<StagingBlock> acquired =
      staging_.acquire(element->bytes, StagingUse::kFromDevice, chain.context);
  if (!acquired.ok()) return CUDA_ERROR_OUT_OF_MEMORY;
  element->block = std::make_shared<StagingBlock>(std::move(*acquired));
  staged_bytes_ += element->block->whole().size();
  chain.use(element->block);
  return CUDA_SUCCESS;
}

CUresult OrderedCopies::add_gate(CopyChain& chain, CopyElement* element, CUstream stream) {
  if (chain.word == nullptr) {
    if (const CUresult result = gate_words_.take(chain.context, &chain.word);
        result != CUDA_SUCCESS) {
      return result;
    }
  }
  const CUresult result = chain.word->add(core_.driver, stream);
  element->gated = result == CUDA_SUCCESS;
  return result;
}

CUresult OrderedCopies::add_pieces(CopyChain& chain, const std::shared_ptr<OrderedCopy>& copy,
                                   const Order& order, bool may_gate) {
  const uint64_t limit = copy::following_piece_bytes(copy->bytes, copy->is_written());
  return for_each_piece(order.copy.shape, limit, [&](const copy::Piece& piece) {
    return add_piece(chain, copy, order, piece, may_gate);
  });
}

CUresult OrderedCopies::add_piece(CopyChain& chain, const std::shared_ptr<OrderedCopy>& copy,
                                  const Order& order, const copy::Piece& piece, bool may_gate) {
  CopyElement element;
  element.kind = copy->fetch ? CopyElement::Kind::kFetch : CopyElement::Kind::kDelivery;
  element.copy = copy;
  element.offset = piece.offset;
  element.bytes = piece.bytes;
  element.number = next_number_++;
  CUresult result = take_block(chain, may_gate, &element);
  if (result != CUDA_SUCCESS) return result;
  if (copy->fetch && !element.block->pinned()) result = CUDA_ERROR_OUT_OF_MEMORY;
  if (copy->is_written()) {
    // A block that the adapter cannot use goes in frames.
    auto registered = remote_staging_.registration(*element.block);
    element.registered = registered.ok() ? *registered : nullptr;
  }
  if (result == CUDA_SUCCESS && copy->fetch && !copy->reached && piece.offset == 0)
    result = record(chain.context, order.stream, &element.start);
  if (result == CUDA_SUCCESS && (copy->fetch || element.block_free_at > chain.first))
    result = add_gate(chain, &element, order.stream);
  if (result == CUDA_SUCCESS) {
    const auto block = reinterpret_cast<uint64_t>(element.block->bytes().data());
    result = copy_rows(core_.driver, piece.shape, order.copy.device().part(piece),
                       copy::dense(block, piece.shape), copy->fetch, order.stream);
  }
  // The engine may use the block although a slice was refused: the element stays for its sake.
  return add_element(chain, std::move(element), order.stream, result);
}

CUresult OrderedCopies::add_element(CopyChain& chain, CopyElement element, CUstream stream,
                                    CUresult result) {
  const CUresult recorded = record(chain.context, stream, &element.done);
  if (result == CUDA_SUCCESS) result = recorded;
  element.result = result;
  element.to_send = element.kind == CopyElement::Kind::kDelivery;
  if (element.to_send) ++to_send_;
  chain.elements.push_back(std::move(element));
  return result;
}

// By the adapter alone, in the stream, as far as it reaches the device's side.
bool OrderedCopies::add_direct(CopyChain& chain, const std::shared_ptr<OrderedCopy>& copy,
                               const Order& order, CUresult* result) {
  if (!copy->is_written() || !start_direct(core_.driver, memory_, order.copy, order.stream, result))
    return false;
  CopyElement element;
  element.copy = copy;
  element.bytes = copy->bytes;
  element.number = next_number_++;
  *result = add_element(chain, std::move(element), order.stream, *result);
  return true;
}

std::shared_ptr<OrderedCopy> OrderedCopies::begin(const Order& order) {
  auto copy = std::make_shared<OrderedCopy>();
  copy->id = order.id;
  copy->bytes = order.bytes();
  copy->fetch = order.copy.to_device();
  copy->target = order.copy.host();
  // Nothing that its stream does has to come first.
  copy->reached = order.copy.completion.hold == copy::Hold::kSourceStands;
  return copy;
}

CUresult OrderedCopies::deliver(const Order& order) {
  const auto copy = begin(order);
  const copy::Hold hold = order.copy.completion.hold;
  CopyChain& chain = chain_of(order);
  CUresult result = CUDA_SUCCESS;
  if (!add_direct(chain, copy, order, &result))
    result = add_pieces(chain, copy, order, hold != copy::Hold::kNever);
  if (result == CUDA_SUCCESS && hold == copy::Hold::kUntilDelivered) {
    CopyElement end;
    end.kind = CopyElement::Kind::kAcknowledgement;
    end.copy = copy;
    result = add_gate(chain, &end, order.stream);
    if (result == CUDA_SUCCESS) {
      chain.elements.push_back(std::move(end));
      named_.emplace(order.id, copy);
    }
  }
  if (result != CUDA_SUCCESS) drop(*copy, result);
  remove_empty_chains();
  return result;
}

CUresult OrderedCopies::fetch(const Order& order) {
  const auto copy = begin(order);
  named_.emplace(order.id, copy);
  CopyChain& chain = chain_of(order);
  const CUresult result = add_pieces(chain, copy, order, true);
  if (result != CUDA_SUCCESS) drop(*copy, result);
  remove_empty_chains();
  return result;
}

CUresult OrderedCopies::amended(const Order& order, std::span<const std::byte> bytes) {
  const auto copy = begin(order);
  copy->dropped = true;  // its end is the only notice
  CopyChain& chain = chain_of(order);
  CopyElement element;
  element.kind = CopyElement::Kind::kAmended;
  element.copy = copy;
  element.bytes = bytes.size();
  CUresult result = take_block(chain, /*may_reuse=*/false, &element);
  if (result == CUDA_SUCCESS && !element.block->pinned()) result = CUDA_ERROR_OUT_OF_MEMORY;
  if (result == CUDA_SUCCESS) {
    const auto changed = early_.extract(order.id);
    const auto now = changed.empty() ? bytes : std::span<const std::byte>(changed.mapped());
    const std::span<std::byte> block = element.block->bytes();
    if (now.size() == block.size()) std::memcpy(block.data(), now.data(), now.size());
    amended_.emplace(order.id, element.block);
    const auto from = copy::dense(reinterpret_cast<uint64_t>(block.data()), order.copy.shape);
    result =
        copy_rows(core_.driver, order.copy.shape, order.copy.device(), from, true, order.stream);
    // The engine may use the block although a slice was refused.
    result = add_element(chain, std::move(element), order.stream, result);
  } else {
    end_amended(order.id);
  }
  remove_empty_chains();
  return result;
}

void OrderedCopies::end_amended(uint64_t id) {
  amended_.erase(id);
  if (passed_.empty()) passed_at_ = transport::Clock::now();
  passed_.push_back(static_cast<uint32_t>(id));
}

void OrderedCopies::tell_passed() {
  for (const uint32_t id : passed_) (void)core_.responder.notice(wire::kPassed, id);
  passed_.clear();
}

CUresult OrderedCopies::barrier(const Order& order) {
  const auto copy = begin(order);
  named_.emplace(order.id, copy);
  CopyChain& chain = chain_of(order);
  CopyElement element;
  element.kind = CopyElement::Kind::kAcknowledgement;
  element.copy = copy;
  CUresult result = record(order.context, order.stream, &element.start);
  if (result == CUDA_SUCCESS) result = add_gate(chain, &element, order.stream);
  if (result == CUDA_SUCCESS) {
    chain.elements.push_back(std::move(element));
  } else {
    release(order.context, element.start);
    drop(*copy, result);
  }
  remove_empty_chains();
  return result;
}

void OrderedCopies::refuse(const Order& order, CUresult result) {
  const auto copy = begin(order);
  if (copy->fetch) named_.emplace(order.id, copy);
  drop(*copy, result);
}

void OrderedCopies::drop(OrderedCopy& copy, CUresult result) {
  if (std::exchange(copy.dropped, true)) return;
  if (copy.fetch) asked_.drop(copy.id);
  // What the client has all bytes of may still be acknowledged.
  if (copy.is_barrier() ? !copy.reached : !copy.fetch && copy.sent < copy.bytes)
    named_.erase(copy.id);
  notices_.over(copy, result);
}

Status OrderedCopies::delivered(uint64_t id) {
  const auto found = named_.find(id);
  if (found == named_.end() || found->second->fetch || found->second->sent < found->second->bytes ||
      (found->second->is_barrier() && !found->second->reached)) {
    return Status(StatusCode::kProtocol, "fgDelivered: no such copy");
  }
  found->second->acknowledged = true;
  named_.erase(found);
  return Status();
}

Result<std::span<std::byte>> OrderedCopies::target(uint64_t id, uint64_t offset, uint64_t bytes) {
  const auto found = named_.find(id);
  if (found == named_.end() || !found->second->fetch)
    return Status(StatusCode::kProtocol, "fgFetched: no such copy");
  return asked_.place(id, offset, bytes);
}

Status OrderedCopies::fetched(uint64_t id, uint64_t offset, uint64_t bytes) {
  const auto found = named_.find(id);
  if (found == named_.end() || !found->second->fetch)
    return Status(StatusCode::kProtocol, "fgFetched: no such copy");
  OrderedCopy& copy = *found->second;
  if (bytes == 0) {
    if (!copy.dropped || copy.asked == copy.bytes || copy.received < copy.asked)
      return Status(StatusCode::kProtocol, "fgFetched: no bytes");
    named_.erase(found);
    return Status();
  }
  if (offset != copy.received || bytes > copy.asked - copy.received)
    return Status(StatusCode::kProtocol, "fgFetched: these bytes were not asked for");
  copy.received += bytes;
  asked_.came(id, bytes);
  if (copy.received == copy.bytes) named_.erase(found);
  return Status();
}

Status OrderedCopies::amend(uint64_t id, std::span<const std::byte> bytes) {
  const auto found = amended_.find(id);
  if (found == amended_.end()) {
    if (!calls_wait_) return Status();
    if (bytes.size() > copy::kMostAmended || (early_.size() == kMostEarly && !early_.contains(id)))
      return Status(StatusCode::kProtocol, "fgAmend: too many bytes");
    early_[id].assign(bytes.begin(), bytes.end());
    return Status();
  }
  const std::span<std::byte> block = found->second->bytes();
  if (bytes.size() != block.size())
    return Status(StatusCode::kProtocol, "fgAmend: not the bytes of the copy");
  std::memcpy(block.data(), bytes.data(), bytes.size());
  return Status();
}

Status OrderedCopies::landed(uint64_t id, uint64_t offset, uint64_t bytes) {
  const auto found = named_.find(id);
  const auto copy = found == named_.end() ? nullptr : found->second;
  FARGPU_RETURN_IF_ERROR(fetched(id, offset, bytes));
  if (bytes == 0) return Status();
  if (copy->received == copy->bytes) landed_.push_back(copy);
  open_gates();
  return Status();
}

void OrderedCopies::open_gates() {
  if (!may_open_) return;
  for (const ChainPointer& chain : chains_) chain->open_gates();
  // Only now: the client may do at once what must not meet a stream that is held.
  for (const auto& copy : landed_) notices_.landed(*copy);
  landed_.clear();
}

bool OrderedCopies::is_done(CopyChain& chain, CopyElement& element) {
  if (element.kind == CopyElement::Kind::kAcknowledgement)
    return element.copy->acknowledged || element.copy->dropped;
  if (element.done == nullptr) return true;  // it could not be recorded
  CUresult result = CUDA_ERROR_INVALID_CONTEXT;
  if (core_.contexts.find(chain.context) != nullptr)
    result = core_.driver.cuEventQuery(element.done);
  if (result == CUDA_ERROR_NOT_READY) return false;
  // What is behind a gate that is shut can have failed only.
  const bool is_shut = element.gated && chain.next_gate <= chain.ready;
  if (is_shut && result == CUDA_SUCCESS) return false;
  if (element.result == CUDA_SUCCESS) element.result = result;
  return true;
}

// Until a look finds nothing new: what came before something that is done is done itself, but may
// have been looked at earlier.
bool OrderedCopies::look() {
  bool any = false, found = false;
  do {
    found = false;
    for (const ChainPointer& chain : chains_) {
      while (chain->ready < chain->end() && is_done(*chain, chain->at(chain->ready))) {
        ++chain->ready;
        found = true;
      }
    }
    any |= found;
  } while (found);
  return any;
}

// Takes away the oldest elements that are done, sent, and no longer read.
void OrderedCopies::retire(CopyChain& chain) {
  while (chain.first < chain.ready && !chain.elements.front().to_send) {
    const CopyElement& element = chain.elements.front();
    if (notices_.is_being_read(element) || (!may_open_ && chain.front_is_shut())) break;
    if (element.result != CUDA_SUCCESS) drop(*element.copy, element.result);
    end_amended(element);
    release(chain.context, element.start);
    release(chain.context, element.done);
    chain.pop();
  }
  staged_bytes_ -= chain.free_blocks();
}

// Of all deliveries that are done the one that was submitted first: what the GPU did before it has
// been sent.
bool OrderedCopies::send_oldest() {
  CopyChain* chain = nullptr;
  CopyElement* oldest = nullptr;
  for (const ChainPointer& other : chains_) {
    retire(*other);
    CopyElement* const element = other->next_to_send();
    if (element == nullptr || (oldest != nullptr && oldest->number < element->number)) continue;
    chain = other.get();
    oldest = element;
  }
  if (oldest == nullptr) return false;
  oldest->to_send = false;
  --to_send_;
  if (!oldest->copy->dropped) {
    if (oldest->result == CUDA_SUCCESS) oldest->result = notices_.deliver(*oldest);
    if (oldest->result != CUDA_SUCCESS) drop(*oldest->copy, oldest->result);
  }
  retire(*chain);
  return true;
}

void OrderedCopies::ask(CopyChain& chain) {
  while (chain.next_ask < chain.end()) {
    CopyElement& element = chain.at(chain.next_ask);
    OrderedCopy& copy = *element.copy;
    if ((element.kind != CopyElement::Kind::kFetch && !copy.is_barrier()) || copy.dropped) {
      ++chain.next_ask;
      continue;
    }
    if (element.block_free_at > chain.first) return;
    if (!copy.reached) {
      const CUresult result = core_.driver.cuEventQuery(element.start);
      if (result == CUDA_ERROR_NOT_READY) return;
      if (result == CUDA_SUCCESS) {
        copy.reached = true;
        send_ready();  // bytes that came before it in its stream may be what it takes
      } else {
        drop(copy, result);
      }
      continue;  // with what the chain is now
    }
    if (!copy.is_barrier()) asked_.ask(copy.id, element.offset, element.bytes, element.block);
    notices_.ask(element);
    ++chain.next_ask;
  }
}

void OrderedCopies::remove_empty_chains() {
  std::erase_if(chains_, [this](const ChainPointer& chain) {
    if (!chain->elements.empty()) return false;
    staged_bytes_ -= chain->block_bytes();
    if (chain->word != nullptr) gate_words_.give_back(chain->context, chain->word);
    return true;
  });
}

size_t OrderedCopies::poll() {
  if (!outstanding() || flushing_) return 0;
  flushing_ = true;
  size_t moved = look() ? 1 : 0;
  if (send_oldest()) ++moved;
  for (const ChainPointer& chain : chains_) ask(*chain);
  open_gates();
  remove_empty_chains();
  if (!passed_.empty() && transport::Clock::now() - passed_at_ >= kLongestUntold) tell_passed();
  flushing_ = false;
  return moved;
}

void OrderedCopies::flush() {
  if ((to_send_ == 0 && passed_.empty()) || flushing_) return;
  flushing_ = true;
  if (to_send_ != 0) send_ready();
  tell_passed();
  flushing_ = false;
}

void OrderedCopies::send_ready() {
  look();
  while (send_oldest()) {
  }
}

void OrderedCopies::stream_ended(const ObjectEnd& end) {
  for (const ChainPointer& chain : chains_) {
    if (chain->stream_id == stream_key(end.id)) chain->detached = true;
  }
}

void OrderedCopies::context_ended(ContextEnd& end) {
  const uint16_t context = end.id;
  flush();
  flushing_ = true;  // what is said below must not look at the chains
  std::erase_if(chains_, [&](const ChainPointer& chain) {
    if (chain->context != context) return false;
    for (CopyElement& element : chain->elements) {
      if (element.to_send) --to_send_;
      notices_.keep(element);
      drop(*element.copy, CUDA_ERROR_CONTEXT_IS_DESTROYED);
      end_amended(element);
      release(context, element.start);
      release(context, element.done);
    }
    chain->open_all_gates();
    staged_bytes_ -= chain->block_bytes();
    return true;
  });
  flushing_ = false;
  for (void* const page : gate_words_.take_pages(context))
    end.withdrawals.push_back([&driver = core_.driver, page] { driver.cuMemFreeHost(page); });
}

}  // namespace fargpu::server
