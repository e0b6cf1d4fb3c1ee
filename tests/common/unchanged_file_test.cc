// Whether a file that memory shows has changed: what another look must find out, and what needs
// none.
#include "common/host/unchanged_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <thread>

namespace fargpu {
namespace {

constexpr size_t kBytes = 64 << 10;

class UnchangedFileTest : public testing::Test {
 protected:
  UnchangedFileTest() {
    const int made = ::mkstemp(path_.data());
    EXPECT_GE(made, 0);
    EXPECT_EQ(::ftruncate(made, kBytes), 0);
    ::close(made);
    memory_ = map(PROT_READ);
    file_ = UnchangedFile::of(address(), address() + kBytes);
  }
  ~UnchangedFileTest() override {
    ::munmap(memory_, kBytes);
    ::unlink(path_.c_str());
  }
  void SetUp() override {
    if (file_ == nullptr) GTEST_SKIP() << "of files there nobody can tell";
    struct stat status = {};
    ::stat(path_.c_str(), &status);
    if (status.st_ctim.tv_nsec == 0) GTEST_SKIP() << "their times are whole seconds";
    std::this_thread::sleep_for(kLong);
    if (look()) FAIL() << "nobody has looked yet";
    if (!file_->is_as_seen()) GTEST_SKIP() << "the system grants no leases";
  }
  void* map(int protection, int flags = MAP_SHARED) const {
    const int opened = ::open(path_.c_str(), (protection & PROT_WRITE) != 0 ? O_RDWR : O_RDONLY);
    void* const memory = ::mmap(nullptr, kBytes, protection, flags, opened, 0);
    EXPECT_NE(memory, MAP_FAILED);
    ::close(opened);
    return memory;
  }
  uint64_t address() const { return reinterpret_cast<uint64_t>(memory_); }
  // Whether the look was not needed.
  bool look() {
    if (file_->is_as_seen()) return true;
    file_->was_seen();
    return false;
  }

  static constexpr auto kLong = std::chrono::milliseconds(150);  // between two times of change
  std::string path_ = testing::TempDir() + "/unchanged-XXXXXX";
  void* memory_ = nullptr;
  std::unique_ptr<UnchangedFile> file_;
};

TEST_F(UnchangedFileTest, AWriterThatHasCome) {
  const int writer = ::open(path_.c_str(), O_WRONLY);
  ASSERT_GE(writer, 0);
  EXPECT_FALSE(look()) << "it may write at any time";
  EXPECT_FALSE(look());
  ASSERT_EQ(::pwrite(writer, "x", 1, 5), 1);
  ::close(writer);
  EXPECT_FALSE(look());
  EXPECT_FALSE(look()) << "another write now might not show";
  std::this_thread::sleep_for(kLong);
  EXPECT_FALSE(look());
  EXPECT_TRUE(look());
}

TEST_F(UnchangedFileTest, AWriterBetweenTwoLooks) {
  EXPECT_TRUE(look());
  const int writer = ::open(path_.c_str(), O_WRONLY);
  ASSERT_EQ(::pwrite(writer, "x", 1, 5), 1);
  ::close(writer);
  std::this_thread::sleep_for(kLong);
  EXPECT_FALSE(look());
  EXPECT_TRUE(look());
}

TEST_F(UnchangedFileTest, AMappingThatIsWritten) {
  auto* const writer = static_cast<char*>(map(PROT_READ | PROT_WRITE));
  writer[7] = 1;
  EXPECT_FALSE(look());
  std::this_thread::sleep_for(kLong);
  EXPECT_FALSE(look());
  EXPECT_FALSE(look()) << "its descriptor is closed, but it may write on";
  writer[7] = 2;
  ::munmap(writer, kBytes);
  EXPECT_FALSE(look());
  EXPECT_TRUE(look());
  auto* const again = static_cast<char*>(map(PROT_READ | PROT_WRITE));
  again[9] = 1;
  ::munmap(again, kBytes);
  std::this_thread::sleep_for(kLong);
  EXPECT_FALSE(look());
}

TEST_F(UnchangedFileTest, ALookThatDidNotEnd) {
  ASSERT_EQ(::truncate(path_.c_str(), kBytes / 2), 0);
  std::this_thread::sleep_for(kLong);
  EXPECT_FALSE(file_->is_as_seen());
  EXPECT_FALSE(file_->is_as_seen());
  file_->was_seen();
  EXPECT_TRUE(file_->is_as_seen());
}

// Whoever opens the file waits for a lease, and gets on; nobody gets a signal.
TEST_F(UnchangedFileTest, WritersBesideLooks) {
  const auto write = [&](int value) {
    const int opened = ::open(path_.c_str(), O_WRONLY);
    EXPECT_EQ(::pwrite(opened, &value, sizeof value, 0), ssize_t{sizeof value});
    ::close(opened);
  };
  std::thread writer([&] {
    for (int i = 0; i < 2000; ++i) write(i);
  });
  for (int i = 0; i < 20000; ++i) (void)look();
  writer.join();
  write(2000);
  EXPECT_FALSE(look());
}

TEST_F(UnchangedFileTest, OtherMemory) {
  const auto of = [](const void* memory, size_t bytes = kBytes) {
    const auto begin = reinterpret_cast<uint64_t>(memory);
    return UnchangedFile::of(begin, begin + bytes);
  };
  EXPECT_NE(of(memory_), nullptr);
  EXPECT_EQ(of(memory_, 16 * kBytes), nullptr) << "it is shorter";
  void* const copied = map(PROT_READ, MAP_PRIVATE);
  EXPECT_EQ(of(copied), nullptr) << "the program may write there";
  ::munmap(copied, kBytes);
  void* const written = map(PROT_READ | PROT_WRITE);
  EXPECT_EQ(of(written), nullptr);
  ::munmap(written, kBytes);
  void* const plain = ::mmap(nullptr, kBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  EXPECT_EQ(of(plain), nullptr);
  ::munmap(plain, kBytes);
  ASSERT_EQ(::unlink(path_.c_str()), 0);
  EXPECT_EQ(of(memory_), nullptr) << "nobody can open it";
  const int made = ::open(path_.c_str(), O_CREAT | O_RDWR, 0600);
  EXPECT_EQ(of(memory_), nullptr) << "this is another one";
  ::close(made);
}

}  // namespace
}  // namespace fargpu
