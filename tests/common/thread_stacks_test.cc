#include "common/host/thread_stacks.h"

#include <gtest/gtest.h>

#include <future>
#include <thread>

namespace fargpu {
namespace {

TEST(ThreadStacks, AreKnownUntilTheThreadEnds) {
  const char here = 0;
  const auto address = reinterpret_cast<uint64_t>(&here);
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

}  // namespace
}  // namespace fargpu
