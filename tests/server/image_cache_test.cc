#include "server/image/image_cache.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "tests/server/keeps_no_modes.h"

namespace fargpu::server {
namespace {

namespace fs = std::filesystem;

std::vector<std::byte> image_of(size_t size, int seed) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i)
    bytes[i] = static_cast<std::byte>((i * 31 + static_cast<size_t>(seed)) & 0xff);
  return bytes;
}

class ImageCacheTest : public ::testing::Test {
 protected:
  ~ImageCacheTest() override { fs::remove_all(folder_); }
  size_t files() const {
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }
  void used_at(std::span<const std::byte> bytes, time_t when) const {
    const timespec times[2] = {{when, 0}, {0, UTIME_OMIT}};
    const std::string path = folder_ + "/" + to_hex(sha256(bytes));
    ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  }
  const std::string folder_ = [] {
    std::string pattern = ::testing::TempDir() + "/fargpu-images-XXXXXX";
    return std::string(::mkdtemp(pattern.data()));
  }();
};

Status put_whole(ImageCache& cache, std::span<const std::byte> bytes) {
  return cache.put(sha256(bytes), bytes);
}

TEST_F(ImageCacheTest, GivesBackWhatWasPutWithANulBehindIt) {
  ImageCache cache(folder_, 1 << 20);
  for (const size_t size : {1u, 4095u, 4096u, 4097u, 8192u}) {  // also where a page ends
    const auto bytes = image_of(size, 1);
    const auto hash = sha256(bytes);
    EXPECT_FALSE(cache.get(hash).has_value());
    ASSERT_TRUE(put_whole(cache, bytes).ok());
    const auto image = cache.get(hash);
    ASSERT_TRUE(image.has_value());
    ASSERT_EQ(image->size(), bytes.size());
    EXPECT_EQ(std::memcmp(image->data(), bytes.data(), bytes.size()), 0);
    EXPECT_EQ(static_cast<const char*>(image->data())[bytes.size()], '\0');
  }
}

TEST_F(ImageCacheTest, PiecesMakeAnImageThatOtherSessionsSee) {
  ImageCache writer(folder_, 1 << 20), reader(folder_, 1 << 20);
  const auto bytes = image_of(10000, 2);
  const auto hash = sha256(bytes);
  const std::span<const std::byte> all(bytes);
  ASSERT_TRUE(writer.put(1, hash, 10000, 0, all.first(4000)).ok());
  ASSERT_TRUE(writer.put(1, hash, 10000, 4000, all.subspan(4000, 5000)).ok());
  EXPECT_FALSE(reader.get(hash).has_value());
  ASSERT_TRUE(writer.put(1, hash, 10000, 9000, all.subspan(9000)).ok());
  EXPECT_TRUE(reader.get(hash).has_value());
}

// No session can put anything under the hash of something else.
TEST_F(ImageCacheTest, AWrongHashIsRefusedAndLeavesNothing) {
  ImageCache cache(folder_, 1 << 20);
  const auto bytes = image_of(100, 3);
  const auto other = sha256(image_of(100, 4));
  EXPECT_EQ(cache.put(1, other, bytes.size(), 0, bytes).code(), StatusCode::kProtocol);
  EXPECT_FALSE(cache.get(other).has_value());
  EXPECT_EQ(files(), 0u);
}

TEST_F(ImageCacheTest, PiecesThatDoNotFitAreRefused) {
  ImageCache cache(folder_, 1 << 20);
  const auto bytes = image_of(1000, 5);
  const auto hash = sha256(bytes);
  const std::span<const std::byte> all(bytes);
  uint64_t upload = 0;
  const auto begun = [&] {
    EXPECT_TRUE(cache.put(++upload, hash, 1000, 0, all.first(400)).ok());
    return upload;
  };
  EXPECT_FALSE(cache.put(++upload, hash, 1000, 500, all.subspan(500)).ok()) << "no beginning";
  EXPECT_FALSE(cache.put(begun(), hash, 1000, 500, all.subspan(500)).ok()) << "a hole";
  EXPECT_FALSE(cache.put(begun(), hash, 1000, 0, all.first(400)).ok()) << "the same once more";
  EXPECT_FALSE(cache.put(begun(), hash, 999, 400, all.subspan(400, 100)).ok()) << "another total";
  EXPECT_FALSE(cache.put(begun(), hash, 1000, 400, all.first(700)).ok()) << "more than announced";
  EXPECT_FALSE(cache.put(begun(), hash, 1000, 400, {}).ok()) << "an empty piece";
  EXPECT_FALSE(cache.put(begun(), sha256({}), 1000, 400, all.subspan(400)).ok()) << "another image";
  EXPECT_FALSE(cache.put(++upload, hash, 0, 0, {}).ok());
  EXPECT_FALSE(cache.put(begun(), hash, 1000, ~uint64_t{0} - 10, all.first(100)).ok())
      << "an offset that overflows";
  EXPECT_EQ(files(), 0u);
}

TEST_F(ImageCacheTest, UploadsOfOneImageAtOnceAllArrive) {
  ImageCache cache(folder_, 1 << 20), of_another_session(folder_, 1 << 20);
  const auto bytes = image_of(1000, 6);
  const auto hash = sha256(bytes);
  const std::span<const std::byte> all(bytes);
  ASSERT_TRUE(cache.put(1, hash, 1000, 0, all.first(300)).ok());
  ASSERT_TRUE(cache.put(2, hash, 1000, 0, all.first(500)).ok());
  ASSERT_TRUE(of_another_session.put(1, hash, 1000, 0, all.first(900)).ok());
  ASSERT_TRUE(cache.put(1, hash, 1000, 300, all.subspan(300)).ok());
  EXPECT_TRUE(cache.get(hash).has_value());
  ASSERT_TRUE(cache.put(2, hash, 1000, 500, all.subspan(500)).ok());
  ASSERT_TRUE(of_another_session.put(1, hash, 1000, 900, all.subspan(900)).ok());
  EXPECT_TRUE(of_another_session.get(hash).has_value());
  EXPECT_EQ(files(), 1u);
}

TEST_F(ImageCacheTest, AFailedUploadLeavesOthersOfTheImageAlone) {
  ImageCache cache(folder_, 1 << 20);
  const auto bytes = image_of(1000, 6), wrong = image_of(1000, 7);
  const auto hash = sha256(bytes);
  const std::span<const std::byte> all(bytes), bad(wrong);
  ASSERT_TRUE(cache.put(1, hash, 1000, 0, all.first(500)).ok());
  ASSERT_TRUE(cache.put(2, hash, 1000, 0, bad.first(500)).ok());
  EXPECT_FALSE(cache.put(2, hash, 1000, 500, bad.subspan(500)).ok());
  EXPECT_FALSE(cache.put(2, hash, 1000, 0, all).ok()) << "it is over";
  ASSERT_TRUE(cache.put(1, hash, 1000, 500, all.subspan(500)).ok());
  EXPECT_TRUE(cache.get(hash).has_value());
  EXPECT_EQ(cache.result_of(2).code(), StatusCode::kProtocol);
  EXPECT_TRUE(cache.result_of(2).ok()) << "asked once";
  EXPECT_TRUE(cache.result_of(1).ok());
}

TEST_F(ImageCacheTest, AnUploadThatIsAskedForTooEarlyHasFailed) {
  ImageCache cache(folder_, 1 << 20);
  const auto bytes = image_of(1000, 6);
  ASSERT_TRUE(cache.put(1, sha256(bytes), 1000, 0, std::span(bytes).first(500)).ok());
  EXPECT_EQ(cache.result_of(1).code(), StatusCode::kProtocol);
  EXPECT_EQ(files(), 0u);
}

TEST_F(ImageCacheTest, TheLeastRecentlyUsedGoesWhenTheCapIsReached) {
  ImageCache cache(folder_, 2500);
  const auto first = image_of(1000, 7), second = image_of(1000, 8), third = image_of(1000, 9);
  ASSERT_TRUE(put_whole(cache, first).ok());
  ASSERT_TRUE(put_whole(cache, second).ok());
  // Used in this order, whatever the clock of the file system resolves.
  used_at(first, 2000);
  used_at(second, 1000);
  ASSERT_TRUE(put_whole(cache, third).ok());
  EXPECT_TRUE(cache.get(sha256(first)).has_value());
  EXPECT_FALSE(cache.get(sha256(second)).has_value());
  EXPECT_TRUE(cache.get(sha256(third)).has_value());
}

TEST_F(ImageCacheTest, WhatIsNoImageStays) {
  for (const char* name : {"lock", "0123456789abcdef"})
    std::ofstream(folder_ + "/" + name) << std::string(2500, 'x');
  ImageCache cache(folder_, 2500);
  ASSERT_TRUE(put_whole(cache, image_of(1000, 7)).ok());
  EXPECT_TRUE(fs::exists(folder_ + "/lock"));
  EXPECT_TRUE(fs::exists(folder_ + "/0123456789abcdef"));
}

TEST_F(ImageCacheTest, AnImageLargerThanTheCapIsRefusedBeforeItsBytes) {
  ImageCache cache(folder_, 2500);
  const auto bytes = image_of(100, 10);
  EXPECT_FALSE(cache.put(1, sha256(bytes), 2501, 0, bytes).ok());
  EXPECT_EQ(files(), 0u);
}

TEST_F(ImageCacheTest, NothingIsKeptWhereTheFileSystemKeepsNoModes) {
  ImageCache cache(folder_, 1 << 20);
  const auto bytes = image_of(1000, 7);
  const KeepsNoModes file_system;
  const Status status = cache.put(1, sha256(bytes), bytes.size(), 0, bytes);
  EXPECT_EQ(status.code(), StatusCode::kSystem);
  EXPECT_NE(status.message().find(folder_ + " does not keep the mode 0400"), std::string::npos)
      << status.message();
  EXPECT_EQ(files(), 0u);
}

// Uploads that nobody goes on with give way to new ones.
TEST_F(ImageCacheTest, AbandonedUploadsAreGivenUpAndUnfinishedOnesGoWithTheSession) {
  {
    ImageCache cache(folder_, 1 << 20);
    const auto bytes = image_of(1000, 0);
    const auto hash = sha256(bytes);
    const std::span<const std::byte> all(bytes);
    ASSERT_TRUE(cache.put(1, hash, 1000, 0, all.first(10)).ok());
    for (uint64_t i = 2; i < 2 + 2 * ImageCache::kMaxUploads; ++i) {
      ASSERT_TRUE(cache.put(i, hash, 1000, 0, all.first(500)).ok());
      ASSERT_TRUE(cache.put(1, hash, 1000, 10 * (i - 1), all.subspan(10 * (i - 1), 10)).ok())
          << "it goes on, if slowly";
      EXPECT_LE(files(), ImageCache::kMaxUploads);
    }
    EXPECT_EQ(cache.result_of(2).code(), StatusCode::kProtocol);
  }
  EXPECT_EQ(files(), 0u);
}

TEST_F(ImageCacheTest, SoManyFailuresAreRemembered) {
  ImageCache cache(folder_, 1 << 20);
  const auto bytes = image_of(64, 0);
  for (uint64_t i = 1; i <= ImageCache::kMaxFailures + 1; ++i)
    EXPECT_FALSE(cache.put(i, sha256(bytes), 64, 10, bytes).ok());
  EXPECT_TRUE(cache.result_of(1).ok());
  EXPECT_FALSE(cache.result_of(2).ok());
}

// Memory of a client that is mapped twice, as for its GPU: what is written here is seen there.
class TwoMappings {
 public:
  explicit TwoMappings(std::span<const std::byte> bytes) : size_(bytes.size()) {
    const Fd file(::memfd_create("piece", MFD_CLOEXEC));
    EXPECT_EQ(::ftruncate(file.get(), static_cast<off_t>(size_)), 0);
    here_ = map(file);
    there_ = map(file);
    std::memcpy(here_, bytes.data(), size_);
  }
  TwoMappings(const TwoMappings&) = delete;
  TwoMappings& operator=(const TwoMappings&) = delete;
  ~TwoMappings() {
    ::munmap(here_, size_);
    ::munmap(there_, size_);
  }
  std::byte* here() const { return here_; }
  std::span<const std::byte> there() const { return {there_, size_}; }

 private:
  std::byte* map(const Fd& file) const {
    void* const at = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    EXPECT_NE(at, MAP_FAILED);
    return static_cast<std::byte*>(at);
  }
  const size_t size_;
  std::byte *here_ = nullptr, *there_ = nullptr;
};

// A byte is right and wrong by turns, as a kernel that runs meanwhile may write it.
void flip(std::byte* at, const std::stop_token& end) {
  auto* const byte = reinterpret_cast<volatile std::byte*>(at);
  const std::byte right = *byte;
  while (!end.stop_requested()) {
    for (const std::byte next : {~right, right}) {
      *byte = next;
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }
}

TEST_F(ImageCacheTest, WhatIsKeptHasItsHashWhenThePieceChangesMeanwhile) {
  ImageCache cache(folder_, 8 << 20);
  const auto bytes = image_of(1 << 20, 14);
  const auto hash = sha256(bytes);
  const TwoMappings memory(bytes);
  const std::jthread kernel(
      [&](const std::stop_token& end) { flip(memory.here() + bytes.size() / 2, end); });
  int kept = 0, refused = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  for (uint64_t upload = 1; std::chrono::steady_clock::now() < end; ++upload) {
    if (!cache.put(upload, hash, bytes.size(), 0, memory.there()).ok()) {
      ++refused;
      continue;
    }
    ++kept;
    const auto image = cache.get(hash);
    ASSERT_TRUE(image.has_value());
    ASSERT_EQ(std::memcmp(image->data(), bytes.data(), bytes.size()), 0)
        << "after " << kept << " that are right";
  }
  EXPECT_GT(kept, 0);
  EXPECT_GT(refused, 0) << "it has not changed meanwhile";
}

// A file that is not as it was kept counts as not there, and the image can come again.
class NotAsItWasKept : public ImageCacheTest {
 protected:
  void SetUp() override {
    ASSERT_TRUE(put_whole(cache_, bytes_).ok());
    path_ = folder_ + "/" + to_hex(hash_);
    ASSERT_TRUE(cache_.get(hash_).has_value());
  }
  void expect_not_there() {
    EXPECT_FALSE(cache_.get(hash_).has_value());
    EXPECT_EQ(files(), 0u);
    ASSERT_TRUE(put_whole(cache_, bytes_).ok());
    EXPECT_TRUE(cache_.get(hash_).has_value());
  }
  // As by somebody who may write it.
  void write(const std::string& text) {
    const Fd file(::open(path_.c_str(), O_RDONLY));
    ASSERT_EQ(::fchmod(file.get(), 0600), 0);
    std::fstream(path_, std::ios::in | std::ios::out) << text;
    ASSERT_EQ(::fchmod(file.get(), 0400), 0);
  }
  void resize(off_t bytes) {
    ASSERT_EQ(::chmod(path_.c_str(), 0600), 0);
    ASSERT_EQ(::truncate(path_.c_str(), bytes), 0);
    ASSERT_EQ(::chmod(path_.c_str(), 0400), 0);
  }

  ImageCache cache_{folder_, 1 << 20};
  const std::vector<std::byte> bytes_ = image_of(1000, 11);
  const Sha256Digest hash_ = sha256(bytes_);
  std::string path_;
};

TEST_F(NotAsItWasKept, Shorter) {
  resize(999);
  expect_not_there();
}

TEST_F(NotAsItWasKept, Longer) {
  resize(1001);
  expect_not_there();
}

TEST_F(NotAsItWasKept, WithOtherContents) {
  write("damaged");
  expect_not_there();
}

TEST_F(NotAsItWasKept, WritableByItsOwner) {
  ASSERT_EQ(::chmod(path_.c_str(), 0600), 0);
  expect_not_there();
}

TEST_F(NotAsItWasKept, ReadableByOthers) {
  ASSERT_EQ(::chmod(path_.c_str(), 0444), 0);
  expect_not_there();
}

TEST_F(NotAsItWasKept, OfAnotherUser) {
  constexpr uid_t kNobody = 65534;
  const uid_t another = ::geteuid() == kNobody ? kNobody - 1 : kNobody;
  if (::chown(path_.c_str(), another, gid_t(-1)) != 0)
    GTEST_SKIP() << "only root may give a file away";
  expect_not_there();
}

// Not followed: what it leads to may be somebody's trap. A new image takes its place.
TEST_F(NotAsItWasKept, ALink) {
  const std::string elsewhere = folder_ + "/elsewhere";
  fs::rename(path_, elsewhere);
  fs::create_symlink(elsewhere, path_);
  EXPECT_FALSE(cache_.get(hash_).has_value());
  ASSERT_TRUE(put_whole(cache_, bytes_).ok());
  EXPECT_TRUE(cache_.get(hash_).has_value());
  EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(path_)));
}

// A load goes on with the image that it has.
TEST_F(ImageCacheTest, AnImageInUseStaysWhenItsFileGoes) {
  ImageCache cache(folder_, 1500);
  const auto first = image_of(1000, 12), second = image_of(1000, 13);
  ASSERT_TRUE(put_whole(cache, first).ok());
  const auto image = cache.get(sha256(first));
  ASSERT_TRUE(image.has_value());
  ASSERT_TRUE(put_whole(cache, second).ok());
  EXPECT_FALSE(cache.get(sha256(first)).has_value());
  EXPECT_EQ(std::memcmp(image->data(), first.data(), first.size()), 0);
}

}  // namespace
}  // namespace fargpu::server
