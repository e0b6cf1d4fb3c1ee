// Builds a message in a slot of exactly its bound, reads it back, and reads every truncation of it.
#pragma once

#include <capnp/message.h>
#include <gtest/gtest.h>
#include <kj/exception.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "common/wire/slot_message.h"
#include "schema/support/sizes.h"

namespace fargpu::wiretest {

// What data(i) and text(i) take in a segment: 13 bytes each, text with its terminator.
inline constexpr size_t kDataBytes = schema::padded(13);
inline constexpr size_t kTextBytes = schema::padded(14);

inline capnp::Text::Reader text(int i) {
  static const std::vector<std::string> texts = [] {
    std::vector<std::string> made;
    for (int k = 0; k < 64; ++k) made.push_back("pattern-" + std::to_string(10000 + k));
    return made;
  }();
  return capnp::Text::Reader(texts.at(i).c_str(), texts.at(i).size());
}
inline capnp::Data::Reader data(int i) {
  const capnp::Text::Reader t = text(i);
  return capnp::Data::Reader(reinterpret_cast<const kj::byte*>(t.begin()), t.size());
}
inline capnp::Data::Reader bytes_of(const std::string& s) {
  return capnp::Data::Reader(reinterpret_cast<const kj::byte*>(s.data()), s.size());
}

// The body of a T; it must fill its bound exactly: fixed part and `extra` bytes of Data and Text.
template <typename T, typename Fill>
std::vector<std::byte> build(size_t extra, Fill fill) {
  // One guard word behind the slot shows writes past the bound.
  std::vector<std::byte> memory(schema::fixed_bytes<T>() + extra + 8, std::byte{0xEE});
  const std::span<std::byte> slot(memory.data(), memory.size() - 8);
  {
    wire::SlotMessageBuilder builder(slot);
    fill(builder.initRoot<T>());
    EXPECT_EQ(builder.used_bytes(), slot.size());
  }
  for (size_t i = slot.size(); i < memory.size(); ++i) EXPECT_EQ(memory[i], std::byte{0xEE});
  memory.resize(slot.size());
  return memory;
}

// fill(Builder) writes every field, check(Reader) compares every field, touch(Reader) only reads
// them.
template <typename T, typename Fill, typename Check, typename Touch>
void roundtrip(size_t extra, Fill fill, Check check, Touch touch) {
  const std::vector<std::byte> body = build<T>(extra, fill);
  wire::SegmentReader whole(body);
  check(whole.getRoot<T>());
  for (size_t bytes = 0; bytes < body.size(); bytes += 8) {
    // A copy of exactly the truncated size: a read past its end is seen by the address sanitizer.
    const std::vector<std::byte> part(body.begin(),
                                      body.begin() + static_cast<std::ptrdiff_t>(bytes));
    bool refused = false;
    try {
      wire::SegmentReader reader(part);
      touch(reader.getRoot<T>());
    } catch (const kj::Exception&) {
      refused = true;
    }
    EXPECT_TRUE(refused) << "truncated to " << bytes << " of " << body.size() << " bytes";
  }
}

}  // namespace fargpu::wiretest
