#include "server/core/printing_code.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <string>
#include <thread>
#include <utility>

#include "tests/sim_driver/fatbin_builder.h"

namespace fargpu::server {
namespace {

using sim::FatbinBuilder;
using sim::Packing;

constexpr auto kPtx = static_cast<uint16_t>(EntryKind::kPtx);
constexpr auto kCubin = static_cast<uint16_t>(EntryKind::kCubin);
const std::string kQuiet = ".version 8.0\n.entry quiet() { ret; }\n";
const std::string kPrints = ".version 8.0\n.extern .func vprintf\n.entry prints() { ret; }\n";
const std::string kQuietCubin = std::string("\x7f") + "ELF" + std::string(100, '\0');
const std::string kPrintingCubin = kQuietCubin + "vprintf" + std::string(100, '\0');

bool prints(std::span<const std::byte> image) {
  static const std::atomic<bool> stop{false};
  return may_print(image, stop);
}
bool prints(const std::string& image) { return prints(std::as_bytes(std::span(image))); }

TEST(MayPrint, CodeByItself) {
  EXPECT_FALSE(prints(kQuiet));
  EXPECT_TRUE(prints(kPrints));
  EXPECT_FALSE(prints(kQuietCubin));
  EXPECT_TRUE(prints(kPrintingCubin));
  EXPECT_TRUE(prints("something else"));
  EXPECT_TRUE(prints(""));
}

TEST(MayPrint, EachEntryOfAContainer) {
  for (const Packing packing : {Packing::kNone, Packing::kLz4, Packing::kZstd}) {
    FatbinBuilder quiet;
    quiet.add(kPtx, 90, kQuiet, packing).add(kCubin, 90, kQuietCubin, packing);
    EXPECT_FALSE(prints(quiet.container()));
    EXPECT_TRUE(prints(FatbinBuilder(quiet).add(kPtx, 75, kPrints, packing).container()));
    EXPECT_TRUE(prints(FatbinBuilder(quiet).add(kCubin, 75, kPrintingCubin, packing).container()));
  }
}

TEST(MayPrint, WhatCannotBeRead) {
  constexpr uint16_t kLto = 16;
  FatbinBuilder unknown;
  unknown.add(kPtx, 90, kQuiet).add(kLto, 90, "intermediate code");
  EXPECT_TRUE(prints(unknown.container()));
  FatbinBuilder packed;
  packed.add(kPtx, 90, kQuiet + std::string(1000, ' '), Packing::kZstd);
  auto damaged = packed.container();
  damaged[16 + 64 + 4] ^= std::byte{0xff};
  EXPECT_TRUE(prints(damaged));
  auto cut = packed.container();
  cut.resize(cut.size() - 8);
  EXPECT_TRUE(prints(cut));
  EXPECT_TRUE(prints(FatbinBuilder().add(kPtx, 90, "neither text nor cubin").container()));
  auto vast = packed.container();
  FatbinBuilder::put(vast, 16 + 56, uint64_t{1} << 40);
  EXPECT_TRUE(prints(vast));
  auto behind = packed.container();
  const auto more = std::as_bytes(std::span(kPrints));
  behind.insert(behind.end(), more.begin(), more.end());
  EXPECT_TRUE(prints(behind));
}

bool eventually_quiet(const PrintingCode& code) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (code.may_print() && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return !code.may_print();
}

TEST(PrintingCode, AnImageCountsUntilItWasLookedThrough) {
  PrintingCode code;
  EXPECT_FALSE(code.may_print());
  // The first one holds up the thread when its owner goes.
  std::promise<void> go_on;
  std::shared_ptr<const void> holding(nullptr,
                                      [&go_on](const void*) { go_on.get_future().wait(); });
  code.loads(std::as_bytes(std::span(kQuiet)), std::move(holding));
  EXPECT_TRUE(eventually_quiet(code));
  code.loads(std::as_bytes(std::span(kQuiet)), nullptr);
  EXPECT_TRUE(code.may_print());
  go_on.set_value();
  EXPECT_TRUE(eventually_quiet(code));
}

TEST(PrintingCode, OneThatPrintsCountsForGood) {
  PrintingCode code;
  code.loads(std::as_bytes(std::span(kPrints)), nullptr);
  code.loads(std::as_bytes(std::span(kQuiet)), nullptr);
  std::promise<void> gone;
  code.loads(std::as_bytes(std::span(kQuiet)),
             std::shared_ptr<const void>(nullptr, [&gone](const void*) { gone.set_value(); }));
  gone.get_future().wait();
  EXPECT_TRUE(code.may_print());
}

}  // namespace
}  // namespace fargpu::server
