// Which descriptors say that the system may read into memory directly.
#include "client/hostmem/direct_reads.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/io_uring.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/fd.h"

namespace fargpu::client {
namespace {

// A file of the folder where the test runs, and the same one opened with `flags`.
Fd open_file(int flags) {
  char name[] = "./direct_reads.XXXXXX";
  const Fd plain(::mkstemp(name));
  Fd file(::open(name, flags | O_CLOEXEC));
  ::unlink(name);
  return file;
}

class DirectReads : public ::testing::Test {
 protected:
  void SetUp() override {
    if (may_read_directly()) GTEST_SKIP() << "this process was started with such a descriptor";
  }
};

TEST_F(DirectReads, NotByFilesAndWhatOnlyTellsOfSomething) {
  const Fd file = open_file(O_RDWR), null(::open("/dev/null", O_RDWR)),
           memory(::memfd_create("test", MFD_CLOEXEC)), event(::eventfd(0, EFD_CLOEXEC)),
           poll(::epoll_create1(EPOLL_CLOEXEC));
  int pipe[2];
  ASSERT_EQ(::pipe2(pipe, O_DIRECT | O_CLOEXEC), 0);  // keeps packets apart
  const Fd in(pipe[0]), out(pipe[1]);
  EXPECT_FALSE(may_read_directly());
}

TEST_F(DirectReads, ByFilesOpenedSo) {
  const Fd writes = open_file(O_WRONLY | O_DIRECT);
  if (!writes.valid()) GTEST_SKIP() << "the file system has no direct input and output";
  EXPECT_FALSE(may_read_directly()) << "that reads memory only";
  {
    const Fd reads = open_file(O_RDONLY | O_DIRECT);
    ASSERT_TRUE(reads.valid());
    EXPECT_TRUE(may_read_directly());
  }
  EXPECT_FALSE(may_read_directly());
}

TEST_F(DirectReads, ByRings) {
  io_uring_params parameters = {};
  const Fd ring(static_cast<int>(::syscall(SYS_io_uring_setup, 1, &parameters)));
  if (!ring.valid()) GTEST_SKIP() << "there are no rings here";
  EXPECT_TRUE(may_read_directly());
}

TEST_F(DirectReads, ByDevicesThatAreNotKnown) {
  const Fd device(::open("/dev/fuse", O_RDWR | O_CLOEXEC));
  if (!device.valid()) GTEST_SKIP() << "there is no such device";
  EXPECT_TRUE(may_read_directly());
}

}  // namespace
}  // namespace fargpu::client
