#include "common/host/thread_stacks.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdlib>
#include <future>
#include <thread>

#include "common/host/mapped_memory.h"

namespace fargpu {
namespace {

TEST(ThreadStacks, AreKnownUntilTheThreadEnds) {
  // A sanitizer may keep variables elsewhere.
  const auto address = reinterpret_cast<uint64_t>(__builtin_frame_address(0));
  EXPECT_TRUE(is_on_a_stack(address, address + 1));
  EXPECT_TRUE(note_this_stack().holds(address));
  std::promise<StackRange> noted;
  std::promise<void> over;
  std::thread thread([&] {
    noted.set_value(note_this_stack());
    over.get_future().wait();
  });
  const StackRange other = noted.get_future().get();
  EXPECT_FALSE(other.holds(address));
  EXPECT_TRUE(is_on_a_stack(other.begin, other.begin + 1));
  EXPECT_TRUE(is_on_a_stack(other.begin - 100, other.end + 100));
  EXPECT_FALSE(is_on_a_stack(other.begin - 1, other.begin));
  over.set_value();
  thread.join();
  EXPECT_FALSE(is_on_a_stack(other.begin - 100, other.end + 100));
}

// Other memory may lie where a heap might.
TEST(OwnMappings, AreNoHeapsOfThreads) {
  constexpr uint64_t kHeap = uint64_t{64} << 20, kBytes = kHeap / 2;
  void* const space =
      ::mmap(nullptr, 3 * kHeap, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(space, MAP_FAILED);
  const uint64_t aligned = (reinterpret_cast<uint64_t>(space) + kHeap) / kHeap * kHeap;
  ASSERT_EQ(::mprotect(reinterpret_cast<void*>(aligned), kBytes, PROT_READ | PROT_WRITE), 0);
  EXPECT_TRUE(is_own_mapping(aligned, aligned + kBytes));
  ::munmap(space, 3 * kHeap);
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  std::thread([] {
    void* const allocated = std::malloc(100);
    const auto address = reinterpret_cast<uint64_t>(allocated);
    EXPECT_FALSE(is_own_mapping(address, address + 100));
    std::free(allocated);
  }).join();
#endif
}

}  // namespace
}  // namespace fargpu
