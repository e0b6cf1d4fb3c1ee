#include "server/placement/job_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include "server/object/ledger.h"

namespace fargpu::server {
namespace {

constexpr JobMemoryShape kShape{2, 4, 1000};

JobMemory daemons(const JobMemoryShape& shape = kShape) {
  auto memory = JobMemory::create(shape);
  EXPECT_TRUE(memory.ok()) << memory.status().message();
  return std::move(*memory);
}

JobMemory workers(JobMemory& daemon, uint32_t slot, const JobMemoryShape& shape = kShape) {
  daemon.take(slot);
  auto memory = JobMemory::open(Fd(::dup(daemon.descriptor())), shape, slot);
  EXPECT_TRUE(memory.ok()) << memory.status().message();
  return std::move(*memory);
}

TEST(JobMemory, TheSumOverTheSessionsIsLimitedOnEachGpu) {
  JobMemory daemon = daemons();
  JobMemory a = workers(daemon, 0), b = workers(daemon, 1);
  EXPECT_TRUE(a.charge(0, 600));
  EXPECT_FALSE(b.charge(0, 401));
  EXPECT_TRUE(b.charge(0, 400));
  EXPECT_FALSE(a.charge(0, 1));
  EXPECT_TRUE(b.charge(1, 1000));
  EXPECT_EQ(a.used(0), 1000u);
  a.refund(0, 600);
  EXPECT_TRUE(b.charge(0, 500));
  EXPECT_EQ(daemon.used(0), 900u);
  EXPECT_EQ(daemon.used(1), 1000u);
}

TEST(JobMemory, AmountsThatOverflowAreTooMuch) {
  JobMemory daemon = daemons();
  JobMemory limited = workers(daemon, 0);
  ASSERT_TRUE(limited.charge(0, 10));
  EXPECT_FALSE(limited.charge(0, UINT64_MAX));
  EXPECT_FALSE(limited.charge(2, 1));  // no such GPU
  EXPECT_EQ(limited.used(0), 10u);
  const JobMemoryShape unlimited_shape{1, 2, 0};
  JobMemory other = daemons(unlimited_shape);
  JobMemory x = workers(other, 0, unlimited_shape), y = workers(other, 1, unlimited_shape);
  EXPECT_TRUE(x.charge(0, uint64_t{1} << 63));
  EXPECT_FALSE(y.charge(0, uint64_t{1} << 63));
}

TEST(JobMemory, ARefundIsNeverMoreThanTheSlotHolds) {
  JobMemory daemon = daemons();
  JobMemory a = workers(daemon, 0), b = workers(daemon, 1);
  ASSERT_TRUE(a.charge(0, 100));
  ASSERT_TRUE(b.charge(0, 100));
  a.refund(0, 5000);
  EXPECT_EQ(daemon.used(0), 100u);
}

TEST(JobMemory, AProcessThatDiesInTheMiddleGivesBackWhatItHeld) {
  JobMemory daemon = daemons();
  daemon.take(2);
  JobMemory survivor = workers(daemon, 0);
  ASSERT_TRUE(survivor.charge(0, 300));
  const pid_t child = ::fork();
  if (child == 0) {
    auto mine = JobMemory::open(Fd(::dup(daemon.descriptor())), kShape, 2);
    if (!mine.ok()) ::_exit(1);
    if (!mine->charge(0, 500)) ::_exit(2);
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(daemon.used(0), 800u);
  EXPECT_FALSE(survivor.charge(0, 201));
  daemon.clear(2);
  EXPECT_EQ(daemon.used(0), 300u);
  EXPECT_TRUE(survivor.charge(0, 700));
}

TEST(JobMemory, ManySessionsAtOnceNeverPassTheLimit) {
  constexpr JobMemoryShape kMany{1, 8, 1000};
  JobMemory daemon = daemons(kMany);
  std::vector<JobMemory> sessions;
  for (uint32_t slot = 0; slot < kMany.slots; ++slot)
    sessions.push_back(workers(daemon, slot, kMany));
  std::vector<std::thread> threads;
  std::atomic<int> granted{0};
  for (JobMemory& session : sessions) {
    threads.emplace_back([&session, &granted] {
      for (int i = 0; i < 20000; ++i) {
        if (!session.charge(0, 300)) continue;
        // All that was granted at once: at most three of 300 fit.
        EXPECT_LE(granted.fetch_add(1) + 1, 3);
        granted.fetch_sub(1);
        session.refund(0, 300);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(daemon.used(0), 0u);
}

TEST(JobMemory, AWorkerCannotChangeThePagesSize) {
  JobMemory daemon = daemons();
  EXPECT_NE(::ftruncate(daemon.descriptor(), 0), 0);
  EXPECT_NE(::ftruncate(daemon.descriptor(), 1 << 20), 0);
  EXPECT_NE(::fcntl(daemon.descriptor(), F_ADD_SEALS, F_SEAL_WRITE), 0);
}

TEST(JobMemory, APageOfAnotherShapeIsRefused) {
  JobMemory daemon = daemons();
  EXPECT_FALSE(JobMemory::open(Fd(::dup(daemon.descriptor())), {2, 4000, 1000}, 0).ok());
  EXPECT_FALSE(JobMemory::open(Fd(::dup(daemon.descriptor())), kShape, kShape.slots).ok());
  EXPECT_FALSE(JobMemory::open(Fd(), kShape, 0).ok());
}

TEST(Ledger, SharesTheLimitOfItsJobAndTellsWhatTheJobHas) {
  JobMemory daemon = daemons();
  JobMemory a = workers(daemon, 0), b = workers(daemon, 1);
  Ledger first(2, 1000, &a);
  EXPECT_EQ(first.charge(0, 700), CUDA_SUCCESS);
  {
    Ledger second(2, 1000, &b);
    EXPECT_EQ(second.charge(0, 301), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(second.charge(0, 300), CUDA_SUCCESS);
    second.remember(0x1000, 300, 0, 1);
    EXPECT_EQ(second.used(0), 300u);
    EXPECT_EQ(second.used_by_job(0), 1000u);
    EXPECT_EQ(first.charge(0, 1), CUDA_ERROR_OUT_OF_MEMORY);
    second.forget_context(1);
  }
  EXPECT_EQ(first.used_by_job(0), 700u);
  EXPECT_EQ(first.charge(0, 300), CUDA_SUCCESS);
}

}  // namespace
}  // namespace fargpu::server
