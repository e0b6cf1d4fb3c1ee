#include "client/stream/observers.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace fargpu::client {
namespace {

constexpr Observers::Observer kAll[] = {Observers::kHostFunctions, Observers::kHeldStreams,
                                        Observers::kCopies,        Observers::kUnseenDeliveries,
                                        Observers::kSharedMemory,  Observers::kMirrors,
                                        Observers::kGatedMemory,   Observers::kManagedMemory,
                                        Observers::kValueWaits,    Observers::kOtherProcesses};

TEST(Observers, EachIsThereByItself) {
  for (const Observers::Observer one : kAll) {
    Observers observers;
    observers.add(one);
    for (const Observers::Observer other : kAll)
      EXPECT_EQ(observers.any(other), one == other) << one << ' ' << other;
    observers.remove(one);
    EXPECT_EQ(observers.all(), 0u);
  }
}

TEST(Observers, WhatIsComingIsThereAndStaysIfItIsSaid) {
  for (const Observers::Observer one : {Observers::kValueWaits, Observers::kOtherProcesses}) {
    Observers observers;
    {
      Observers::Coming refused(observers, one);
      EXPECT_TRUE(observers.any(one));
      { Observers::Coming other(observers, one); }
      EXPECT_TRUE(observers.any(one)) << "one is still coming";
    }
    EXPECT_EQ(observers.all(), 0u);
    {
      Observers::Coming made(observers, one);
      made.stays();
    }
    EXPECT_TRUE(observers.any(one));
    { Observers::Coming refused(observers, one); }
    EXPECT_TRUE(observers.any(one)) << "an earlier one stays";
  }
}

TEST(Observers, ThreadsDisturbNoOtherOnes) {
  Observers observers;
  std::vector<std::thread> threads;
  for (const Observers::Observer one : kAll) {
    threads.emplace_back([&observers, one] {
      for (int i = 0; i < 20'000; ++i) {
        observers.add(one);
        ASSERT_TRUE(observers.any(one));
        observers.remove(one);
        const Observers::Coming wait(observers, Observers::kOtherProcesses);
        ASSERT_TRUE(observers.any(Observers::kOtherProcesses));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(observers.all(), 0u);
}

}  // namespace
}  // namespace fargpu::client
