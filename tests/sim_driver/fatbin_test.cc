#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>

#include "common/fatbin/contents.h"
#include "sim/fatbin/image.h"
#include "sim/fatbin/linked_image.h"
#include "tests/sim_driver/fatbin_builder.h"

namespace fargpu::sim {
namespace {

constexpr uint16_t kPtx = 1, kCubin = 2;

std::string text_for(uint32_t arch) {
  return ".version 7.5\n.target sm_" + std::to_string(arch) + "\n" + std::string(500, '/') + "\n";
}

Result<std::string> select(const std::vector<std::byte>& container, int capability) {
  auto entries = read_fatbin(container);
  if (!entries) return entries.status();
  return select_ptx(*entries, capability);
}

// Reads from an exact heap copy, so that a sanitizer sees every byte too far.
Status read_all(const std::vector<std::byte>& container) {
  const auto copy = std::make_unique<std::byte[]>(container.size());
  std::copy(container.begin(), container.end(), copy.get());
  auto entries = read_fatbin({copy.get(), container.size()});
  if (!entries) return entries.status();
  for (const FatbinEntry& entry : *entries) {
    if (auto contents = entry_contents(entry); !contents) return contents.status();
  }
  return Status();
}

TEST(FatbinTest, PicksTheHighestPtxThatTheDeviceCanRun) {
  const auto container = FatbinBuilder()
                             .add(kCubin, 90, "machine code")
                             .add(kPtx, 75, text_for(75))
                             .add(kPtx, 86, text_for(86), Packing::kZstd)
                             .add(kPtx, 80, text_for(80), Packing::kLz4)
                             .add(kPtx, 100, text_for(100))
                             .container();
  EXPECT_EQ(*select(container, 75), text_for(75));
  EXPECT_EQ(*select(container, 80), text_for(80));
  EXPECT_EQ(*select(container, 90), text_for(86));
  EXPECT_EQ(*select(container, 120), text_for(100));
}

TEST(FatbinTest, SaysWhatThereIsWhenNothingFits) {
  const auto container = FatbinBuilder().add(kCubin, 90, "x").add(kPtx, 100, "y").container();
  const auto chosen = select(container, 90);
  ASSERT_FALSE(chosen.ok());
  EXPECT_EQ(chosen.status().code(), StatusCode::kNotFound);
  EXPECT_NE(chosen.status().message().find("cubin sm_90, PTX sm_100"), std::string::npos);
}

TEST(FatbinTest, EveryTruncationIsAnError) {
  const auto container = FatbinBuilder()
                             .add(kPtx, 75, text_for(75), Packing::kZstd)
                             .add(kPtx, 80, text_for(80), Packing::kLz4)
                             .container();
  ASSERT_TRUE(read_all(container).ok());
  for (size_t length = 0; length < container.size(); ++length) {
    EXPECT_FALSE(
        read_all({container.begin(), container.begin() + static_cast<std::ptrdiff_t>(length)}).ok())
        << length;
  }
}

TEST(FatbinTest, WrongSizesAreErrors) {
  const auto good = FatbinBuilder().add(kPtx, 75, text_for(75), Packing::kZstd).container();
  const auto with = [&](size_t at, auto value) {
    auto bad = good;
    FatbinBuilder::put(bad, at, value);
    return read_all(bad);
  };
  EXPECT_FALSE(with(0, uint32_t{1}).ok());  // magic
  EXPECT_FALSE(with(6, uint16_t{8}).ok());  // container header
  EXPECT_FALSE(with(8, UINT64_MAX).ok());   // container size
  EXPECT_FALSE(with(8, static_cast<uint64_t>(good.size())).ok());
  EXPECT_FALSE(with(16 + 4, uint32_t{0}).ok());  // entry header
  EXPECT_FALSE(with(16 + 4, UINT32_MAX).ok());
  EXPECT_FALSE(with(16 + 8, UINT64_MAX).ok());   // payload
  EXPECT_FALSE(with(16 + 16, UINT32_MAX).ok());  // compressed size
  EXPECT_FALSE(with(16 + 56, UINT64_MAX).ok());  // uncompressed size
  EXPECT_FALSE(with(16 + 56, uint64_t{1} << 29).ok());
  EXPECT_FALSE(with(16 + 56, uint64_t{3}).ok());
  EXPECT_FALSE(with(16 + 40, uint64_t{0x2000}).ok());  // zstd data called LZ4
}

TEST(FatbinTest, RandomDamageNeverReadsOutside) {
  const auto good = FatbinBuilder()
                        .add(kPtx, 75, text_for(75), Packing::kZstd)
                        .add(kPtx, 80, text_for(80), Packing::kLz4)
                        .add(kCubin, 90, std::string(100, 'c'))
                        .container();
  std::mt19937 random(11);
  int errors = 0;
  for (int round = 0; round < 3000; ++round) {
    auto bad = good;
    for (int change = 0; change < 1 + round % 4; ++change) {
      bad[random() % bad.size()] = static_cast<std::byte>(random());
    }
    errors += !read_all(bad).ok();
  }
  EXPECT_GT(errors, 100);
}

TEST(ImageTest, ReadsEveryKindBehindAPointer) {
  const auto container = FatbinBuilder().add(kPtx, 75, text_for(75), Packing::kZstd).container();
  const auto second = FatbinBuilder().add(kPtx, 80, text_for(80)).container();
  FatbinWrapper wrapper;
  wrapper.data = container.data();
  EXPECT_EQ(read_image(container.data(), 90)->at(0), text_for(75));
  EXPECT_EQ(read_image(&wrapper, 90)->at(0), text_for(75));
  EXPECT_EQ(read_image(text_for(75).c_str(), 90)->at(0), text_for(75));
}

TEST(ImageTest, TakesTheContainersOfTheObjectsWhereTheLinkedOneHasNothingForTheGpu) {
  const auto first = FatbinBuilder().add(kPtx, 75, text_for(75)).container();
  const auto second = FatbinBuilder().add(kPtx, 80, text_for(80)).container();
  const auto machine_code = FatbinBuilder().add(kCubin, 75, "code").container();
  const void* prelinked[] = {first.data(), machine_code.data(), second.data(), nullptr};
  FatbinWrapper wrapper;
  wrapper.version = 2;
  wrapper.prelinked = prelinked;
  const auto linked = FatbinBuilder().add(kPtx, 90, text_for(90)).container();
  wrapper.data = linked.data();
  EXPECT_EQ(*read_image(&wrapper, 90), std::vector<std::string>{text_for(90)});
  EXPECT_EQ(*read_image(&wrapper, 89), (std::vector<std::string>{text_for(75), text_for(80)}));
  const auto empty = FatbinBuilder().container();
  wrapper.data = empty.data();
  EXPECT_EQ(*read_image(&wrapper, 90), (std::vector<std::string>{text_for(75), text_for(80)}));
  EXPECT_FALSE(read_image(&wrapper, 70).ok());
}

TEST(ImageTest, RefusesMachineCodeAndNonsense) {
  const char elf[64] = "\177ELF\2\1\1";
  EXPECT_EQ(read_image(elf, 90).status().code(), StatusCode::kNotFound);
  for (const char* text : {"", "a", "abc", "abcd", "no PTX here"}) {
    // An exact copy: nothing behind the NUL may be looked at.
    const size_t bytes = std::strlen(text) + 1;
    const auto copy = std::make_unique<char[]>(bytes);
    std::memcpy(copy.get(), text, bytes);
    EXPECT_EQ(read_image(copy.get(), 90).status().code(), StatusCode::kInvalidArgument) << text;
  }
  FatbinWrapper empty;
  EXPECT_FALSE(read_image(&empty, 90).ok());
}

TEST(LinkedImageTest, RoundTripAndDamage) {
  const std::vector<std::string> texts = {"first", "", "third text"};
  const auto image = pack_linked_image(texts);
  EXPECT_EQ(*read_linked_image(image), texts);
  EXPECT_EQ(*read_image(image.data(), 90), texts);
  for (size_t length = 0; length < image.size(); ++length) {
    const auto copy = std::make_unique<std::byte[]>(length);
    std::copy_n(image.begin(), length, copy.get());
    EXPECT_FALSE(read_linked_image({copy.get(), length}).ok()) << length;
  }
  auto bad = image;
  constexpr size_t kNumberOfTextsAt = 124, kFirstLengthAt = 128;
  FatbinBuilder::put(bad, kNumberOfTextsAt, uint32_t{4});
  EXPECT_FALSE(read_linked_image(bad).ok());
  bad = image;
  FatbinBuilder::put(bad, kFirstLengthAt, UINT64_MAX);
  EXPECT_FALSE(read_linked_image(bad).ok());
}

}  // namespace
}  // namespace fargpu::sim
