// Below 2 kB a call takes no heap memory: counts every operator new and malloc-like call of the
// calling thread.
#include <gtest/gtest.h>
#include <test_messages.capnp.h>

#include <cstdlib>
#include <new>

#include "common/base/address_check.h"
#include "common/wire/prepared_body.h"
#include "tests/transport/channel_testing.h"

namespace {

thread_local bool counting = false;
thread_local uint64_t allocations = 0;

void* counted(size_t bytes, size_t alignment) {
  if (counting) ++allocations;
  void* memory =
      alignment > alignof(std::max_align_t)
          ? std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment)
          : std::malloc(bytes > 0 ? bytes : 1);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

// A sanitizer keeps new and delete apart from malloc and free, and g++ then takes the pair below
// for a mistake; it is one pair.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
#endif

void* operator new(size_t bytes) { return counted(bytes, 1); }
void* operator new[](size_t bytes) { return counted(bytes, 1); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<size_t>(alignment));
}
void* operator new[](size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

namespace fargpu::test {
namespace {

uint64_t counted_calls(const std::function<void(int)>& call) {
  for (int i = 0; i < 200; ++i) call(i);  // warm-up
  allocations = 0;
  counting = true;
  for (int i = 0; i < 1000; ++i) call(i);
  counting = false;
  return allocations;
}

// At most: with an address sanitizer they lie on the heap, where reads behind them show.
constexpr uint64_t kOfAnswers = address_check::kOn ? 1000 : 0;

class AllocationTest : public ::testing::TestWithParam<TransportKind> {};

TEST_P(AllocationTest, CounterCounts) {
  EXPECT_EQ(counted_calls([](int) { std::vector<int> memory(3); }), 1000u);
}

TEST_P(AllocationTest, AsyncCallsTakeNone) {
  ChannelFixture f(GetParam());
  const auto bulk = pattern(1500, 1);
  EXPECT_EQ(counted_calls([&](int i) {
              const rpc::Bytes pieces[] = {bulk};
              EXPECT_TRUE(send_with(*f.channel, kCount, 1, nullptr,
                                    i % 2 == 0 ? std::span<const rpc::Bytes>() : std::span(pieces))
                              .ok());
            }),
            0u);
}

TEST_P(AllocationTest, SyncCallsTakeNone) {
  ChannelFixture f(GetParam());
  EXPECT_LE(counted_calls([&](int i) {
              rpc::Reply reply;
              EXPECT_TRUE(call_with(*f.channel, kEcho, static_cast<uint64_t>(i), reply).ok());
              EXPECT_EQ(value_of(reply), static_cast<uint64_t>(i));
            }),
            kOfAnswers);
}

TEST_P(AllocationTest, BodiesThatWereBuiltBeforeTakeNone) {
  ChannelFixture f(GetParam());
  const auto prepared = wire::PreparedBody::make<Number>(
      [](Number::Builder number, uint64_t value) { number.setValue(value); });
  EXPECT_LE(counted_calls([&](int i) {
              const auto body = prepared.with(static_cast<uint64_t>(i));
              EXPECT_TRUE(f.channel->send_body(kCount, 7, body.bytes()).ok());
              rpc::Reply reply;
              EXPECT_TRUE(f.channel->call_body(kEcho, 7, body.bytes(), reply).ok());
              EXPECT_EQ(value_of(reply), static_cast<uint64_t>(i));
            }),
            kOfAnswers);
}

std::vector<TransportKind> sockets() {
  std::vector<TransportKind> kinds = transport_kinds();
  // Test transports hold frames in memory of their own.
  std::erase_if(kinds, [](const TransportKind& kind) {
    return kind.name.starts_with("loopback") || kind.name.ends_with("emulated");
  });
  return kinds;
}

INSTANTIATE_TEST_SUITE_P(Kinds, AllocationTest, ::testing::ValuesIn(sockets()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace fargpu::test
