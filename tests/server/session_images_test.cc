#include "server/image/session_images.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <map>
#include <set>
#include <thread>
#include <vector>
namespace fargpu::server {
namespace {

std::vector<std::byte> image_of(size_t size, int seed) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i)
    bytes[i] = static_cast<std::byte>((i * 31 + static_cast<size_t>(seed)) & 0xff);
  return bytes;
}

// Keeps what it is told to, and notes what has ended.
class FakeSource final : public ImageSource {
 public:
  Result<Fd> begin(uint32_t upload, uint64_t bytes) override {
    if (refuses) return Status(StatusCode::kNoCapacity, "no room");
    open.insert(upload);
    return ImageSource::begin(upload, bytes);
  }
  bool keep(uint32_t upload, const Sha256Digest&) override {
    asked.push_back(upload);
    return answers;
  }
  void end(uint32_t upload) override { open.erase(upload); }
  Fd find(const Sha256Digest& hash) override {
    ++finds;
    const auto found = images.find(hash);
    return found == images.end() ? Fd() : Fd(::dup(found->second.get()));
  }

  bool refuses = false, answers = false;
  std::set<uint32_t> open;
  std::vector<uint32_t> asked;
  std::map<Sha256Digest, Fd> images;
  int finds = 0;
};

class SessionImagesTest : public ::testing::Test {
 protected:
  FakeSource source_;
};

Status put_whole(SessionImages& images, std::span<const std::byte> bytes) {
  static uint64_t upload = 1000;
  return images.put(++upload, sha256(bytes), bytes.size(), 0, bytes);
}

TEST_F(SessionImagesTest, GivesBackWhatWasPutWithANulBehindIt) {
  SessionImages cache(source_, 1 << 20);
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

TEST_F(SessionImagesTest, PiecesMakeAnImage) {
  SessionImages images(source_, 1 << 20);
  const auto bytes = image_of(10000, 2);
  const auto hash = sha256(bytes);
  const std::span<const std::byte> all(bytes);
  ASSERT_TRUE(images.put(1, hash, 10000, 0, all.first(4000)).ok());
  ASSERT_TRUE(images.put(1, hash, 10000, 4000, all.subspan(4000, 5000)).ok());
  EXPECT_FALSE(images.get(hash).has_value());
  EXPECT_TRUE(source_.asked.empty());
  ASSERT_TRUE(images.put(1, hash, 10000, 9000, all.subspan(9000)).ok());
  EXPECT_EQ(source_.asked.size(), 1u);
  EXPECT_TRUE(images.get(hash).has_value());
}

// No session can put anything under the hash of something else.
TEST_F(SessionImagesTest, AWrongHashIsRefusedAndLeavesNothing) {
  SessionImages cache(source_, 1 << 20);
  const auto bytes = image_of(100, 3);
  const auto other = sha256(image_of(100, 4));
  EXPECT_EQ(cache.put(1, other, bytes.size(), 0, bytes).code(), StatusCode::kProtocol);
  EXPECT_FALSE(cache.get(other).has_value());
  EXPECT_TRUE(source_.open.empty());
}

TEST_F(SessionImagesTest, PiecesThatDoNotFitAreRefused) {
  SessionImages cache(source_, 1 << 20);
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
  EXPECT_TRUE(source_.open.empty());
}

TEST_F(SessionImagesTest, UploadsOfOneImageAtOnceAllArrive) {
  SessionImages images(source_, 1 << 20);
  source_.answers = true;
  const auto bytes = image_of(1000, 6);
  const auto hash = sha256(bytes);
  const std::span<const std::byte> all(bytes);
  ASSERT_TRUE(images.put(1, hash, 1000, 0, all.first(300)).ok());
  ASSERT_TRUE(images.put(2, hash, 1000, 0, all.first(500)).ok());
  ASSERT_TRUE(images.put(1, hash, 1000, 300, all.subspan(300)).ok());
  EXPECT_TRUE(images.get(hash).has_value());
  ASSERT_TRUE(images.put(2, hash, 1000, 500, all.subspan(500)).ok());
  EXPECT_TRUE(images.get(hash).has_value());
}

TEST_F(SessionImagesTest, AFailedUploadLeavesOthersOfTheImageAlone) {
  SessionImages cache(source_, 1 << 20);
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

TEST_F(SessionImagesTest, AnUploadThatIsAskedForTooEarlyHasFailed) {
  SessionImages cache(source_, 1 << 20);
  const auto bytes = image_of(1000, 6);
  ASSERT_TRUE(cache.put(1, sha256(bytes), 1000, 0, std::span(bytes).first(500)).ok());
  EXPECT_EQ(cache.result_of(1).code(), StatusCode::kProtocol);
  EXPECT_TRUE(source_.open.empty());
}

TEST_F(SessionImagesTest, AnImageLargerThanTheCapIsRefusedBeforeItsBytes) {
  SessionImages cache(source_, 2500);
  const auto bytes = image_of(100, 10);
  EXPECT_FALSE(cache.put(1, sha256(bytes), 2501, 0, bytes).ok());
  EXPECT_TRUE(source_.open.empty());
}

// Uploads that nobody goes on with give way to new ones.
TEST_F(SessionImagesTest, AbandonedUploadsAreGivenUp) {
  SessionImages images(source_, 1 << 20);
  const auto bytes = image_of(1000, 0);
  const auto hash = sha256(bytes);
  const std::span<const std::byte> all(bytes);
  ASSERT_TRUE(images.put(1, hash, 1000, 0, all.first(10)).ok());
  for (uint64_t i = 2; i < 2 + 2 * SessionImages::kMaxUploads; ++i) {
    ASSERT_TRUE(images.put(i, hash, 1000, 0, all.first(500)).ok());
    ASSERT_TRUE(images.put(1, hash, 1000, 10 * (i - 1), all.subspan(10 * (i - 1), 10)).ok())
        << "it goes on, if slowly";
    EXPECT_LE(source_.open.size(), SessionImages::kMaxUploads);
  }
  EXPECT_EQ(images.result_of(2).code(), StatusCode::kProtocol);
}

TEST_F(SessionImagesTest, SoManyFailuresAreRemembered) {
  SessionImages cache(source_, 1 << 20);
  const auto bytes = image_of(64, 0);
  for (uint64_t i = 1; i <= SessionImages::kMaxFailures + 1; ++i)
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

TEST_F(SessionImagesTest, WhatIsKeptHasItsHashWhenThePieceChangesMeanwhile) {
  SessionImages cache(source_, 8 << 20);
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

// --- what is kept, and what is not

TEST_F(SessionImagesTest, WhatTheSourceHasIsNotInMemoryTwice) {
  SessionImages images(source_, 1 << 20);
  source_.answers = true;
  const auto bytes = image_of(1000, 1);
  ASSERT_TRUE(put_whole(images, bytes).ok());
  const uint32_t upload = source_.asked.at(0);
  ASSERT_TRUE(images.get(sha256(bytes)).has_value()) << "until then from memory";
  EXPECT_EQ(source_.finds, 0);
  source_.open.clear();  // as the daemon ends an upload that it keeps
  images.kept(upload, true);
  EXPECT_FALSE(images.get(sha256(bytes)).has_value());
  EXPECT_EQ(source_.finds, 1);
}

TEST_F(SessionImagesTest, WhatIsNotKeptIsLoadedFromMemoryAndGoes) {
  SessionImages images(source_, 1 << 20);
  source_.answers = true;
  const auto bytes = image_of(1000, 1), other = image_of(1000, 2);
  ASSERT_TRUE(put_whole(images, bytes).ok());
  images.kept(source_.asked.at(0), false);
  EXPECT_EQ(source_.open.size(), 1u) << "it has not been loaded";
  {
    const auto loaded = images.get(sha256(bytes));
    ASSERT_TRUE(loaded.has_value());
    EXPECT_TRUE(source_.open.empty());
    EXPECT_TRUE(images.get(sha256(bytes)).has_value()) << "while it is being loaded";
  }
  EXPECT_FALSE(images.get(sha256(bytes)).has_value());
  // In the other order.
  ASSERT_TRUE(put_whole(images, other).ok());
  ASSERT_TRUE(images.get(sha256(other)).has_value());
  EXPECT_EQ(source_.open.size(), 1u);
  images.kept(source_.asked.at(1), false);
  EXPECT_TRUE(source_.open.empty());
}

TEST_F(SessionImagesTest, ASourceWithoutRoomRefusesAnUploadBeforeItsBytes) {
  SessionImages images(source_, 1 << 20);
  source_.refuses = true;
  const auto bytes = image_of(1000, 1);
  EXPECT_EQ(images.put(1, sha256(bytes), 1000, 0, std::span(bytes).first(10)).code(),
            StatusCode::kNoCapacity);
  EXPECT_EQ(images.result_of(1).code(), StatusCode::kNoCapacity);
}

TEST_F(SessionImagesTest, AnUploadThatIsRevokedHasFailed) {
  SessionImages images(source_, 1 << 20);
  source_.answers = true;
  const auto bytes = image_of(1000, 1);
  ASSERT_TRUE(images.put(1, sha256(bytes), 1000, 0, std::span(bytes).first(10)).ok());
  images.revoked(*source_.open.begin());
  EXPECT_EQ(images.result_of(1).code(), StatusCode::kNoCapacity);
  ASSERT_TRUE(put_whole(images, bytes).ok());
  images.revoked(*source_.open.begin());
  EXPECT_FALSE(images.get(sha256(bytes)).has_value());
}

TEST_F(SessionImagesTest, ASessionHasNoMoreInMemoryThanTheLargestImage) {
  SessionImages images(source_, 3000);
  source_.answers = true;
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(put_whole(images, image_of(1000, i)).ok());
    EXPECT_LE(source_.open.size(), 3u);
  }
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(put_whole(images, image_of(1, i)).ok());
  EXPECT_LE(source_.open.size(), SessionImages::kMaxWhole);
}

TEST_F(SessionImagesTest, OnlyWhatASessionHasInMemoryIsForItsClient) {
  SessionImages images(source_, 1 << 20);
  const auto linked = image_of(1000, 1), others = image_of(1000, 2);
  const auto own_hash = sha256(linked), hash = sha256(others);
  ASSERT_TRUE(images.put_linked(own_hash, linked).ok());
  EXPECT_TRUE(source_.asked.empty());
  source_.images[hash] = Fd(::memfd_create("image", MFD_CLOEXEC));
  ASSERT_EQ(::write(source_.images[hash].get(), others.data(), others.size()), 1000);
  const auto bytes_of = [](const Sha256Digest& digest) { return std::as_bytes(std::span(digest)); };
  EXPECT_TRUE(images.find_own(bytes_of(own_hash)).ok());
  EXPECT_EQ(images.find_own(bytes_of(hash)).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(images.find_own({}).status().code(), StatusCode::kNotFound);
  EXPECT_TRUE(images.find(bytes_of(hash)).ok());
  ASSERT_TRUE(images.find(bytes_of(own_hash)).ok());
  EXPECT_TRUE(images.find_own(bytes_of(own_hash)).ok()) << "also when it was loaded";
  for (size_t i = 0; i < SessionImages::kMaxLinked; ++i)
    ASSERT_TRUE(images
                    .put_linked(sha256(image_of(10, static_cast<int>(i))),
                                image_of(10, static_cast<int>(i)))
                    .ok());
  EXPECT_FALSE(images.find_own(bytes_of(own_hash)).ok());
}

}  // namespace
}  // namespace fargpu::server
