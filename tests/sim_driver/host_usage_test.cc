#include "sim/memory/host_usage.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sim/memory/device_memory.h"

namespace fargpu::sim {
namespace {

constexpr uint64_t kTotal = 1000;

class HostUsageTest : public ::testing::Test {
 protected:
  std::shared_ptr<HostUsage> open() {
    auto usage = HostUsage::open(path_);
    EXPECT_TRUE(usage.ok());
    return usage.ok() ? *usage : nullptr;
  }
  // Another process that has taken so much, until it is killed.
  pid_t taker(uint64_t bytes) {
    int ready[2];
    EXPECT_EQ(::pipe(ready), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      const auto own = HostUsage::open(path_);
      const char said = own.ok() && (*own)->take(3, bytes, kTotal) ? 'y' : 'n';
      if (::write(ready[1], &said, 1) == 1) ::pause();
      ::_exit(1);
    }
    char said = 0;
    EXPECT_EQ(::read(ready[0], &said, 1), 1);
    EXPECT_EQ(said, 'y');
    ::close(ready[0]);
    ::close(ready[1]);
    return child;
  }
  static void end(pid_t child) {
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }

  Fd file_{::memfd_create("usage", MFD_CLOEXEC)};
  const std::string path_ = "/proc/self/fd/" + std::to_string(file_.get());
};

TEST_F(HostUsageTest, ProcessesTakeFromTheSame) {
  const auto a = open(), b = open();
  EXPECT_TRUE(a->take(3, 600, kTotal));
  EXPECT_FALSE(b->take(3, 500, kTotal));
  EXPECT_TRUE(b->take(3, 400, kTotal));
  EXPECT_TRUE(b->take(4, 1000, kTotal));  // another GPU
  EXPECT_EQ(a->used(3), 1000u);
  a->give_back(3, 600);
  EXPECT_EQ(b->used(3), 400u);
}

TEST_F(HostUsageTest, AKilledProcessHasGivenAllBackWhenItHasBeenWaitedFor) {
  const pid_t child = taker(700);
  const auto own = open();
  EXPECT_EQ(own->used(3), 700u);
  EXPECT_FALSE(own->take(3, 301, kTotal));
  end(child);
  EXPECT_EQ(own->used(3), 0u);
  EXPECT_TRUE(own->take(3, 1000, kTotal));
}

TEST_F(HostUsageTest, TheNextOneBeginsWithNothing) {
  end(taker(700));
  const auto own = open();  // in the same slot
  EXPECT_EQ(own->used(3), 0u);
  const auto looking = HostUsage::look(path_);
  ASSERT_TRUE(looking.ok());
  EXPECT_TRUE(own->take(3, 5, kTotal));
  EXPECT_EQ((*looking)->used(3), 5u);
}

TEST_F(HostUsageTest, OpenedMemoryStaysUntilTheLastHasClosedIt) {
  constexpr uint64_t kExporter = 77;
  const auto one = open(), other = open();
  auto exporter = open();
  exporter->export_as(kExporter);
  EXPECT_TRUE(exporter->take(3, 100, kTotal));
  EXPECT_TRUE(exporter->take(3, 200, kTotal));
  for (const auto& each : {one, other}) each->opened(kExporter, 1, 3, 100);
  one->opened(kExporter, 2, 3, 200);
  EXPECT_EQ(one->used(3), 300u);  // the exporter's
  exporter->give_back(3, 100);
  exporter->freed(1);
  EXPECT_EQ(one->used(3), 300u);
  exporter.reset();  // as if its process had ended
  EXPECT_EQ(one->used(3), 300u);
  one->closed(kExporter, 2);
  EXPECT_EQ(one->used(3), 100u);
  one->closed(kExporter, 1);
  EXPECT_EQ(one->used(3), 100u);
  other->closed(kExporter, 1);
  EXPECT_EQ(one->used(3), 0u);
}

TEST_F(HostUsageTest, MemoryOfOthersIsNotFree) {
  constexpr size_t kBytes = size_t{64} << 20;
  DeviceMemory one(12, kBytes, 0, open(), 5), other(13, kBytes, 0, open(), 5);
  const uint64_t taken = one.allocate(kBytes / 2);
  ASSERT_NE(taken, 0u);
  EXPECT_EQ(other.available(), kBytes / 2);
  EXPECT_EQ(other.allocate(kBytes / 2 + 1), 0u);
  EXPECT_TRUE(other.charge(kBytes / 2));
  EXPECT_EQ(one.available(), 0u);
  one.free(taken, kBytes / 2);
  other.refund(kBytes / 2);
  EXPECT_EQ(one.available(), kBytes);
}

}  // namespace
}  // namespace fargpu::sim
