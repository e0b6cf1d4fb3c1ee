// What of a fat binary is sent to which GPUs.
#include "client/image/usable_part.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/fatbin/fatbin.h"
#include "tests/sim_driver/fatbin_builder.h"

namespace fargpu::client {
namespace {

constexpr uint16_t kPtx = 1, kCubin = 2, kOther = 8;
constexpr size_t kLarge = 100 << 10;

std::string code(char letter) { return std::string(kLarge, letter); }

sim::FatbinBuilder library() {
  sim::FatbinBuilder builder;
  builder.add(kCubin, 75, code('a')).add(kCubin, 80, code('b')).add(kCubin, 86, code('c'));
  builder.add(kCubin, 90, code('d')).add(kCubin, 100, code('e')).add(kCubin, 120, code('f'));
  return builder.add(kPtx, 80, code('p')).add(kPtx, 120, code('q'));
}

std::vector<std::byte> joined(const UsablePart& part) {
  std::vector<std::byte> whole;
  for (const auto& piece : part.bytes) whole.insert(whole.end(), piece.begin(), piece.end());
  return whole;
}

// The first letter of each entry's contents.
std::string entries_of(const std::vector<std::byte>& container) {
  const auto entries = read_fatbin(container);
  EXPECT_TRUE(entries.ok());
  std::string letters;
  if (entries.ok())
    for (const FatbinEntry& entry : *entries) letters += static_cast<char>(entry.payload.front());
  return letters;
}

std::string usable_by(const std::vector<int>& capabilities, const sim::FatbinBuilder& image) {
  const auto container = image.container();
  return entries_of(joined(usable_part(container, capabilities)));
}

TEST(UsablePart, CodeOfTheGpusMajorVersionUpToItsMinorAndPtxUpToIt) {
  EXPECT_EQ(usable_by({75}, library()), "a");
  EXPECT_EQ(usable_by({80}, library()), "bp");
  EXPECT_EQ(usable_by({86}, library()), "bcp");
  EXPECT_EQ(usable_by({89}, library()), "bcp");
  EXPECT_EQ(usable_by({90}, library()), "dp");
  EXPECT_EQ(usable_by({103}, library()), "ep");
  EXPECT_EQ(usable_by({121}, library()), "fpq");
}

TEST(UsablePart, MovesWithItsHeaderAndIsNotCopied) {
  static_assert(!std::is_copy_constructible_v<UsablePart> &&
                !std::is_copy_assignable_v<UsablePart>);
  const auto container = library().container();
  const std::vector<int> capabilities{90};
  UsablePart part = usable_part(container, capabilities);
  const auto whole = joined(part);
  UsablePart moved(std::move(part));
  UsablePart assigned;
  assigned = std::move(moved);
  EXPECT_EQ(assigned.bytes.front().data(), assigned.header.data());
  EXPECT_EQ(joined(assigned), whole);
}

TEST(UsablePart, OfAllTheGpusOfAServer) {
  EXPECT_EQ(usable_by({90, 90}, library()), "dp");
  EXPECT_EQ(usable_by({75, 100}, library()), "aep");
}

TEST(UsablePart, WhatIsForLinkersStays) {
  sim::FatbinBuilder image = library();
  image.add(kOther, 75, code('n'));
  EXPECT_EQ(usable_by({90}, image), "dpn");
}

TEST(UsablePart, EntriesStayAsTheyAreUnderTheSameHeader) {
  const auto whole = library().container();
  const auto part = joined(usable_part(whole, std::vector<int>{100}));
  const auto of_whole = read_fatbin(whole), of_part = read_fatbin(part);
  ASSERT_TRUE(of_whole.ok() && of_part.ok());
  ASSERT_EQ(of_part->size(), 2u);
  EXPECT_TRUE(std::ranges::equal(of_part->at(0).whole, of_whole->at(4).whole));
  EXPECT_TRUE(std::ranges::equal(of_part->at(1).whole, of_whole->at(6).whole));
  EXPECT_TRUE(std::equal(part.begin(), part.begin() + 8, whole.begin()));
  EXPECT_EQ(*fatbin_size(part), part.size());
}

// How the driver refuses, or what it compiles, is for it to say of the whole image.
TEST(UsablePart, NothingIsLeftOutWhereAGpuHasNoMachineCode) {
  const auto whole = library().container();
  EXPECT_TRUE(usable_part(whole, std::vector<int>{110}).bytes.empty());
  EXPECT_TRUE(usable_part(whole, std::vector<int>{90, 110}).bytes.empty());
  EXPECT_TRUE(usable_part(whole, std::vector<int>{70}).bytes.empty()) << "below the minor version";
  EXPECT_TRUE(usable_part(whole, std::vector<int>{}).bytes.empty());
  EXPECT_TRUE(usable_part(whole, std::vector<int>{0}).bytes.empty())
      << "a server that does not say";
}

TEST(UsablePart, NothingIsLeftOutWhereItWouldGainNothing) {
  EXPECT_TRUE(
      usable_part(sim::FatbinBuilder().add(kCubin, 90, code('a')).container(), std::vector<int>{90})
          .bytes.empty());
  const auto small = sim::FatbinBuilder().add(kCubin, 90, code('a')).add(kCubin, 80, "b");
  EXPECT_TRUE(usable_part(small.container(), std::vector<int>{90}).bytes.empty());
}

TEST(UsablePart, WhatIsNoContainerOrADamagedOneIsLeftAlone) {
  const std::string ptx = ".version 7.5\n.target sm_80\n" + code('\n');
  EXPECT_TRUE(usable_part(std::as_bytes(std::span(ptx)), std::vector<int>{90}).bytes.empty());
  auto cut = library().container();
  cut.resize(cut.size() - kLarge);
  EXPECT_TRUE(usable_part(cut, std::vector<int>{90}).bytes.empty());
  EXPECT_TRUE(usable_part({}, std::vector<int>{90}).bytes.empty());
}

}  // namespace
}  // namespace fargpu::client
