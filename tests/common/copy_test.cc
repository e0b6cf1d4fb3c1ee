#include "common/copy/copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "common/copy/limits.h"

namespace fargpu::copy {
namespace {

TEST(Shape, SpanIsJudged) {
  EXPECT_EQ(span_of({10, 1, 1}, {100, 0, 0}), 10u);
  EXPECT_EQ(span_of({10, 3, 1}, {100, 16, 0}), 42u);
  EXPECT_EQ(span_of({10, 3, 2}, {100, 16, 64}), 106u);
  EXPECT_EQ(span_of({0, 3, 2}, {100, 16, 64}), 0u);
  EXPECT_EQ(span_of({10, 2, 1}, {100, 9, 0}), 0u) << "rows overlap";
  EXPECT_EQ(span_of({10, 3, 1}, {100, UINT64_MAX / 2, 0}), 0u) << "the product is too large";
  EXPECT_EQ(span_of({1, 1, 3}, {100, 1, UINT64_MAX / 2}), 0u) << "the sum is too large";
  EXPECT_EQ(span_of({1u << 20, uint64_t{1} << 44, 1}, {0, 1u << 20, 0}), 0u) << "2^64 bytes";
  EXPECT_EQ(span_of({uint64_t{1} << 32, 1, uint64_t{1} << 32}, {0, 0, 0}), 0u)
      << "2^64 packed bytes, in slices that overlap";
  EXPECT_EQ(span_of({16, 1, 1}, {UINT64_MAX - 8, 0, 0}), 0u) << "over the end";
}

TEST(Part, EndsRowsAndSlicesWhereNothingIsSaid) {
  Rows rows;
  const Shape shape{16, 2, 2};
  ASSERT_TRUE(place({1000, 8, 1, 1, 0, 0}, shape, &rows));
  EXPECT_EQ(rows, (Rows{1000 + 72 + 24 + 8, 24, 72}));
  ASSERT_TRUE(place({1000, 8, 1, 0, 24, 3}, shape, &rows)) << "just long enough";
  EXPECT_EQ(rows, (Rows{1000 + 24 + 8, 24, 72}));
}

TEST(Part, IsRefusedWhereItDoesNotFit) {
  Rows rows;
  const Shape line{16, 1, 1};
  EXPECT_FALSE(place({1000, 1, 0, 0, 16, 0}, line, &rows)) << "a short pitch";
  EXPECT_FALSE(place({1000, 0, 1, 0, 16, 1}, line, &rows)) << "a short height";
  EXPECT_FALSE(place({1000, UINT64_MAX, 0, 0, 0, 0}, line, &rows));
  EXPECT_FALSE(place({1000, 0, UINT64_MAX, 0, 0, 0}, line, &rows));
  EXPECT_FALSE(place({1000, 0, 0, uint64_t{1} << 60, 16, 1}, line, &rows)) << "2^64 bytes on";
  EXPECT_FALSE(place({UINT64_MAX - 10, 16, 0, 0, 0, 0}, line, &rows));
  EXPECT_TRUE(place({1000, UINT64_MAX, UINT64_MAX, 9, 4, 1}, {16, 0, 1}, &rows))
      << "nothing to fit";
}

TEST(Shape, SlicesOfWholeRowsAreKnown) {
  EXPECT_EQ(rows_per_slice({10, 3, 1}, {0, 16, 1}), 3u) << "one slice has no pitch";
  EXPECT_EQ(rows_per_slice({10, 3, 2}, {0, 16, 64}), 4u);
  EXPECT_EQ(rows_per_slice({10, 3, 2}, {0, 16, 65}), 0u);
  EXPECT_EQ(rows_per_slice({10, 3, 2}, {0, 0, 64}), 0u);
  EXPECT_TRUE(has_whole_slices({10, 3, 2}, {0, 16, 48}));
  EXPECT_FALSE(has_whole_slices({10, 3, 2}, {0, 16, 32})) << "slices overlap";
}

// The address of each packed byte, by the shape itself and by its pieces.
std::vector<uint64_t> addresses(const Shape& shape, const Rows& rows) {
  std::vector<uint64_t> all;
  for (uint64_t z = 0; z < shape.depth; ++z)
    for (uint64_t y = 0; y < shape.height; ++y)
      for (uint64_t x = 0; x < shape.width; ++x) all.push_back(rows.at(x, y, z).address);
  return all;
}

struct Case {
  Shape shape;
  Rows rows;
};
const Case kCases[] = {{{100, 1, 1}, {0x1000, 0, 0}},   {{10, 7, 1}, {0x1000, 16, 0}},
                       {{10, 7, 3}, {0x1000, 10, 70}},  {{9, 5, 4}, {0x1000, 12, 100}},
                       {{1, 30, 2}, {0x1000, 12, 400}}, {{40, 1, 5}, {0x1000, 64, 64}}};

TEST(Pieces, FollowEachOtherAndCoverTheShapeWhateverTheLimit) {
  for (const Case& each : kCases) {
    const Shape& shape = each.shape;
    const Rows& rows = each.rows;
    const std::vector<uint64_t> expected = addresses(shape, rows);
    for (uint64_t limit = 1; limit <= expected.size() + 1; ++limit) {
      std::vector<uint64_t> covered;
      for_each_piece(shape, limit, [&](const Piece& piece) {
        EXPECT_EQ(piece.offset, covered.size());
        EXPECT_LE(piece.bytes, limit);
        const std::vector<uint64_t> part = addresses(piece.shape, piece.of(rows));
        EXPECT_EQ(part.size(), piece.bytes);
        covered.insert(covered.end(), part.begin(), part.end());
        return covered.size() > expected.size();  // a defect must not run for ever
      });
      ASSERT_EQ(covered, expected) << "at most " << limit;
    }
  }
}

TEST(Pieces, AreAsLargeAsTheyMayBe) {
  const Shape shape{10, 5, 4};
  EXPECT_EQ(piece_at(shape, 0, 1000).bytes, 200u);
  EXPECT_EQ(piece_at(shape, 0, 120).bytes, 100u) << "two slices";
  EXPECT_EQ(piece_at(shape, 0, 49).bytes, 40u) << "four rows";
  EXPECT_EQ(piece_at(shape, 40, 49).bytes, 10u) << "the rest of the slice";
  EXPECT_EQ(piece_at(shape, 0, 7).bytes, 7u);
  EXPECT_EQ(piece_at(shape, 7, 7).bytes, 3u) << "the rest of the row";
}

TEST(Pieces, AreCountedBeforeTheyAreMade) {
  for (const Case& each : kCases) {
    for (uint64_t limit = 1; limit <= each.shape.bytes() + 1; ++limit) {
      uint64_t made = 0;
      for_each_piece(each.shape, limit, [&](const Piece&) { return ++made > 10'000 ? 1 : 0; });
      ASSERT_EQ(count_pieces(each.shape, limit), made) << "at most " << limit;
    }
  }
  EXPECT_EQ(count_pieces({(2u << 20) + 1, 31, 1}, kPieceBytes), 31u) << "a row each";
}

TEST(Pieces, MayChangeTheirSizeOnTheWay) {
  std::vector<uint64_t> sizes;
  uint64_t limit = 40;
  const auto next = [&limit] { return limit; };
  for_each_piece_up_to({100, 1, 1}, next, [&](const Piece& piece) {
    EXPECT_EQ(piece.offset, piece.x);
    sizes.push_back(piece.bytes);
    limit = sizes.size() == 1 ? 10 : 45;
    return 0;
  });
  EXPECT_EQ(sizes, (std::vector<uint64_t>{40, 10, 45, 5}));
}

TEST(Pieces, EndWithTheFirstFailure) {
  int visits = 0;
  EXPECT_EQ(for_each_piece({10, 1, 1}, 3, [&](const Piece&) { return ++visits == 2 ? 7 : 0; }), 7);
  EXPECT_EQ(visits, 2);
}

TEST(Rows, AreVisitedFromAnywhere) {
  for (const Case& each : kCases) {
    const Shape& shape = each.shape;
    const Rows& rows = each.rows;
    const std::vector<uint64_t> expected = addresses(shape, rows);
    for (size_t begin = 0; begin <= expected.size(); begin += 3) {
      std::vector<uint64_t> seen;
      for_each_row(shape, rows, begin, expected.size() - begin, [&](uint64_t at, uint64_t bytes) {
        for (uint64_t i = 0; i < bytes; ++i) seen.push_back(at + i);
      });
      EXPECT_EQ(seen, std::vector<uint64_t>(expected.begin() + begin, expected.end()));
    }
  }
}

const char* pass(const Copy& copy, Copy* out) {
  const Words words = encode(copy);
  return decode({static_cast<const std::byte*>(words.data()), words.bytes()}, out);
}

TEST(Copy, ArrivesAsItWasSent) {
  const Rows device{0x7000, 64, 640}, host{0x9000, 48, 480};
  const Shape shape{48, 5, 3};
  const transport::RemoteKey key{0xabc000, uint64_t{1} << 40, 0xffffffff};
  const Copy copies[] = {
      {Location::frame(), Location::device(device), shape, {}, Order::kReturned},
      {Location::device(device), Location::frame(), shape, {Completion::Kind::kReply}},
      {Location::shared(host),
       Location::device(device),
       shape,
       {Completion::Kind::kWord, Hold::kNever, 5, 0xa000},
       Order::kLaterWork},
      {Location::device(device),
       Location::in(key, uint64_t{1} << 39),
       shape,
       {Completion::Kind::kFollow, Hold::kUntilDelivered, 77, 0}},
      {Location::frame(), Location::device(device), shape, {Completion::Kind::kAmended, {}, 77, 0}},
      {Location::frame(), Location::in_array({9, 16, 2, 5}), shape, {}, Order::kLaterWork},
      {Location::in_array({9, 0, 0, 1}), Location::frame(), shape, {Completion::Kind::kReply}},
      {Location::in_array({9, 16, 0, 0}), Location::in(key, 4096), shape, {}},
      {Location::device(host), Location::in_array({9, 16, 2, 5}), shape, {}},
      {Location::in_array({7, 1, 2, 3}), Location::device(device), shape, {}},
      {Location::frame(), Location::device(device), shape, {}, Order::kOwnStream},
      {Location::in_array({7, 1, 2, 3}), Location::in_array({9, 16, 2, 5}), shape, {}},
  };
  for (const Copy& sent : copies) {
    Copy got;
    ASSERT_EQ(pass(sent, &got), nullptr);
    EXPECT_EQ(got.from.kind, sent.from.kind);
    EXPECT_EQ(got.to.kind, sent.to.kind);
    EXPECT_EQ(got.shape, sent.shape);
    EXPECT_EQ(got.device().rows, sent.device().rows);
    EXPECT_EQ(got.host().rows, sent.host().rows);
    EXPECT_EQ(got.from.position, sent.from.position);
    EXPECT_EQ(got.to.position, sent.to.position);
    EXPECT_EQ(got.host().offset, sent.host().offset);
    EXPECT_EQ(got.host().remote.address, sent.host().remote.address);
    EXPECT_EQ(got.host().remote.bytes, sent.host().remote.bytes);
    EXPECT_EQ(got.host().remote.key, sent.host().remote.key);
    EXPECT_EQ(got.completion.kind, sent.completion.kind);
    EXPECT_EQ(got.completion.hold, sent.completion.hold);
    EXPECT_EQ(got.completion.number, sent.completion.number);
    EXPECT_EQ(got.completion.word, sent.completion.word);
    EXPECT_EQ(got.order, sent.order);
  }
}

TEST(Copy, ALineIsASmallMessage) {
  const Copy line{Location::frame(), Location::device({0x7000, 0, 0}), {100, 1, 1}, {}};
  EXPECT_LE(encode(line).bytes(), 5 * sizeof(uint64_t));
}

TEST(Copy, WhatIsNotPossibleIsRefused) {
  const Copy right{Location::frame(), Location::device({0x7000, 64, 640}), {48, 5, 3}, {}};
  Copy out;
  ASSERT_EQ(pass(right, &out), nullptr);
  const auto refused = [&](auto&& change) {
    Copy wrong = right;
    change(wrong);
    return pass(wrong, &out) != nullptr;
  };
  EXPECT_TRUE(refused([](Copy& c) { c.shape.width = 0; })) << "empty";
  EXPECT_TRUE(refused([](Copy& c) { c.to.rows.pitch = 47; })) << "rows overlap";
  EXPECT_TRUE(refused([](Copy& c) { c.to.rows.address = UINT64_MAX - 100; })) << "over the end";
  EXPECT_TRUE(refused([](Copy& c) { c.from = c.to; })) << "two device ends";
  EXPECT_TRUE(refused([](Copy& c) { c.to = Location::frame(); })) << "no device end";
  EXPECT_TRUE(refused([](Copy& c) { c.completion.hold = Hold::kForStaging; }))
      << "a hold without following the stream";
  EXPECT_TRUE(refused([](Copy& c) {
    std::swap(c.from, c.to);
    c.order = Order::kLaterWork;
  })) << "an order of a copy to the host";
  EXPECT_TRUE(refused([](Copy& c) {
    c.to = Location::in_array({9, UINT64_MAX - 10, 0, 0});
  })) << "an array's row without an end";
  EXPECT_TRUE(refused([](Copy& c) {
    c.to = Location::in_array({9});
    c.shape = {UINT64_MAX, 3, 3};
  })) << "more than there can be";
  EXPECT_TRUE(refused([](Copy& c) { c.completion.number = 1; })) << "a number for nothing";
  EXPECT_TRUE(refused([](Copy& c) { c.completion.word = 8; })) << "a word that nobody sets";
}

// They may mean something to a later release.
TEST(Copy, WordsThatItHasNoUseForAreRefused) {
  const auto device = Location::device({0x7000, 64, 640});
  const Copy copies[] = {
      {Location::frame(), device, {48, 5, 3}, {}},
      {Location::shared({0x9000, 48, 480}), device, {48, 5, 3}, {}},
      {device, Location::in({0xabc000, 1u << 20, 7}, 0), {48, 5, 3}, {}},
      {Location::frame(), Location::in_array({9, 16, 2, 5}), {48, 5, 3}, {}},
      {Location::in_array({9, 16, 2, 5}), device, {48, 5, 3}, {}},
  };
  const std::vector<size_t> unused[] = {{5, 6, 7, 10, 11, 12, 13, 14, 15, 16, 17},
                                        {5, 7, 12, 13, 14, 15, 16, 17},
                                        {5, 6, 7, 10, 11, 16, 17},
                                        {5, 6, 7, 10, 11, 12, 13, 14, 15, 17},
                                        {5, 7, 12, 13, 14, 15, 16}};
  Copy out;
  for (size_t i = 0; i < std::size(copies); ++i) {
    Words words = encode(copies[i]);
    std::fill(words.words.begin() + words.count, words.words.end(), 0);
    words.count = Words::kMost;
    const auto pass_on = [&out](const Words& changed) {
      return decode({static_cast<const std::byte*>(changed.data()), changed.bytes()}, &out);
    };
    ASSERT_EQ(pass_on(words), nullptr);
    for (const size_t at : unused[i]) {
      Words changed = words;
      changed.words[at] = 1;
      EXPECT_NE(pass_on(changed), nullptr) << "copy " << i << ", word " << at;
    }
    words.words[15] |= uint64_t{1} << 32;
    EXPECT_NE(pass_on(words), nullptr) << "a key of more than 32 bits";
  }
}

TEST(Copy, WordsOfAnotherFormAreRefused) {
  Words words = encode({Location::frame(), Location::device({0x7000, 0, 0}), {100, 1, 1}, {}});
  const auto* const bytes = reinterpret_cast<std::byte*>(words.words.data());
  Copy out;
  ASSERT_EQ(decode({bytes, words.bytes()}, &out), nullptr);
  EXPECT_NE(decode({}, &out), nullptr);
  EXPECT_NE(decode({bytes, words.bytes() - 1}, &out), nullptr) << "no whole words";
  const std::vector<std::byte> long_one((Words::kMost + 1) * sizeof(uint64_t));
  EXPECT_NE(decode(long_one, &out), nullptr);
  for (size_t at = 0; at < sizeof(uint64_t); ++at) {
    Words wrong = words;
    auto* const changed = reinterpret_cast<std::byte*>(wrong.words.data());
    changed[at] = std::byte{9};
    EXPECT_NE(decode({changed, wrong.bytes()}, &out), nullptr) << "byte " << at << " of the head";
  }
}

}  // namespace
}  // namespace fargpu::copy
