#include "server/copy/copy_chain.h"

#include <algorithm>

namespace fargpu::server {
namespace {

bool may_open(const CopyElement& element, uint64_t first) {
  const OrderedCopy& copy = *element.copy;
  switch (element.kind) {
    case CopyElement::Kind::kDelivery:  // also of a copy that is over: the GPU writes the block
      return element.block_free_at <= first;
    case CopyElement::Kind::kFetch:
      return copy.dropped || copy.received >= element.offset + element.bytes;
    case CopyElement::Kind::kAcknowledgement:
      return copy.dropped || copy.acknowledged;
    case CopyElement::Kind::kAmended:  // has none
      break;
  }
  return true;
}

}  // namespace

bool CopyChain::share_block(uint64_t bytes, CopyElement* element) {
  const auto found = std::find_if(blocks.begin(), blocks.end(), [bytes](const Used& used) {
    return used.block->whole().size() >= bytes;
  });
  if (found == blocks.end()) return false;
  element->block = found->block;
  element->block_free_at = found->free_at;
  blocks.erase(found);
  use(element->block);
  return true;
}

CopyElement* CopyChain::next_to_send() {
  next_send = std::max(next_send, first);
  while (next_send < ready && !at(next_send).to_send) ++next_send;
  return next_send < ready ? &at(next_send) : nullptr;
}

void CopyChain::pop() {
  if (front_is_shut()) word->open();
  elements.pop_front();
  ++first;
  next_gate = std::max(next_gate, first);
  next_ask = std::max(next_ask, first);
}

uint64_t CopyChain::free_blocks() {
  uint64_t bytes = 0;
  while (!blocks.empty() && blocks.front().free_at <= first) {
    bytes += blocks.front().block->whole().size();
    blocks.pop_front();
  }
  return bytes;
}

uint64_t CopyChain::block_bytes() const {
  uint64_t bytes = 0;
  for (const Used& used : blocks) bytes += used.block->whole().size();
  return bytes;
}

void CopyChain::open_gates() {
  for (; next_gate < end(); ++next_gate) {
    const CopyElement& element = at(next_gate);
    if (!element.gated) continue;
    if (!may_open(element, first)) return;
    word->open();
  }
}

void CopyChain::open_all_gates() {
  while (word != nullptr && !word->all_open()) word->open();
}

}  // namespace fargpu::server
