// The worker's mirrors of host memory: which addresses they get, what of a page is whose, and that
// nothing of the client's is believed.
#include "server/memory/host_pages.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "generated/server/driver_table.h"

namespace fargpu::server {
namespace {

constexpr size_t kPage = 4096;
constexpr uint16_t kContext = 1, kOtherContext = 300;

std::map<void*, size_t>& registered() {
  static std::map<void*, size_t> memory;
  return memory;
}
bool refuse_registration, knows_read_only;
unsigned registered_flags;

class HostPagesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    registered().clear();
    refuse_registration = false;
    knows_read_only = true;
    driver_.cuMemHostRegister_v2 = [](void* memory, size_t bytes, unsigned flags) {
      if (refuse_registration) return CUDA_ERROR_OUT_OF_MEMORY;
      if ((flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0 && !knows_read_only)
        return CUDA_ERROR_NOT_SUPPORTED;
      registered_flags = flags;
      return registered().emplace(memory, bytes).second ? CUDA_SUCCESS
                                                        : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    };
    driver_.cuMemHostUnregister = [](void* memory) {
      return registered().erase(memory) != 0 ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    };
    driver_.cuMemHostGetDevicePointer_v2 = [](CUdeviceptr* device, void* host, unsigned) {
      *device = reinterpret_cast<CUdeviceptr>(host);
      return CUDA_SUCCESS;
    };
    void* hole = ::mmap(nullptr, 64 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ::munmap(hole, 64 * kPage);
    address_ = reinterpret_cast<uint64_t>(hole);
  }

  CUresult map(uint64_t address, uint64_t bytes, uint16_t context = kContext, unsigned flags = 0) {
    CUdeviceptr device = 0;
    const CUresult result = pages_.map(address, bytes, context, flags, &device);
    if (result == CUDA_SUCCESS) {
      EXPECT_EQ(device, address);
    }
    return result;
  }
  // As the worker does it: the withdrawal comes later, on another thread.
  CUresult unmap(uint64_t address) {
    std::vector<uint64_t> leaving;
    const CUresult result = pages_.unmap(address, &leaving);
    finish(leaving);
    return result;
  }
  void finish(const std::vector<uint64_t>& leaving) {
    for (const uint64_t block : leaving) EXPECT_EQ(pages_.withdraw(block), CUDA_SUCCESS);
    pages_.left(leaving);
  }
  CUresult push(uint64_t address, std::byte value) {
    pages::RunWriter runs(100);
    runs.add(address, std::span(&value, 1));
    return pages_.push({runs.bytes()});
  }
  // address -> byte of what device code changed.
  std::map<uint64_t, std::byte> fetch() {
    std::map<uint64_t, std::byte> changed;
    uint64_t next = 0;
    do {
      pages::RunWriter runs(pages::RunWriter::kSmallestLimit);
      next = pages_.fetch(next, runs);
      pages::RunReader reader(runs.bytes());
      while (const auto run = reader.next()) {
        for (size_t i = 0; i < run->data.size(); ++i) changed[run->address + i] = run->data[i];
      }
    } while (next != 0);
    return changed;
  }
  static std::byte& at(uint64_t address) { return *reinterpret_cast<std::byte*>(address); }
  bool is_free(uint64_t address) {
    return ::msync(reinterpret_cast<void*>(address), kPage, MS_ASYNC) != 0;
  }

  DriverTable driver_{};
  static constexpr uint64_t kBudget = uint64_t{16} << 30;
  HostBudgetPointer budget_ = std::make_shared<HostBudget>(kBudget);
  HostPages pages_{driver_, budget_};
  uint64_t address_ = 0;
};

TEST_F(HostPagesTest, ReadOnlyIsReadOnlyForTheDeviceWhereTheDriverKnowsIt) {
  constexpr unsigned kReadOnly = CU_MEMHOSTREGISTER_READ_ONLY;
  ASSERT_EQ(map(address_, kPage, kContext, kReadOnly | 0x80), CUDA_SUCCESS);
  EXPECT_EQ(registered_flags,
            kReadOnly | CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
  ASSERT_EQ(push(address_, std::byte{7}), CUDA_SUCCESS);
  knows_read_only = false;
  ASSERT_EQ(map(address_ + kPage, kPage, kContext, kReadOnly), CUDA_SUCCESS);
  EXPECT_EQ(registered_flags, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
}

TEST_F(HostPagesTest, BytesGoBothWays) {
  ASSERT_EQ(map(address_ + 5, 3 * kPage), CUDA_SUCCESS);
  EXPECT_EQ(push(address_ + 5, std::byte{1}), CUDA_SUCCESS);
  EXPECT_EQ(at(address_ + 5), std::byte{1});
  EXPECT_EQ(pages_.pushes(), 1u);
  EXPECT_TRUE(fetch().empty());
  at(address_ + 6) = std::byte{2};
  at(address_ + 5 + 3 * kPage - 1) = std::byte{3};
  at(address_) = std::byte{4};  // beside the region: never leaves
  const std::map<uint64_t, std::byte> expected{{address_ + 6, std::byte{2}},
                                               {address_ + 5 + 3 * kPage - 1, std::byte{3}}};
  EXPECT_EQ(fetch(), expected);
  EXPECT_TRUE(fetch().empty());
  EXPECT_EQ(unmap(address_ + 5), CUDA_SUCCESS);
  EXPECT_TRUE(registered().empty());
  EXPECT_TRUE(is_free(address_));
}

// Runs of one push are looks at the client's memory, one after the other.
TEST_F(HostPagesTest, ALaterRunChangesAByteBack) {
  ASSERT_EQ(map(address_, kPage), CUDA_SUCCESS);
  pages::RunWriter runs(200);
  const std::array<std::byte, 16> ones = {std::byte{1}, std::byte{1}, std::byte{1}}, zeros = {};
  for (const auto& bytes : {ones, zeros}) {
    runs.add(address_ + 2, std::span(bytes).first(3));
    runs.add(address_ + 64, bytes);
  }
  ASSERT_EQ(pages_.push({runs.bytes(), /*gaps=*/true}), CUDA_SUCCESS);
  for (const size_t offset : {2, 3, 4, 64, 65, 66}) EXPECT_EQ(at(address_ + offset), std::byte{0});
  EXPECT_TRUE(fetch().empty());
}

TEST_F(HostPagesTest, WhatDeviceCodeWroteInAGapStays) {
  ASSERT_EQ(map(address_, kPage), CUDA_SUCCESS);
  at(address_ + 9) = std::byte{5};
  pages::RunWriter runs(200);
  std::array<std::byte, 24> bytes = {};
  bytes[8] = bytes[17] = std::byte{1};
  runs.add(address_, bytes);
  ASSERT_EQ(pages_.push({runs.bytes(), /*gaps=*/true}), CUDA_SUCCESS);
  EXPECT_EQ(at(address_ + 8), std::byte{1});
  EXPECT_EQ(at(address_ + 17), std::byte{1});
  EXPECT_EQ(fetch(), (std::map<uint64_t, std::byte>{{address_ + 9, std::byte{5}}}));
}

// What lay in a buffer is in place when kMostBeside further pushes have returned, whatever they
// returned, and everything is before a fetch looks for changes.
TEST_F(HostPagesTest, PushesAreMadeInTurnBesideTheExecutor) {
  constexpr size_t kBytes = 60 * kPage;
  ASSERT_EQ(map(address_, kBytes), CUDA_SUCCESS);
  std::vector<std::byte> contents(kBytes);
  std::array<pages::RunWriter, HostPages::kMostBeside + 1> buffers = {
      pages::RunWriter(2 * kBytes), pages::RunWriter(2 * kBytes), pages::RunWriter(2 * kBytes)};
  for (unsigned i = 1; i <= 300; ++i) {
    pages::RunWriter& runs = buffers[i % buffers.size()];
    runs.clear();
    std::fill(contents.begin(), contents.end(), static_cast<std::byte>(i));
    const bool is_wrong = i % 7 == 0;
    runs.add(is_wrong ? address_ + kPage : address_, contents);
    EXPECT_EQ(pages_.push_beside({runs.bytes()}),
              is_wrong ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS);
    if (i % 5 != 0) continue;
    EXPECT_TRUE(fetch().empty()) << i;
    const auto last = static_cast<std::byte>(is_wrong ? i - 1 : i);
    EXPECT_TRUE(at(address_) == last && at(address_ + kBytes - 1) == last) << i;
  }
  ASSERT_EQ(push(address_ + 3, std::byte{77}), CUDA_SUCCESS);
  EXPECT_EQ(at(address_ + 3), std::byte{77});
  EXPECT_EQ(unmap(address_), CUDA_SUCCESS);
}

TEST_F(HostPagesTest, RegionsShareAPage) {
  ASSERT_EQ(map(address_ + 10, 100), CUDA_SUCCESS);
  ASSERT_EQ(pages_.reserve(address_ + 200, kPage), CUDA_SUCCESS);
  ASSERT_EQ(map(address_ + 200 + kPage, 10), CUDA_SUCCESS);
  at(address_ + 20) = std::byte{1};
  at(address_ + 300) = std::byte{2};  // only reserved yet
  ASSERT_EQ(map(address_ + 200, kPage), CUDA_SUCCESS);
  EXPECT_EQ(at(address_ + 300), std::byte{0});
  EXPECT_EQ(at(address_ + 20), std::byte{1});
  EXPECT_EQ(unmap(address_ + 10), CUDA_SUCCESS);
  EXPECT_FALSE(is_free(address_));
  at(address_ + 400) = std::byte{3};
  EXPECT_EQ(fetch().size(), 1u);
  // Comes again, and finds nothing of before.
  ASSERT_EQ(map(address_ + 10, 100), CUDA_SUCCESS);
  EXPECT_EQ(at(address_ + 20), std::byte{0});
  EXPECT_TRUE(fetch().empty());
  for (const uint64_t region : {10u, 200u, 200u + unsigned{kPage}})
    EXPECT_EQ(unmap(address_ + region), CUDA_SUCCESS);
  EXPECT_TRUE(registered().empty());
  EXPECT_TRUE(is_free(address_) && is_free(address_ + kPage));
}

// A driver refuses an operation that does not lie in one registration.
TEST_F(HostPagesTest, EachRegionIsOneRegistration) {
  const std::map<uint64_t, uint64_t> regions{
      {address_ + 16, 100}, {address_ + 200, 3000}, {address_ + 3300, 2 * kPage}};
  for (const auto& [address, bytes] : regions) ASSERT_EQ(map(address, bytes), CUDA_SUCCESS);
  ASSERT_EQ(registered().size(), regions.size());
  for (const auto& [memory, bytes] : registered())
    EXPECT_EQ(regions.at(reinterpret_cast<uint64_t>(memory)), bytes);
  for (const auto& [address, bytes] : regions) EXPECT_EQ(unmap(address), CUDA_SUCCESS);
  EXPECT_TRUE(registered().empty());
}

TEST_F(HostPagesTest, WhatThisProcessHasIsNotGivenAway) {
  int on_stack = 0;
  const auto taken = reinterpret_cast<uint64_t>(&on_stack);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  EXPECT_EQ(pages_.reserve(taken, 4), CUDA_ERROR_NOT_SUPPORTED);
#else
  EXPECT_EQ(pages_.reserve(taken, 4), CUDA_ERROR_ALREADY_MAPPED);
#endif
  EXPECT_EQ(map(taken, 4), CUDA_ERROR_ALREADY_MAPPED);
  // The last page of a range is taken: the others are free again.
  ASSERT_EQ(pages_.reserve(address_ + 2 * kPage, 1), CUDA_SUCCESS);
  void* const other = ::mmap(reinterpret_cast<void*>(address_ + 4 * kPage), kPage, PROT_READ,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  ASSERT_NE(other, MAP_FAILED);
  EXPECT_EQ(map(address_ + 1, 4 * kPage), CUDA_ERROR_INVALID_VALUE);  // overlaps the region
  EXPECT_EQ(map(address_ + 2 * kPage + 1, 2 * kPage), CUDA_ERROR_ALREADY_MAPPED);
  EXPECT_TRUE(is_free(address_ + 3 * kPage));
  EXPECT_FALSE(is_free(address_ + 2 * kPage));
  ::munmap(other, kPage);
  EXPECT_EQ(unmap(address_ + 2 * kPage), CUDA_SUCCESS);
  EXPECT_EQ(unmap(address_ + 2 * kPage), CUDA_ERROR_NOT_MAPPED);
}

TEST_F(HostPagesTest, WrongRangesAndRunsAreRefused) {
  for (const auto& [address, bytes] :
       std::initializer_list<std::pair<uint64_t, uint64_t>>{{0, 10},
                                                            {100, 10},
                                                            {address_, 0},
                                                            {address_, UINT64_MAX},
                                                            {uint64_t{1} << 47, 1},
                                                            {(uint64_t{1} << 47) - kPage, 10},
                                                            {UINT64_MAX - 5, 10}}) {
    EXPECT_EQ(pages_.reserve(address, bytes), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(map(address, bytes), CUDA_ERROR_INVALID_VALUE);
  }
  EXPECT_EQ(map(address_, kBudget / 2 + 1), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_TRUE(is_free(address_));
  ASSERT_EQ(map(address_ + 10, 10), CUDA_SUCCESS);
  ASSERT_EQ(pages_.reserve(address_ + 30, 10), CUDA_SUCCESS);
  for (const uint64_t address : {address_ + 9, address_ + 20, address_ + 30, uint64_t{0}})
    EXPECT_EQ(push(address, std::byte{1}), CUDA_ERROR_INVALID_VALUE);
  const std::byte rubbish[] = {std::byte{0xff}};
  EXPECT_EQ(pages_.push({rubbish}), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(pages_.fetch(UINT64_MAX, *std::make_unique<pages::RunWriter>(100)), 0u);
}

TEST_F(HostPagesTest, ARefusedRegistrationLeavesNothing) {
  refuse_registration = true;
  EXPECT_EQ(map(address_, kPage), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_TRUE(is_free(address_));
  ASSERT_EQ(pages_.reserve(address_, kPage), CUDA_SUCCESS);
  EXPECT_EQ(map(address_, kPage), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_FALSE(is_free(address_));
  EXPECT_EQ(budget_->used(), 0u);
  refuse_registration = false;
  EXPECT_EQ(map(address_, kPage), CUDA_SUCCESS);
  EXPECT_EQ(budget_->used(), 2 * kPage) << "the mirror, and the agreed contents";
}

TEST_F(HostPagesTest, BytesThatLeaveMustBeAwaited) {
  ASSERT_EQ(map(address_, 10), CUDA_SUCCESS);
  std::vector<uint64_t> leaving;
  ASSERT_EQ(pages_.unmap(address_, &leaving), CUDA_SUCCESS);
  EXPECT_TRUE(pages_.is_leaving(address_ + 9, 10));
  EXPECT_FALSE(pages_.is_leaving(address_ + 10, 10));
  // Other bytes of the page need not wait.
  EXPECT_EQ(map(address_ + 100, 10), CUDA_SUCCESS);
  at(address_ + 100) = std::byte{1};
  finish(leaving);
  EXPECT_FALSE(pages_.is_leaving(address_ + 9, 10));
  EXPECT_EQ(at(address_ + 100), std::byte{1});
  EXPECT_EQ(map(address_, 10), CUDA_SUCCESS);
  EXPECT_EQ(unmap(address_), CUDA_SUCCESS);
  EXPECT_EQ(unmap(address_ + 100), CUDA_SUCCESS);
  EXPECT_TRUE(is_free(address_));
}

TEST_F(HostPagesTest, ARegionGoesWhileItsContextDoes) {
  ASSERT_EQ(map(address_, kPage), CUDA_SUCCESS);
  const std::vector<uint64_t> taken = pages_.take_context(kContext);
  std::vector<uint64_t> leaving;
  ASSERT_EQ(pages_.unmap(address_, &leaving), CUDA_SUCCESS);
  EXPECT_TRUE(leaving.empty());  // one withdrawal is enough
  EXPECT_TRUE(pages_.is_leaving(address_, 1));
  EXPECT_FALSE(is_free(address_));
  finish(taken);
  EXPECT_TRUE(is_free(address_));
  EXPECT_EQ(map(address_, kPage), CUDA_SUCCESS);
}

TEST_F(HostPagesTest, ADestroyedContextLeavesReservedPages) {
  ASSERT_EQ(map(address_, kPage, kContext), CUDA_SUCCESS);
  ASSERT_EQ(map(address_ + 2 * kPage, kPage, kOtherContext), CUDA_SUCCESS);
  finish(pages_.take_context(kContext));
  EXPECT_EQ(pages_.mapped_in(address_), 0);
  EXPECT_EQ(pages_.mapped_in(address_ + 2 * kPage), kOtherContext);
  EXPECT_FALSE(is_free(address_));
  EXPECT_EQ(registered().size(), 1u);
  EXPECT_EQ(map(address_, kPage, kOtherContext), CUDA_SUCCESS);
  EXPECT_EQ(at(address_), std::byte{0});
}

TEST_F(HostPagesTest, PartsOnDemand) {
  ASSERT_EQ(map(address_, 4 * kPage), CUDA_SUCCESS);
  ASSERT_EQ(map(address_ + 8 * kPage, kPage), CUDA_SUCCESS);
  EXPECT_EQ(pages_.set_on_demand(address_ + kPage, true), CUDA_ERROR_NOT_MAPPED);
  ASSERT_EQ(pages_.set_on_demand(address_, true), CUDA_SUCCESS);
  auto* const memory = reinterpret_cast<unsigned char*>(address_);
  memory[5] = memory[2 * kPage + 5] = memory[8 * kPage] = 7;
  pages::RunWriter others(1000);
  EXPECT_EQ(pages_.fetch(0, others), 0u);
  pages::RunReader other(others.bytes());
  EXPECT_EQ(other.next()->address, address_ + 8 * kPage);
  EXPECT_FALSE(other.next());
  pages::RunWriter part(1000);
  EXPECT_EQ(pages_.fetch_part(address_ + 2 * kPage, kPage, part), 0u);
  pages::RunReader run(part.bytes());
  EXPECT_EQ(run.next()->address, address_ + 2 * kPage + 5);
  EXPECT_FALSE(run.next());
  EXPECT_FALSE(pages_.fetch_part(address_ + 3 * kPage, 2 * kPage, part));
  EXPECT_FALSE(pages_.fetch_part(address_ + 6 * kPage, kPage, part));
  EXPECT_FALSE(pages_.fetch_part(address_, 0, part));
  EXPECT_FALSE(pages_.fetch_part(address_, HostPages::kScanBytes + 1, part));
  ASSERT_EQ(pages_.set_on_demand(address_, false), CUDA_SUCCESS);
  pages::RunWriter rest(1000);
  EXPECT_EQ(pages_.fetch(0, rest), 0u);
  pages::RunReader last(rest.bytes());
  EXPECT_EQ(last.next()->address, address_ + 5);
}

TEST_F(HostPagesTest, APartThatDoesNotFitGoesOn) {
  ASSERT_EQ(map(address_, kPage), CUDA_SUCCESS);
  auto* const memory = reinterpret_cast<unsigned char*>(address_);
  for (size_t i = 0; i < kPage; ++i) memory[i] = 7;
  pages::RunWriter part(100);
  const auto next = pages_.fetch_part(address_, kPage, part);
  ASSERT_TRUE(next);
  EXPECT_GT(*next, address_);
  EXPECT_LT(*next, address_ + 100);
}

}  // namespace
}  // namespace fargpu::server
