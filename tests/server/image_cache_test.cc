#include "server/image_cache.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

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
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/fargpu-images-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }
  size_t files() const {
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }
  std::string folder_;
};

Status put_whole(ImageCache& cache, std::span<const std::byte> bytes) {
  return cache.put(sha256(bytes), bytes.size(), 0, bytes);
}

TEST_F(ImageCacheTest, GivesBackWhatWasPutWithANulBehindIt) {
  ImageCache cache(folder_, 1 << 20);
  const auto bytes = image_of(5000, 1);
  const auto hash = sha256(bytes);
  EXPECT_FALSE(cache.get(hash).has_value());
  ASSERT_TRUE(put_whole(cache, bytes).ok());
  const auto image = cache.get(hash);
  ASSERT_TRUE(image.has_value());
  ASSERT_EQ(image->size(), bytes.size());
  EXPECT_EQ(std::memcmp(image->data(), bytes.data(), bytes.size()), 0);
  EXPECT_EQ(static_cast<const char*>(image->data())[bytes.size()], '\0');
}

TEST_F(ImageCacheTest, PiecesMakeAnImageThatOtherSessionsSee) {
  ImageCache writer(folder_, 1 << 20), reader(folder_, 1 << 20);
  const auto bytes = image_of(10000, 2);
  const auto hash = sha256(bytes);
  const std::span<const std::byte> all(bytes);
  ASSERT_TRUE(writer.put(hash, 10000, 0, all.first(4000)).ok());
  ASSERT_TRUE(writer.put(hash, 10000, 4000, all.subspan(4000, 5000)).ok());
  EXPECT_FALSE(reader.get(hash).has_value());
  ASSERT_TRUE(writer.put(hash, 10000, 9000, all.subspan(9000)).ok());
  EXPECT_TRUE(reader.get(hash).has_value());
}

// No session can put anything under the hash of something else.
TEST_F(ImageCacheTest, AWrongHashIsRefusedAndLeavesNothing) {
  ImageCache cache(folder_, 1 << 20);
  const auto bytes = image_of(100, 3);
  const auto other = sha256(image_of(100, 4));
  EXPECT_EQ(cache.put(other, bytes.size(), 0, bytes).code(), StatusCode::kProtocol);
  EXPECT_FALSE(cache.get(other).has_value());
  EXPECT_EQ(files(), 0u);
}

TEST_F(ImageCacheTest, PiecesThatDoNotFitAreRefused) {
  ImageCache cache(folder_, 1 << 20);
  const auto bytes = image_of(1000, 5);
  const auto hash = sha256(bytes);
  const std::span<const std::byte> all(bytes);
  EXPECT_FALSE(cache.put(hash, 1000, 500, all.subspan(500)).ok()) << "no beginning";
  ASSERT_TRUE(cache.put(hash, 1000, 0, all.first(400)).ok());
  EXPECT_FALSE(cache.put(hash, 1000, 500, all.subspan(500)).ok()) << "a hole";
  EXPECT_FALSE(cache.put(hash, 999, 400, all.subspan(400, 100)).ok()) << "another total";
  EXPECT_FALSE(cache.put(hash, 1000, 400, all.first(700)).ok()) << "more than announced";
  EXPECT_FALSE(cache.put(hash, 1000, 400, {}).ok()) << "an empty piece";
  EXPECT_FALSE(cache.put(hash, 0, 0, {}).ok());
  EXPECT_FALSE(cache.put(hash, 1000, ~uint64_t{0} - 10, all.first(100)).ok())
      << "an offset that overflows";
}

TEST_F(ImageCacheTest, ASecondThreadsUploadOfTheSameImageDoesNoHarm) {
  ImageCache cache(folder_, 1 << 20);
  const auto bytes = image_of(1000, 6);
  const auto hash = sha256(bytes);
  const std::span<const std::byte> all(bytes);
  ASSERT_TRUE(cache.put(hash, 1000, 0, all.first(500)).ok());
  ASSERT_TRUE(cache.put(hash, 1000, 0, all.first(500)).ok());
  ASSERT_TRUE(cache.put(hash, 1000, 500, all.subspan(500)).ok());
  EXPECT_TRUE(cache.put(hash, 1000, 500, all.subspan(500)).ok());
  EXPECT_TRUE(cache.get(hash).has_value());
}

TEST_F(ImageCacheTest, TheLeastRecentlyUsedGoesWhenTheCapIsReached) {
  ImageCache cache(folder_, 2500);
  const auto first = image_of(1000, 7), second = image_of(1000, 8), third = image_of(1000, 9);
  ASSERT_TRUE(put_whole(cache, first).ok());
  ASSERT_TRUE(put_whole(cache, second).ok());
  // Used in this order, whatever the clock of the file system resolves.
  const auto now = fs::file_time_type::clock::now();
  fs::last_write_time(folder_ + "/" + to_hex(sha256(first)), now - std::chrono::hours(1));
  fs::last_write_time(folder_ + "/" + to_hex(sha256(second)), now - std::chrono::hours(2));
  ASSERT_TRUE(put_whole(cache, third).ok());
  EXPECT_TRUE(cache.get(sha256(first)).has_value());
  EXPECT_FALSE(cache.get(sha256(second)).has_value());
  EXPECT_TRUE(cache.get(sha256(third)).has_value());
}

TEST_F(ImageCacheTest, AnImageLargerThanTheCapIsRefusedBeforeItsBytes) {
  ImageCache cache(folder_, 2500);
  const auto bytes = image_of(100, 10);
  EXPECT_FALSE(cache.put(sha256(bytes), 2501, 0, bytes).ok());
  EXPECT_EQ(files(), 0u);
}

TEST_F(ImageCacheTest, UploadsAtOnceAreLimitedAndUnfinishedOnesGoWithTheSession) {
  {
    ImageCache cache(folder_, 1 << 20);
    const auto bytes = image_of(64, 0);
    size_t accepted = 0;
    for (int i = 0; i < 40; ++i) {
      if (cache.put(sha256(image_of(64, i)), 1000, 0, bytes).ok()) ++accepted;
    }
    EXPECT_EQ(accepted, ImageCache::kMaxUploads);
  }
  EXPECT_EQ(files(), 0u);
}

TEST_F(ImageCacheTest, ADamagedFileCountsAsNotThere) {
  ImageCache cache(folder_, 1 << 20);
  const auto bytes = image_of(1000, 11);
  ASSERT_TRUE(put_whole(cache, bytes).ok());
  std::ofstream(folder_ + "/" + to_hex(sha256(bytes)), std::ios::trunc) << "damaged";
  EXPECT_FALSE(cache.get(sha256(bytes)).has_value());
  EXPECT_EQ(files(), 0u);
  ASSERT_TRUE(put_whole(cache, bytes).ok());
  EXPECT_TRUE(cache.get(sha256(bytes)).has_value());
}

}  // namespace
}  // namespace fargpu::server
