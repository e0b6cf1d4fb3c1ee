// The registration cache against a remote memory that only remembers what is registered.
#include "common/transport/registration_cache.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

#include "tests/transport/fake_remote_memory.h"

namespace fargpu::test {
namespace {

using transport::RegisteredMemory;
using transport::RegistrationCache;
using transport::RemoteAccess;
using transport::RemoteKey;

class FakeMemory final : public RemoteMemoryWithoutTransfers {
 public:
  struct Registered final : RegisteredMemory {
    Registered(FakeMemory& owner, std::span<std::byte> memory) : owner(owner), bytes(memory) {
      owner.live.insert(this);
      owner.live_bytes += memory.size();
    }
    ~Registered() override {
      owner.live.erase(this);
      owner.live_bytes -= bytes.size();
    }
    std::span<std::byte> memory() const override { return bytes; }
    RemoteKey key() const override { return {}; }
    FakeMemory& owner;
    std::span<std::byte> bytes;
  };

  Result<std::unique_ptr<RegisteredMemory>> register_memory(std::span<std::byte> memory,
                                                            RemoteAccess) override {
    if (live_bytes + memory.size() > limit) return Status(StatusCode::kNoCapacity, "limit");
    const std::byte* end = memory.data() + memory.size();
    if (gone != nullptr && memory.data() <= gone && gone < end)
      return Status(StatusCode::kUnsupported, "not mapped");
    ++registrations;
    return std::unique_ptr<RegisteredMemory>(std::make_unique<Registered>(*this, memory));
  }
  Result<std::unique_ptr<RegisteredMemory>> register_dmabuf(int, uint64_t, std::span<std::byte>,
                                                            RemoteAccess) override {
    return Status(StatusCode::kUnsupported, "no");
  }

  std::set<Registered*> live;
  size_t live_bytes = 0, limit = ~size_t{0};
  const std::byte* gone = nullptr;  // a byte that cannot be registered
  int registrations = 0;
};

class RegistrationCacheTest : public ::testing::Test {
 protected:
  std::span<std::byte> part(size_t begin, size_t end) {
    return std::span(bytes_).subspan(begin, end - begin);
  }
  // Registered, and let go of.
  void touch(size_t begin, size_t end, RemoteAccess access = RemoteAccess::kRead) {
    auto got = cache_.get(part(begin, end), access);
    ASSERT_TRUE(got.ok()) << got.status().message();
    const auto memory = (*got)->memory();
    EXPECT_LE(memory.data(), part(begin, end).data());
    EXPECT_GE(memory.data() + memory.size(), part(begin, end).data() + (end - begin));
  }
  bool known(size_t begin, size_t end, RemoteAccess access = RemoteAccess::kRead) {
    return cache_.find(part(begin, end), access) != nullptr;
  }

  std::vector<std::byte> bytes_ = std::vector<std::byte>(100'000);
  FakeMemory memory_;
  RegistrationCache cache_{memory_, 10'000};
};

TEST_F(RegistrationCacheTest, WhatIsInsideIsFound) {
  touch(1000, 2000);
  touch(1000, 2000);
  touch(1000, 1001);
  touch(1500, 1600);
  touch(1999, 2000);
  EXPECT_EQ(memory_.registrations, 1);
  EXPECT_TRUE(known(1234, 1567));
  EXPECT_FALSE(known(999, 1001));
  EXPECT_FALSE(known(1999, 2001));
  EXPECT_FALSE(known(2000, 2001));
  EXPECT_EQ(cache_.statistics().misses, 1u);
}

TEST_F(RegistrationCacheTest, WhatOverlapsIsJoined) {
  touch(1000, 2000);
  touch(3000, 4000);
  touch(1500, 3500);
  EXPECT_EQ(memory_.live.size(), 1u);
  EXPECT_EQ(memory_.live_bytes, 3000u);
  EXPECT_TRUE(known(1000, 4000));
  touch(4000, 5000);  // touches, does not overlap
  EXPECT_EQ(memory_.live.size(), 2u);
  EXPECT_EQ(cache_.statistics().bytes, 4000u);
}

TEST_F(RegistrationCacheTest, MoreAccessRegistersAnew) {
  touch(0, 1000, RemoteAccess::kRead);
  EXPECT_FALSE(known(0, 100, RemoteAccess::kReadWrite));
  touch(0, 100, RemoteAccess::kReadWrite);
  EXPECT_TRUE(known(0, 1000, RemoteAccess::kReadWrite));
  EXPECT_EQ(memory_.live.size(), 1u);
  touch(500, 600, RemoteAccess::kNone);
  EXPECT_EQ(memory_.registrations, 2);
}

TEST_F(RegistrationCacheTest, FreedMemoryIsRegisteredAgainWhenItsAddressComesBack) {
  touch(1000, 2000);
  touch(5000, 6000);
  cache_.invalidate(part(1999, 2000).data(), 1);  // one byte is enough
  EXPECT_FALSE(known(1000, 1001));
  EXPECT_EQ(memory_.live.size(), 1u);
  touch(1000, 2000);
  EXPECT_EQ(memory_.registrations, 3);
  cache_.invalidate(part(2000, 5000).data(), 3000);  // nothing is there
  EXPECT_TRUE(known(1000, 2000));
  EXPECT_TRUE(known(5000, 6000));
  cache_.invalidate(part(0, 100'000).data(), 100'000);
  EXPECT_TRUE(memory_.live.empty());
  EXPECT_EQ(cache_.statistics().bytes, 0u);
  EXPECT_EQ(cache_.statistics().invalidated, 3u);
}

TEST_F(RegistrationCacheTest, WhatIsHeldStaysRegistered) {
  auto held = cache_.get(part(0, 1000), RemoteAccess::kRead);
  ASSERT_TRUE(held.ok());
  cache_.invalidate(part(0, 1000).data(), 1000);
  EXPECT_EQ(memory_.live.size(), 1u);
  EXPECT_FALSE(known(0, 1000));
  held = Status();
  EXPECT_TRUE(memory_.live.empty());
}

TEST_F(RegistrationCacheTest, TheLongestUnusedGoesFirst) {
  touch(0, 4000);
  touch(10'000, 14'000);
  touch(0, 10);  // used again
  touch(20'000, 24'000);
  EXPECT_TRUE(known(0, 4000));
  EXPECT_FALSE(known(10'000, 14'000));
  EXPECT_TRUE(known(20'000, 24'000));
  EXPECT_EQ(memory_.live_bytes, 8000u);
  EXPECT_EQ(cache_.statistics().evicted, 1u);
}

TEST_F(RegistrationCacheTest, WhatIsInUseIsNotGivenUp) {
  auto held = cache_.get(part(0, 8000), RemoteAccess::kRead);
  touch(10'000, 14'000);  // more than fits beside it: for the caller only
  EXPECT_TRUE(known(0, 8000));
  EXPECT_FALSE(known(10'000, 14'000));
  EXPECT_LE(memory_.live_bytes, 10'000u);
}

TEST_F(RegistrationCacheTest, MoreThanTheBoundIsForTheCallerOnly) {
  touch(0, 1000);
  touch(20'000, 50'000);
  EXPECT_EQ(memory_.live_bytes, 1000u);
  touch(0, 9500);
  touch(9000, 18'500);  // together too large: the new one alone
  EXPECT_TRUE(known(9000, 18'500));
  EXPECT_LE(cache_.statistics().bytes, 10'000u);
}

TEST_F(RegistrationCacheTest, RoomIsMadeWhenTheAdapterHasNone) {
  memory_.limit = 5000;
  touch(0, 2000);
  touch(10'000, 12'000);
  touch(20'000, 24'000);
  EXPECT_TRUE(known(20'000, 24'000));
  auto held = cache_.get(part(20'000, 24'000), RemoteAccess::kRead);
  EXPECT_EQ(cache_.get(part(30'000, 32'000), RemoteAccess::kRead).status().code(),
            StatusCode::kNoCapacity);
}

TEST_F(RegistrationCacheTest, ANeighbourThatWentAwayDoesNoHarm) {
  touch(0, 1000);
  memory_.gone = part(0, 1).data();  // freed without a word
  touch(900, 2000);
  EXPECT_TRUE(known(900, 2000));
  EXPECT_FALSE(known(0, 1));
}

// Whatever happens, entries do not overlap, the bound holds, and what get() gives holds what was
// asked for.
TEST_F(RegistrationCacheTest, HoldsUnderRandomUse) {
  std::mt19937 random(7);
  std::vector<RegistrationCache::Registration> held;
  for (int i = 0; i < 20'000; ++i) {
    const size_t begin = random() % 90'000, end = begin + 1 + random() % 6000;
    const auto access = static_cast<RemoteAccess>(random() % 3);
    switch (random() % 5) {
      case 0:
        cache_.invalidate(part(begin, end).data(), end - begin);
        EXPECT_FALSE(known(begin, begin + 1, RemoteAccess::kNone));
        break;
      case 1: {
        auto got = cache_.get(part(begin, end), access);
        ASSERT_TRUE(got.ok());
        if (held.size() < 3) held.push_back(*got);
        break;
      }
      case 2:
        held.clear();
        break;
      default:
        touch(begin, end, access);
    }
    ASSERT_LE(cache_.statistics().bytes, 10'000u);
  }
  held.clear();
  EXPECT_EQ(memory_.live.size(), cache_.statistics().ranges);
  EXPECT_EQ(memory_.live_bytes, cache_.statistics().bytes);
  cache_.clear();
  EXPECT_TRUE(memory_.live.empty());
}

}  // namespace
}  // namespace fargpu::test
