#include "server/memory/direct_memory.h"

#include <gtest/gtest.h>

#include <set>

#include "generated/server/driver_table.h"
#include "tests/transport/fake_remote_memory.h"

namespace fargpu::server {
namespace {

using transport::RegisteredMemory;
using transport::RemoteAccess;
using transport::RemoteKey;

// Remembers what is registered; says no to what it is told to.
class FakeAdapter final : public test::RemoteMemoryWithoutTransfers {
 public:
  struct Registered final : RegisteredMemory {
    Registered(FakeAdapter& adapter, std::span<std::byte> memory)
        : adapter(adapter), bytes(memory) {
      adapter.live.insert(this);
    }
    ~Registered() override { adapter.live.erase(this); }
    std::span<std::byte> memory() const override { return bytes; }
    RemoteKey key() const override { return {}; }
    FakeAdapter& adapter;
    std::span<std::byte> bytes;
  };
  Result<std::unique_ptr<RegisteredMemory>> register_memory(std::span<std::byte> memory,
                                                            RemoteAccess access) override {
    ++by_address;
    EXPECT_EQ(access, RemoteAccess::kNone);  // no key for the client
    if (!peer_memory) return Status(StatusCode::kUnsupported, "bad address");
    return std::unique_ptr<RegisteredMemory>(std::make_unique<Registered>(*this, memory));
  }
  Result<std::unique_ptr<RegisteredMemory>> register_dmabuf(int, uint64_t offset,
                                                            std::span<std::byte> memory,
                                                            RemoteAccess access) override {
    ++by_dmabuf;
    EXPECT_EQ(access, RemoteAccess::kNone);
    last_offset = offset;
    if (!dmabuf) return Status(StatusCode::kUnsupported, "no dma-buf here");
    return std::unique_ptr<RegisteredMemory>(std::make_unique<Registered>(*this, memory));
  }

  std::set<Registered*> live;
  bool peer_memory = true, dmabuf = false;
  int by_address = 0, by_dmabuf = 0;
  uint64_t last_offset = 0;
};

int dma_buf_supported = 0, ordering = CU_GPU_DIRECT_RDMA_WRITES_ORDERING_ALL_DEVICES;
bool memory_capable = true;
CUdeviceptr exported_begin = 0;
size_t exported_bytes = 0;

CUresult device_attribute(int* value, CUdevice_attribute attribute, CUdevice) {
  *value = attribute == CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED                 ? dma_buf_supported
           : attribute == CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING ? ordering
                                                                              : 0;
  return CUDA_SUCCESS;
}
CUresult pointer_attribute(void* data, CUpointer_attribute, CUdeviceptr) {
  *static_cast<unsigned*>(data) = memory_capable ? 1 : 0;
  return CUDA_SUCCESS;
}
CUresult export_range(void* handle, CUdeviceptr begin, size_t bytes, CUmemRangeHandleType type,
                      unsigned long long) {
  EXPECT_EQ(type, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD);
  exported_begin = begin;
  exported_bytes = bytes;
  *static_cast<int*>(handle) = -1;
  return CUDA_SUCCESS;
}

CUresult proc_address(const char* name, void** function, int, cuuint64_t,
                      CUdriverProcAddressQueryResult*) {
  EXPECT_STREQ(name, "cuMemGetHandleForAddressRange");
  *function = reinterpret_cast<void*>(&export_range);
  return CUDA_SUCCESS;
}

class DirectMemoryTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kMiB = 1u << 20;
  DirectMemoryTest() {
    driver_.cuDeviceGetAttribute = device_attribute;
    driver_.cuPointerGetAttribute = pointer_attribute;
    driver_.cuGetProcAddress_v2 = proc_address;
    dma_buf_supported = 0;
    ordering = CU_GPU_DIRECT_RDMA_WRITES_ORDERING_ALL_DEVICES;
    memory_capable = true;
  }
  size_t parts(CUdeviceptr address, uint64_t bytes, bool to_device = true) {
    const auto found = direct_.find(allocation_, address, bytes, to_device);
    uint64_t covered = 0;
    for (const auto& part : found) {
      EXPECT_EQ(reinterpret_cast<CUdeviceptr>(part.bytes.data()), address + covered);
      const auto memory = part.registration->memory();
      EXPECT_GE(part.bytes.data(), memory.data());
      EXPECT_LE(part.bytes.data() + part.bytes.size(), memory.data() + memory.size());
      covered += part.bytes.size();
    }
    if (!found.empty()) {
      EXPECT_EQ(covered, bytes);
    }
    return found.size();
  }

  DriverTable driver_;
  FakeAdapter adapter_;
  DirectMemory direct_{driver_, &adapter_, {}};
  const Ledger::AllocationAt allocation_{0x7000000000, 150 * kMiB, 0, 1};
  const CUdeviceptr base_ = allocation_.base;
};

TEST_F(DirectMemoryTest, RegistersWindowsOnceAndOnlyThoseInUse) {
  EXPECT_EQ(parts(base_ + 5, 2 * kMiB), 1u);
  EXPECT_EQ(parts(base_ + 10 * kMiB, 16 * kMiB), 1u);
  EXPECT_EQ(adapter_.by_address, 1);
  EXPECT_EQ(parts(base_ + 60 * kMiB, 16 * kMiB), 2u);  // across a border
  EXPECT_EQ(parts(base_ + 148 * kMiB, 2 * kMiB), 1u);  // the last one ends with the allocation
  EXPECT_EQ(direct_.windows(), 3u);
  EXPECT_EQ(adapter_.live.size(), 3u);
  for (const auto* registered : adapter_.live) {
    const auto end =
        reinterpret_cast<CUdeviceptr>(registered->bytes.data() + registered->bytes.size());
    EXPECT_LE(end, base_ + allocation_.bytes);
  }
}

TEST_F(DirectMemoryTest, SmallCopiesAreStaged) {
  EXPECT_EQ(parts(base_, DirectMemory::kUsualFrom - 1), 0u);
  EXPECT_EQ(adapter_.by_address, 0);
}

TEST_F(DirectMemoryTest, WhatIsFreedIsForgotten) {
  ASSERT_EQ(parts(base_ + 60 * kMiB, 16 * kMiB), 2u);
  auto taken = direct_.take(base_, allocation_.bytes);
  EXPECT_EQ(taken.size(), 2u);
  EXPECT_EQ(direct_.windows(), 0u);
  EXPECT_EQ(adapter_.live.size(), 2u);  // until whoever frees lets go
  taken.clear();
  EXPECT_TRUE(adapter_.live.empty());
  // The same addresses again are other memory.
  EXPECT_EQ(parts(base_, 2 * kMiB), 1u);
  EXPECT_EQ(adapter_.by_address, 3);
}

TEST_F(DirectMemoryTest, ACopyKeepsWhatItUses) {
  auto under_way = direct_.find(allocation_, base_, 2 * kMiB, true);
  direct_.forget(base_, allocation_.bytes);
  EXPECT_EQ(adapter_.live.size(), 1u);
  under_way.clear();
  EXPECT_TRUE(adapter_.live.empty());
}

TEST_F(DirectMemoryTest, AnotherAllocationAtTheSamePlaceIsRegisteredAnew) {
  ASSERT_EQ(parts(base_, 2 * kMiB), 1u);
  // Its end was not noticed, and now something smaller begins inside.
  const Ledger::AllocationAt other{base_ + kMiB, 4 * kMiB, 0, 1};
  const auto found = direct_.find(other, other.base, 2 * kMiB, true);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(reinterpret_cast<CUdeviceptr>(found[0].registration->memory().data()), other.base);
  EXPECT_EQ(direct_.windows(), 1u);
}

TEST_F(DirectMemoryTest, AContextTakesItsMemoryAlong) {
  ASSERT_EQ(parts(base_, 2 * kMiB), 1u);
  direct_.context_ended({2});
  EXPECT_EQ(adapter_.live.size(), 1u);
  direct_.context_ended({1});
  EXPECT_TRUE(adapter_.live.empty());
}

TEST_F(DirectMemoryTest, WhatCannotBeRegisteredIsNotTriedAgainAndAgain) {
  adapter_.peer_memory = false;
  for (int i = 0; i < 5; ++i) EXPECT_EQ(parts(base_, 2 * kMiB), 0u);
  EXPECT_EQ(adapter_.by_address, 1);
  for (uint64_t i = 0; i < 20; ++i) {
    const Ledger::AllocationAt other{base_ + (i + 1) * 1024 * kMiB, 4 * kMiB, 0, 1};
    EXPECT_TRUE(direct_.find(other, other.base, 2 * kMiB, true).empty());
  }
  EXPECT_EQ(adapter_.by_address, 8);
}

TEST_F(DirectMemoryTest, MemoryOfAKindThatTheDriverExcludesIsNoFailure) {
  memory_capable = false;
  for (uint64_t i = 0; i < 20; ++i) {
    const Ledger::AllocationAt other{base_ + (i + 1) * 1024 * kMiB, 4 * kMiB, 0, 1};
    EXPECT_TRUE(direct_.find(other, other.base, 2 * kMiB, true).empty());
  }
  EXPECT_EQ(adapter_.by_address, 0);
  memory_capable = true;
  EXPECT_EQ(parts(base_, 2 * kMiB), 1u);
}

TEST_F(DirectMemoryTest, WritesThatAreNotOrderedGoOnlyToTheHost) {
  ordering = CU_GPU_DIRECT_RDMA_WRITES_ORDERING_NONE;
  EXPECT_EQ(parts(base_, 2 * kMiB, true), 0u);
  EXPECT_EQ(parts(base_, 2 * kMiB, false), 1u);
}

TEST_F(DirectMemoryTest, ADmabufComesFirstAndHasWholePages) {
  dma_buf_supported = 1;
  adapter_.dmabuf = true;
  const Ledger::AllocationAt odd{base_ + 100, 3 * kMiB, 0, 1};
  ASSERT_EQ(direct_.find(odd, odd.base, 2 * kMiB, true).size(), 1u);
  EXPECT_EQ(adapter_.by_dmabuf, 1);
  EXPECT_EQ(adapter_.by_address, 0);
  EXPECT_EQ(exported_begin, base_);
  EXPECT_EQ(exported_bytes, 3 * kMiB + 4096);
  EXPECT_EQ(adapter_.last_offset, 100u);
  adapter_.dmabuf = false;
  direct_.forget(odd.base, odd.bytes);
  EXPECT_EQ(direct_.find(odd, odd.base, 2 * kMiB, true).size(), 1u);  // then by its address
  EXPECT_EQ(adapter_.by_address, 1);
}

TEST_F(DirectMemoryTest, SaysWhichWayAndWhyNotABetterOne) {
  std::string why;
  EXPECT_EQ(direct_.probe(0, base_, 2 * kMiB, &why), DirectMemory::Access::kPeerMemory);
  EXPECT_NE(why.find("dma-buf: "), std::string::npos) << why;
  adapter_.peer_memory = false;
  EXPECT_EQ(direct_.probe(0, base_, 2 * kMiB, &why), DirectMemory::Access::kStaged);
  EXPECT_NE(why.find("peer memory: bad address"), std::string::npos) << why;
  EXPECT_TRUE(adapter_.live.empty());
  DirectMemory off(driver_, &adapter_, {.enabled = false});
  EXPECT_EQ(off.probe(0, base_, 2 * kMiB, &why), DirectMemory::Access::kStaged);
  EXPECT_FALSE(off.wanted(uint64_t{1} << 40));
  DirectMemory none(driver_, nullptr, {});
  EXPECT_FALSE(none.wanted(uint64_t{1} << 40));
}

}  // namespace
}  // namespace fargpu::server
