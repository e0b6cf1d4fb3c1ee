#include "common/host/shared_page.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <utility>

namespace fargpu {
namespace {

SharedPage made(SharedPage::Access of_others = SharedPage::Access::kReadAndWrite) {
  auto page = SharedPage::create("fargpu-test", 100, of_others);
  EXPECT_TRUE(page.ok()) << page.status().message();
  return std::move(*page);
}

Fd copy_of(const SharedPage& page) { return Fd(::dup(page.descriptor())); }

TEST(SharedPage, BothEndsSeeOneMemoryThatBeginsAsZero) {
  const SharedPage here = made();
  auto there = SharedPage::open(copy_of(here), 100);
  ASSERT_TRUE(there.ok()) << there.status().message();
  EXPECT_EQ(there->data()[99], std::byte{0});
  here.data()[99] = std::byte{7};
  EXPECT_EQ(there->data()[99], std::byte{7});
}

// Whoever touches memory behind the end of a file dies of SIGBUS.
TEST(SharedPage, NobodyCanChangeItsSize) {
  const SharedPage page = made();
  EXPECT_NE(::ftruncate(page.descriptor(), 0), 0);
  EXPECT_NE(::ftruncate(page.descriptor(), 1 << 20), 0);
}

TEST(SharedPage, WhatIsTooSmallOrNotSealedIsRefused) {
  const SharedPage page = made();
  EXPECT_EQ(SharedPage::open(copy_of(page), 1 << 20).status().code(), StatusCode::kProtocol);
  Fd open_ended(::memfd_create("fargpu-test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(open_ended.get(), 4096), 0);
  EXPECT_EQ(SharedPage::open(std::move(open_ended), 100).status().code(), StatusCode::kProtocol);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const Fd other(ends[1]);
  EXPECT_FALSE(SharedPage::open(Fd(ends[0]), 100).ok());
}

TEST(SharedPage, TheOtherEndOnlyReadsWhereThatWasSaid) {
  const SharedPage here = made(SharedPage::Access::kRead);
  const Fd descriptor = copy_of(here);
  EXPECT_FALSE(SharedPage::open(copy_of(here), 100).ok());
  EXPECT_LT(::pwrite(descriptor.get(), "x", 1, 0), 0);
  auto there = SharedPage::open(copy_of(here), 100, SharedPage::Access::kRead);
  ASSERT_TRUE(there.ok()) << there.status().message();
  here.data()[3] = std::byte{5};
  EXPECT_EQ(there->data()[3], std::byte{5});
}

TEST(SharedPage, TheMappingMovesAndOutlivesTheDescriptor) {
  SharedPage first = made();
  first.data()[0] = std::byte{1};
  first.close_descriptor();
  EXPECT_EQ(first.descriptor(), -1);
  SharedPage second = std::move(first);
  EXPECT_EQ(second.data()[0], std::byte{1});
  second = made();
  EXPECT_EQ(second.data()[0], std::byte{0});
}

}  // namespace
}  // namespace fargpu
