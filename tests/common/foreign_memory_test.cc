#include "common/host/foreign_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "common/host/mapped_memory.h"

namespace {

// What the system is asked for: calls, and pieces of another process's memory, whose places it
// looks up one by one.
size_t calls = 0, places = 0;

}  // namespace

// In place of the C library's.
extern "C" ssize_t process_vm_readv(pid_t process, const struct iovec* local, unsigned long locals,
                                    const struct iovec* remote, unsigned long remotes,
                                    unsigned long flags) {
  ++calls;
  places += remotes;
  return ::syscall(SYS_process_vm_readv, process, local, locals, remote, remotes, flags);
}
extern "C" ssize_t process_vm_writev(pid_t process, const struct iovec* local, unsigned long locals,
                                     const struct iovec* remote, unsigned long remotes,
                                     unsigned long flags) {
  ++calls;
  places += remotes;
  return ::syscall(SYS_process_vm_writev, process, local, locals, remote, remotes, flags);
}

namespace fargpu {
namespace {

constexpr size_t kPage = 4096;

// Pages of this process: 0, 1, 2, ... in their bytes.
class ForeignMemoryTest : public testing::Test {
 protected:
  ForeignMemoryTest() {
    void* const memory =
        ::mmap(nullptr, kPages * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(memory, MAP_FAILED);
    bytes_ = static_cast<std::byte*>(memory);
    for (size_t page = 0; page < kPages; ++page)
      std::fill_n(bytes_ + page * kPage, kPage, static_cast<std::byte>(page));
  }
  ~ForeignMemoryTest() override { ::munmap(bytes_, kPages * kPage); }
  uint64_t at(size_t page) const { return reinterpret_cast<uint64_t>(bytes_) + page * kPage; }
  void unmap(size_t page) { ::munmap(bytes_ + page * kPage, kPage); }
  void protect(size_t page, int how) { ::mprotect(bytes_ + page * kPage, kPage, how); }

  static constexpr size_t kPages = 8;
  std::byte* bytes_ = nullptr;
  std::vector<std::byte> buffer_ = std::vector<std::byte>(kPages * kPage);
};

TEST_F(ForeignMemoryTest, CopiesUpToWhatIsGone) {
  errno = 77;
  CopiedPart part = read_foreign(at(0), buffer_);
  EXPECT_EQ(part.bytes, buffer_.size());
  EXPECT_FALSE(part.gone);
  unmap(3);
  part = read_foreign(at(1) + 100, std::span(buffer_).first(4 * kPage));
  EXPECT_EQ(part.bytes, 2 * kPage - 100);
  EXPECT_TRUE(part.gone);
  EXPECT_EQ(buffer_[kPage], std::byte{2});
  part = write_foreign(at(2), std::vector<std::byte>(2 * kPage, std::byte{9}));
  EXPECT_EQ(part.bytes, kPage);
  EXPECT_TRUE(part.gone);
  EXPECT_EQ(bytes_[3 * kPage - 1], std::byte{9});
  part = read_foreign(at(3), std::span(buffer_).first(1));
  EXPECT_EQ(part.bytes, 0u);
  EXPECT_TRUE(part.gone);
  EXPECT_EQ(errno, 77);
}

TEST_F(ForeignMemoryTest, ProtectionDoesNotCount) {
  protect(1, PROT_NONE);
  protect(2, PROT_READ);
  const CopiedPart read = read_foreign(at(0), std::span(buffer_).first(4 * kPage));
  EXPECT_EQ(read.bytes, 4 * kPage);
  EXPECT_EQ(buffer_[kPage], std::byte{1});
  const CopiedPart written = write_foreign(at(0), std::vector<std::byte>(4 * kPage, std::byte{5}));
  EXPECT_EQ(written.bytes, 4 * kPage);
  protect(1, PROT_READ);
  EXPECT_EQ(bytes_[kPage], std::byte{5});
  EXPECT_EQ(bytes_[3 * kPage - 1], std::byte{5});
}

TEST_F(ForeignMemoryTest, AFileThatWasCutIsGone) {
  const int file = ::memfd_create("cut", 0);
  ASSERT_EQ(::ftruncate(file, 2 * kPage), 0);
  ASSERT_NE(::mmap(bytes_, 2 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0),
            MAP_FAILED);
  ASSERT_EQ(::ftruncate(file, kPage), 0);
  ::close(file);
  const CopiedPart part = read_foreign(at(0), std::span(buffer_).first(3 * kPage));
  EXPECT_EQ(part.bytes, kPage);
  EXPECT_TRUE(part.gone);
  EXPECT_EQ(end_of_hole(at(1)), 0u) << "it is mapped all the same";
  EXPECT_FALSE(is_accessible(at(0), 2 * kPage, MemoryUse::kRead));
}

TEST_F(ForeignMemoryTest, WritesManyPieces) {
  const std::byte value{0xab};
  std::vector<ForeignPiece> pieces;
  for (size_t i = 0; i < 1000; ++i) pieces.push_back({at(0) + 32 * i, {&value, 1}});
  unmap(1);
  write_foreign_pieces(pieces);
  for (size_t i = 0; i < 1000; ++i) {
    const size_t offset = 32 * i;
    if (offset / kPage == 1) continue;
    ASSERT_EQ(bytes_[offset], value) << i;
  }
  EXPECT_EQ(bytes_[1], std::byte{0});
}

TEST_F(ForeignMemoryTest, PiecesAreNotLookedUpOneByOne) {
  std::vector<std::byte> bytes(kPages * kPage, std::byte{0xab});
  std::vector<ForeignPiece> pieces;
  for (size_t i = 0; i < bytes.size(); i += 4)
    pieces.push_back({at(0) + i, std::span(bytes).subspan(i, 3)});
  calls = places = 0;
  write_foreign_pieces(pieces);
  EXPECT_LE(calls, pieces.size() / 256);
  EXPECT_LE(places, pieces.size() / 256);
  for (size_t i = 0; i < bytes.size(); ++i)
    ASSERT_EQ(bytes_[i], i % 4 == 3 ? static_cast<std::byte>(i / kPage) : std::byte{0xab}) << i;
}

TEST_F(ForeignMemoryTest, WritesPiecesPastProtectionAndLargeOnes) {
  std::vector<std::byte> bytes(kPages * kPage, std::byte{0xab});
  const auto piece = [&](size_t from, size_t length) {
    return ForeignPiece{at(0) + from, std::span(bytes).first(length)};
  };
  protect(1, PROT_READ);
  unmap(2);
  // Over the end of a page into one that cannot be written, or is not there.
  const std::vector<ForeignPiece> pieces = {
      piece(0, 10),          piece(kPage - 5, 10),        piece(2 * kPage - 5, 10),
      piece(3 * kPage, 100), piece(4 * kPage, 3 * kPage), piece(7 * kPage + 1, 7)};
  write_foreign_pieces(pieces);
  size_t written = 0;
  for (size_t i = 0; i < kPages * kPage; ++i)
    written += i / kPage != 2 && bytes_[i] == std::byte{0xab} ? 1 : 0;
  EXPECT_EQ(written, 10u + 10 + 5 + 100 + 3 * kPage + 7);
}

TEST_F(ForeignMemoryTest, TellsWhatIsAccessible) {
  EXPECT_TRUE(is_accessible(at(0), kPages * kPage, MemoryUse::kWrite));
  EXPECT_TRUE(is_accessible(at(0) + 5, 1, MemoryUse::kWrite));
  protect(2, PROT_READ);
  EXPECT_TRUE(is_accessible(at(0), 3 * kPage, MemoryUse::kRead));
  EXPECT_FALSE(is_accessible(at(0), 3 * kPage, MemoryUse::kWrite));
  protect(2, PROT_NONE);
  EXPECT_FALSE(is_accessible(at(0), 3 * kPage, MemoryUse::kRead));
  EXPECT_TRUE(is_accessible(at(0), 2 * kPage, MemoryUse::kWrite));
  unmap(4);
  unmap(5);
  EXPECT_FALSE(is_accessible(at(3), 2 * kPage, MemoryUse::kRead));
  EXPECT_EQ(end_of_hole(at(4) + 7), at(6));
  EXPECT_EQ(end_of_hole(at(6)), 0u);
}

}  // namespace
}  // namespace fargpu
