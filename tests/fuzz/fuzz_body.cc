// A body that a peer wrote: read through SegmentReader, once by the schema and once by whatever its
// pointers claim. Either it can be read, or a kj::Exception says why not; the work is bounded in
// both cases.
#include <capnp/any.h>
#include <test_messages.capnp.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "common/wire/slot_message.h"

namespace {

using namespace fargpu;

unsigned sum = 0;  // so that reading is not optimised away
size_t visits = 0;

void walk(capnp::AnyPointer::Reader pointer) {
  ++visits;
  if (pointer.isStruct()) {
    auto any = pointer.getAs<capnp::AnyStruct>();
    for (kj::byte byte : any.getDataSection()) sum += byte;
    for (auto child : any.getPointerSection()) walk(child);
  } else if (pointer.isList()) {
    auto list = pointer.getAs<capnp::AnyList>();
    if (list.getElementSize() == capnp::ElementSize::POINTER) {
      for (auto child : list.as<capnp::List<capnp::AnyPointer>>()) walk(child);
    } else if (list.getElementSize() == capnp::ElementSize::INLINE_COMPOSITE) {
      for (auto element : list.as<capnp::List<capnp::AnyStruct>>()) {
        ++visits;
        for (auto child : element.getPointerSection()) walk(child);
      }
    } else if (list.getElementSize() != capnp::ElementSize::VOID) {
      for (kj::byte byte : list.getRawBytes()) sum += byte;
    }
  }
}

void walk(test::Tree::Reader tree) {
  ++visits;
  for (char c : tree.getLabel()) sum += static_cast<unsigned>(c);
  for (auto child : tree.getChildren()) walk(child);
}

template <typename Read>
void attempt(std::span<const std::byte> body, Read read) {
  visits = 0;
  try {
    wire::SegmentReader reader(body);
    read(reader);
  } catch (const kj::Exception&) {
  }
  // Every visit of an object costs at least a word of the traversal limit.
  if (visits > 4 * body.size() + 1024) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<uint64_t> words(size / 8);
  if (!words.empty()) std::memcpy(words.data(), data, 8 * words.size());
  const auto body = std::as_bytes(std::span(words));
  attempt(body, [](wire::SegmentReader& reader) { walk(reader.getRoot<test::Tree>()); });
  attempt(body, [](wire::SegmentReader& reader) {
    for (kj::byte byte : reader.getRoot<test::Blob>().getData()) sum += byte;
  });
  attempt(body, [](wire::SegmentReader& reader) { walk(reader.getRoot<capnp::AnyPointer>()); });
  return 0;
}
