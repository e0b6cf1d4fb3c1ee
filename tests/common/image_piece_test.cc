// Packed pieces of images: there and back, and everything that is not one whole frame of the
// announced size.
#include "common/wire/image_piece.h"

#include <gtest/gtest.h>
#include <zstd.h>

#include <cstring>
#include <random>
#include <string>

namespace fargpu::wire {
namespace {

using Bytes = std::vector<std::byte>;

Bytes text_of(size_t size) {
  Bytes bytes(size);
  for (size_t i = 0; i < size; ++i)
    bytes[i] = static_cast<std::byte>("mov.u32 %r1, %tid.x;\n"[(i * i / 7 + i) % 21]);
  return bytes;
}

Bytes noise_of(size_t size) {
  std::mt19937 random(7);
  Bytes bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

Bytes packed(const Bytes& raw) {
  PiecePacker packer;
  const auto frame = packer.pack(raw);
  return Bytes(frame.begin(), frame.end());
}

// What came out, and how it ended.
struct Unpacked {
  Status status;
  Bytes bytes;
  size_t largest_part = 0;
};

Unpacked unpack(const Bytes& frame, uint64_t raw_bytes) {
  Unpacked result;
  result.status = unpack_piece(frame, raw_bytes, [&](std::span<const std::byte> part) {
    result.bytes.insert(result.bytes.end(), part.begin(), part.end());
    result.largest_part = std::max(result.largest_part, part.size());
    return Status();
  });
  return result;
}

TEST(ImagePiece, ThereAndBackInParts) {
  for (size_t size : {4096u, 131072u, 131073u, 5'000'001u}) {
    const Bytes raw = text_of(size), frame = packed(raw);
    ASSERT_FALSE(frame.empty());
    EXPECT_LT(frame.size(), raw.size() / 2);
    const Unpacked unpacked = unpack(frame, size);
    ASSERT_TRUE(unpacked.status.ok()) << unpacked.status.message();
    EXPECT_EQ(unpacked.bytes, raw);
    EXPECT_LE(unpacked.largest_part, 128u << 10);
  }
}

TEST(ImagePiece, OnePackerPacksMany) {
  PiecePacker packer;
  for (size_t size : {100'000u, 50'000u, 200'000u}) {
    const Bytes raw = text_of(size);
    const auto frame = packer.pack(raw);
    EXPECT_EQ(unpack(Bytes(frame.begin(), frame.end()), size).bytes, raw);
  }
}

TEST(ImagePiece, WhatDoesNotShrinkIsNotPacked) {
  EXPECT_TRUE(packed(noise_of(100'000)).empty());
  EXPECT_TRUE(packed({}).empty());
}

void expect_refused(const Bytes& frame, uint64_t raw_bytes, const char* what) {
  const Unpacked unpacked = unpack(frame, raw_bytes);
  EXPECT_EQ(unpacked.status.code(), StatusCode::kProtocol) << what;
  EXPECT_LE(unpacked.bytes.size(), raw_bytes) << what;
}

TEST(ImagePiece, AnotherSizeThanAnnouncedIsRefusedBeforeAnythingIsUnpacked) {
  const Bytes raw = text_of(300'000), frame = packed(raw);
  for (uint64_t size :
       {uint64_t{0}, uint64_t{1}, uint64_t{299'999}, uint64_t{300'001}, ~uint64_t{0}}) {
    const Unpacked unpacked = unpack(frame, size);
    EXPECT_EQ(unpacked.status.code(), StatusCode::kProtocol) << size;
    EXPECT_TRUE(unpacked.bytes.empty()) << size;
  }
}

// A small frame that stands for much.
TEST(ImagePiece, BombIsRefused) {
  const Bytes zeros(kMaxPackedPieceBytes + 1);
  Bytes bomb(ZSTD_compressBound(zeros.size()));
  bomb.resize(ZSTD_compress(bomb.data(), bomb.size(), zeros.data(), zeros.size(), 1));
  ASSERT_LT(bomb.size(), 100'000u);
  const Unpacked unpacked = unpack(bomb, zeros.size());
  EXPECT_EQ(unpacked.status.code(), StatusCode::kProtocol);
  EXPECT_TRUE(unpacked.bytes.empty());
}

// A frame as zstd makes it with one parameter that our packer never sets like this.
Bytes compressed_with(ZSTD_cParameter parameter, int value, const Bytes& raw) {
  Bytes frame(ZSTD_compressBound(raw.size()));
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, parameter, value);
  frame.resize(ZSTD_compress2(context, frame.data(), frame.size(), raw.data(), raw.size()));
  ZSTD_freeCCtx(context);
  return frame;
}

TEST(ImagePiece, FrameThatNamesNoSizeIsRefused) {
  const Bytes raw = text_of(100'000);
  expect_refused(compressed_with(ZSTD_c_contentSizeFlag, 0, raw), raw.size(), "no content size");
}

TEST(ImagePiece, WindowLargerThanWeKeepIsRefused) {
  const Bytes raw = noise_of(20 << 20);
  expect_refused(compressed_with(ZSTD_c_windowLog, 26, raw), raw.size(), "64 MiB of window");
}

TEST(ImagePiece, CutLongerOrDamagedFramesAreRefused) {
  const Bytes raw = text_of(300'000), frame = packed(raw);
  for (size_t size = 0; size < frame.size(); size += 1 + frame.size() / 50) {
    expect_refused(Bytes(frame.begin(), frame.begin() + static_cast<ptrdiff_t>(size)), raw.size(),
                   "cut");
  }
  Bytes longer = frame;
  longer.push_back(std::byte{0});
  expect_refused(longer, raw.size(), "one byte more");
  Bytes twice = frame;
  twice.insert(twice.end(), frame.begin(), frame.end());
  expect_refused(twice, raw.size(), "two frames");
  expect_refused(noise_of(1000), 1000, "no frame");
}

TEST(ImagePiece, TheSinksErrorEndsIt) {
  const Bytes raw = text_of(1'000'000), frame = packed(raw);
  int parts = 0;
  const Status status = unpack_piece(frame, raw.size(), [&](std::span<const std::byte>) {
    return ++parts == 2 ? Status(StatusCode::kNoCapacity, "full") : Status();
  });
  EXPECT_EQ(status.code(), StatusCode::kNoCapacity);
  EXPECT_EQ(parts, 2);
}

TEST(ImagePiece, SettingIsReadFromText) {
  EXPECT_EQ(*parse_compression(""), Compression::kAuto);
  EXPECT_EQ(*parse_compression("auto"), Compression::kAuto);
  EXPECT_EQ(*parse_compression("zstd"), Compression::kZstd);
  EXPECT_EQ(*parse_compression("none"), Compression::kNone);
  EXPECT_EQ(parse_compression("lz4").status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace fargpu::wire
