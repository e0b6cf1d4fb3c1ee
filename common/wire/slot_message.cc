#include "common/wire/slot_message.h"

#include <kj/debug.h>

#include <algorithm>
#include <cstring>

namespace fargpu::wire {
namespace {

constexpr int kNestingLimit = 8;

capnp::ReaderOptions limits_for(size_t body_bytes) {
  capnp::ReaderOptions options;
  options.traversalLimitInWords = (4 * body_bytes + 1024) / sizeof(capnp::word);
  options.nestingLimit = kNestingLimit;
  return options;
}

}  // namespace

SlotMessageBuilder::SlotMessageBuilder(std::span<std::byte> slot) : slot_(slot) {}

kj::ArrayPtr<capnp::word> SlotMessageBuilder::allocateSegment(unsigned int minimum_size) {
  const size_t words = slot_.size() / sizeof(capnp::word);
  if (given_ || minimum_size > words) {
    overflowed_ = true;
    KJ_FAIL_REQUIRE("message does not fit into its slot", slot_.size());
  }
  given_ = true;
  // All of it: capnp allocates objects in the segment unnoticed, and relies on zeros there.
  std::memset(slot_.data(), 0, words * sizeof(capnp::word));
  return kj::arrayPtr(reinterpret_cast<capnp::word*>(slot_.data()), words);
}

size_t SlotMessageBuilder::used_bytes() {
  if (!given_) return 0;
  return getSegmentsForOutput()[0].size() * sizeof(capnp::word);
}

SegmentReader::SegmentReader(std::span<const std::byte> body)
    : capnp::MessageReader(limits_for(body.size())), body_(body) {}

kj::ArrayPtr<const capnp::word> SegmentReader::getSegment(unsigned int id) {
  if (id != 0) return nullptr;
  return kj::arrayPtr(reinterpret_cast<const capnp::word*>(body_.data()),
                      body_.size() / sizeof(capnp::word));
}

}  // namespace fargpu::wire
