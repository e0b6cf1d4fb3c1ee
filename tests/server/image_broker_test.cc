// The daemon's images: who is charged, who gets what, and workers that do what they should not.
#include "server/job/image_broker.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <optional>
#include <vector>

#include "server/job/image_desk.h"
#include "server/job/image_files.h"
#include "tests/server/run_until.h"

namespace fargpu::server {
namespace {

using transport::Clock;

constexpr uint64_t kBlock = 4096;
const TenantId kTenant{"a"}, kOther{"b"};

std::vector<std::byte> image_of(size_t size, int seed) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i)
    bytes[i] = static_cast<std::byte>((i * 31 + static_cast<size_t>(seed)) & 0xff);
  return bytes;
}

std::vector<std::byte> contents(int file) {
  struct stat about {};
  EXPECT_EQ(::fstat(file, &about), 0);
  std::vector<std::byte> bytes(static_cast<size_t>(about.st_size));
  EXPECT_EQ(::pread(file, bytes.data(), bytes.size(), 0), about.st_size);
  return bytes;
}

class ImageBrokerTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kBytes = 64 * kBlock;
  static constexpr uint32_t kFiles = 8, kTenants = 2;

  void SetUp() override { begin({folder_, kBytes, kFiles, kTenants}); }
  void TearDown() override {
    broker_.reset();
    std::filesystem::remove_all(folder_);
  }
  void begin(const ImageBroker::Rules& rules) {
    broker_.emplace(loop_, rules);
    for (const uint64_t session : {1, 2})
      broker_->session_begins(session, kTenant, [this, session](uint32_t upload) {
        revoked_ = {session, upload};
      });
    broker_->session_begins(3, kOther, nullptr);
  }
  bool eventually(const std::function<bool()>& condition) {
    return run_until(loop_, std::chrono::seconds(20), condition);
  }
  // An upload with these bytes in its memory; its descriptor.
  int bring(uint64_t session, uint32_t upload, std::span<const std::byte> bytes) {
    const int memory = broker_->begin(session, upload, bytes.size());
    if (memory >= 0) {
      EXPECT_EQ(::pwrite(memory, bytes.data(), bytes.size(), 0),
                static_cast<ssize_t>(bytes.size()));
    }
    return memory;
  }
  bool keep(uint64_t session, uint32_t upload, const Sha256Digest& hash) {
    std::optional<bool> answer;
    broker_->keep(session, upload, hash, [&answer](bool kept) { answer = kept; });
    EXPECT_TRUE(eventually([&] { return answer.has_value(); }));
    return answer.value_or(false);
  }
  bool put(uint64_t session, std::span<const std::byte> bytes) {
    EXPECT_GE(bring(session, ++upload_, bytes), 0);
    const bool kept = keep(session, upload_, sha256(bytes));
    if (!kept) broker_->end(session, upload_);
    return kept;
  }
  bool has(uint64_t session, std::span<const std::byte> bytes) {
    const int file = broker_->find(session, sha256(bytes));
    if (file < 0) return false;
    EXPECT_EQ(contents(file), std::vector(bytes.begin(), bytes.end()));
    return true;
  }
  void again(uint64_t session, const TenantId& tenant = kTenant) {
    broker_->session_ended(session);
    broker_->session_begins(session, tenant, nullptr);
  }

  const std::string folder_ = [] {
    std::string pattern = ::testing::TempDir() + "/fargpu-broker-XXXXXX";
    return std::string(::mkdtemp(pattern.data()));
  }();
  boost::asio::io_context loop_;
  std::optional<ImageBroker> broker_;
  uint32_t upload_ = 100;
  std::pair<uint64_t, uint32_t> revoked_{};
};

TEST_F(ImageBrokerTest, SessionsOfOneTenantShareAndThoseOfTwoDoNot) {
  const auto bytes = image_of(10000, 1);
  ASSERT_TRUE(put(1, bytes));
  EXPECT_TRUE(has(1, bytes));
  EXPECT_TRUE(has(2, bytes));
  EXPECT_FALSE(has(3, bytes));
  EXPECT_TRUE(std::filesystem::is_empty(folder_)) << "files have no names";
  EXPECT_EQ(broker_->disk_bytes(kTenant), 4 * kBlock);
  EXPECT_EQ(broker_->upload_bytes(kTenant), 0u);
  EXPECT_EQ(broker_->disk_bytes(kOther), 0u);
  EXPECT_FALSE(has(7, bytes)) << "no such session";
}

TEST_F(ImageBrokerTest, WhatIsGivenCanBeReadOnly) {
  const auto bytes = image_of(5000, 1);
  ASSERT_TRUE(put(1, bytes));
  const int file = broker_->find(2, sha256(bytes));
  EXPECT_EQ(::fcntl(file, F_GETFL) & O_ACCMODE, O_RDONLY);
  EXPECT_EQ(::mmap(nullptr, 5000, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0), MAP_FAILED);
  struct stat about {};
  ASSERT_EQ(::fstat(file, &about), 0);
  EXPECT_EQ(about.st_mode & 07777, 0400u);
  EXPECT_EQ(about.st_nlink, 0u);
}

TEST_F(ImageBrokerTest, AnUploadIsChargedBeforeItsBytesAndNoLargerThanThat) {
  const int memory = broker_->begin(1, 1, 5000);
  ASSERT_GE(memory, 0);
  EXPECT_EQ(broker_->upload_bytes(kTenant), 3 * kBlock);
  EXPECT_EQ(::ftruncate(memory, 1 << 20), -1);
  EXPECT_EQ(::ftruncate(memory, 10), -1);
  EXPECT_EQ(broker_->begin(1, 1, 10), -1) << "the number is in use";
  EXPECT_EQ(broker_->begin(1, 2, 0), -1);
  EXPECT_EQ(broker_->begin(1, 2, kBytes + 1), -1);
  EXPECT_EQ(broker_->begin(1, 2, ~uint64_t{0}), -1);
  broker_->end(1, 1);
  broker_->end(1, 1);
  EXPECT_EQ(broker_->upload_bytes(kTenant), 0u);
}

TEST_F(ImageBrokerTest, WhatHasAnotherHashIsNotKept) {
  const auto bytes = image_of(5000, 1), other = image_of(5000, 2);
  ASSERT_GE(bring(1, 1, bytes), 0);
  EXPECT_FALSE(keep(1, 1, sha256(other)));
  EXPECT_FALSE(has(2, other));
  EXPECT_FALSE(has(2, bytes));
  EXPECT_EQ(broker_->disk_bytes(kTenant), 0u);
  EXPECT_FALSE(keep(1, 9, sha256(other))) << "no such upload";
  broker_->end(1, 1);
  EXPECT_EQ(broker_->upload_bytes(kTenant), 0u);
}

// Whoever has the memory of an upload can change nothing once it is kept.
TEST_F(ImageBrokerTest, WhatCanStillBeWrittenIsNotKept) {
  const auto bytes = image_of(5000, 1);
  const int memory = bring(1, 1, bytes);
  void* const mapped = ::mmap(nullptr, 5000, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  EXPECT_FALSE(keep(1, 1, sha256(bytes)));
  ::munmap(mapped, 5000);
  const Fd own(::dup(memory));
  EXPECT_TRUE(keep(1, 1, sha256(bytes)));
  EXPECT_EQ(::pwrite(own.get(), "x", 1, 0), -1);
}

TEST_F(ImageBrokerTest, TinyImagesCountTheirBlocksAndFiles) {
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(put(1, image_of(1, i))) << i;
    again(1);
  }
  EXPECT_LE(broker_->disk_bytes(kTenant), kFiles * 2 * kBlock);
  EXPECT_FALSE(has(1, image_of(1, 0)));
  EXPECT_TRUE(has(1, image_of(1, 19)));
}

TEST_F(ImageBrokerTest, TheLeastRecentlyUsedGoesAndGivesBackItsBlocks) {
  const auto first = image_of(25 * kBlock, 1), second = image_of(25 * kBlock, 2),
             third = image_of(25 * kBlock, 3);
  ASSERT_TRUE(put(1, first));
  ASSERT_TRUE(put(1, second));
  ASSERT_TRUE(has(1, first));
  const Fd hoarded(::dup(broker_->find(1, sha256(second))));
  ASSERT_TRUE(has(1, first));
  again(1);
  ASSERT_TRUE(put(2, third));
  EXPECT_TRUE(has(2, first));
  EXPECT_FALSE(has(2, second));
  EXPECT_TRUE(eventually([&] {
    struct stat about {};
    return ::fstat(hoarded.get(), &about) == 0 && about.st_blocks == 0;
  })) << "whoever has it open";
}

TEST_F(ImageBrokerTest, WhatASessionHasStaysAsLongAsTheSession) {
  const auto first = image_of(30 * kBlock, 1), second = image_of(30 * kBlock, 2),
             third = image_of(30 * kBlock, 3);
  ASSERT_TRUE(put(1, first));
  ASSERT_TRUE(put(1, second));
  EXPECT_FALSE(put(2, third)) << "it is not kept, and may be loaded from memory";
  EXPECT_TRUE(has(1, first));
  EXPECT_TRUE(has(1, second));
  again(1);
  EXPECT_TRUE(put(2, third));
}

TEST_F(ImageBrokerTest, OneTenantsImagesChangeNothingForAnother) {
  const auto bytes = image_of(40 * kBlock, 1);
  ASSERT_TRUE(put(3, bytes));
  again(3, kOther);
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(put(1, image_of(50 * kBlock, i + 2)));
    again(1);
  }
  ASSERT_GE(broker_->begin(1, 1, kBytes - kBlock), 0);
  EXPECT_TRUE(has(3, bytes));
  EXPECT_GE(broker_->begin(3, 1, kBytes - kBlock), 0);
}

TEST_F(ImageBrokerTest, SoManyTenantsMayKeepImages) {
  const auto bytes = image_of(100, 1);
  EXPECT_TRUE(put(3, bytes));
  EXPECT_TRUE(put(1, bytes));
  broker_->session_begins(4, {"c"}, nullptr);
  EXPECT_FALSE(put(4, bytes));
  EXPECT_TRUE(has(3, bytes));
}

TEST_F(ImageBrokerTest, WhoBringsMostGivesWayToOthers) {
  ASSERT_GE(broker_->begin(1, 1, 40 * kBlock), 0);
  ASSERT_GE(broker_->begin(1, 2, 10 * kBlock), 0);
  EXPECT_GE(broker_->begin(2, 1, 20 * kBlock), 0);
  EXPECT_EQ(revoked_, (std::pair<uint64_t, uint32_t>(1, 1)));
  EXPECT_EQ(broker_->begin(2, 2, 60 * kBlock), -1) << "it would have most itself";
  EXPECT_FALSE(keep(1, 1, {}));
}

TEST_F(ImageBrokerTest, UploadsOfASessionAreLimited) {
  begin({folder_, uint64_t{1} << 40, 4096, kTenants});
  uint32_t upload = 0;
  while (broker_->begin(1, upload + 1, 1) >= 0 && upload < 10000) ++upload;
  EXPECT_EQ(upload, ImageBroker::kMostUploads);
  broker_->session_ended(1);
  EXPECT_EQ(broker_->upload_bytes(kTenant), 0u);
}

TEST_F(ImageBrokerTest, UploadsOfATenantTakeFewDescriptors) {
  for (uint32_t upload = 1; upload <= kFiles / 4; ++upload)
    ASSERT_GE(broker_->begin(1, upload, 1), 0);
  EXPECT_EQ(broker_->begin(1, 9, 1), -1);
  EXPECT_GE(broker_->begin(3, 9, 1), 0) << "another tenant";
  EXPECT_GE(broker_->begin(2, 9, 30 * kBlock), 0) << "of the one with more of them";
  EXPECT_EQ(revoked_, (std::pair<uint64_t, uint32_t>(1, 1)));
  EXPECT_EQ(broker_->begin(2, 10, 1), -1) << "it would have more itself";
}

TEST_F(ImageBrokerTest, ASessionThatEndsWhileItsImageIsCopiedHasBroughtIt) {
  const auto bytes = image_of(50 * kBlock, 1);
  ASSERT_GE(bring(1, 1, bytes), 0);
  broker_->keep(1, 1, sha256(bytes), [](bool) { FAIL() << "nobody is there to be told"; });
  broker_->session_ended(1);
  EXPECT_GT(broker_->upload_bytes(kTenant), 0u);
  EXPECT_TRUE(eventually([&] { return broker_->upload_bytes(kTenant) == 0; }));
  EXPECT_TRUE(has(2, bytes));
}

TEST_F(ImageBrokerTest, WithoutADiskNothingIsKeptAndUploadsGoOn) {
  begin({folder_ + "/nowhere", kBytes, kFiles, kTenants});
  const auto bytes = image_of(5000, 1);
  EXPECT_FALSE(put(1, bytes));
  EXPECT_EQ(broker_->disk_bytes(kTenant), 0u);
  begin({"", kBytes, kFiles, kTenants});
  EXPECT_FALSE(put(1, bytes));
}

TEST_F(ImageBrokerTest, ABrokerMayGoWhileItCopies) {
  const auto bytes = image_of(50 * kBlock, 1);
  ASSERT_GE(bring(1, 1, bytes), 0);
  broker_->keep(1, 1, sha256(bytes), [](bool) { FAIL(); });
  broker_.reset();
  loop_.poll();
}

// --- the socket to a worker

class ImageDeskTest : public ImageBrokerTest {
 protected:
  void SetUp() override {
    ImageBrokerTest::SetUp();
    auto sockets = make_control_sockets();
    ASSERT_TRUE(sockets.ok());
    daemon_ = std::move(sockets->first);
    worker_ = std::move(sockets->second);
    desk_ = std::make_shared<ImageDesk>(*broker_, 11, kTenant, daemon_.get());
  }
  void TearDown() override {
    desk_.reset();
    ImageBrokerTest::TearDown();
  }
  Status say(const MessageBytes& message) {
    EXPECT_TRUE(send_message(worker_.get(), message, Clock::now()).ok());
    const auto received = receive_message(daemon_.get(), Clock::now());
    EXPECT_TRUE(received.ok() && ImageDesk::takes(kind_of(*received)));
    return desk_->take(*received);
  }
  // The result of the next answer.
  int32_t heard(Fd* descriptor = nullptr) {
    std::optional<Result<ReceivedMessage>> answer;
    eventually([&] {
      auto next = receive_message(worker_.get(), Clock::now(), descriptor);
      if (next.ok()) answer = std::move(next);
      return answer.has_value();
    });
    EXPECT_TRUE(answer.has_value());
    return answer.has_value() ? (*answer)->header.result : -1;
  }

  Fd daemon_, worker_;
  std::shared_ptr<ImageDesk> desk_;
};

TEST_F(ImageDeskTest, AWorkerBringsAnImageAndFindsIt) {
  const auto bytes = image_of(5000, 1);
  const auto hash = sha256(bytes);
  ASSERT_TRUE(say(encode_image_name(WorkerMessage::kFindImage, 1, hash)).ok());
  Fd memory, image;
  EXPECT_EQ(heard(&memory), kNoImage);
  EXPECT_FALSE(memory.valid());
  ASSERT_TRUE(say(encode_begin_image(7, bytes.size())).ok());
  EXPECT_EQ(heard(&memory), 0);
  ASSERT_EQ(::pwrite(memory.get(), bytes.data(), bytes.size(), 0), 5000);
  ASSERT_TRUE(say(encode_image_name(WorkerMessage::kKeepImage, 7, hash)).ok());
  EXPECT_EQ(heard(), 0);
  ASSERT_TRUE(say(encode_image_name(WorkerMessage::kFindImage, 2, hash)).ok());
  EXPECT_EQ(heard(&image), 0);
  EXPECT_EQ(contents(image.get()), bytes);
}

TEST_F(ImageDeskTest, MalformedMessagesAreRefused) {
  MessageBytes name = encode_image_name(WorkerMessage::kFindImage, 1, {});
  auto& header = reinterpret_cast<wire::FrameHeader&>(*name.data());
  const std::vector<MessageBytes> wrong = {
      encode_peer(WorkerMessage::kFindImage, 5), encode_peer(WorkerMessage::kKeepImage, 5), [&] {
        header.body_bytes = 8;
        return MessageBytes(name.begin(), name.begin() + sizeof header + 8);
      }()};
  for (const MessageBytes& message : wrong) EXPECT_EQ(say(message).code(), StatusCode::kProtocol);
  EXPECT_TRUE(say(encode_end_image(77)).ok()) << "nothing that it has";
}

TEST_F(ImageDeskTest, AWorkerThatAsksAndReadsNothingGetsFewDescriptors) {
  const auto bytes = image_of(5000, 1);
  ASSERT_TRUE(put(1, bytes));
  for (int i = 0; i < 5000; ++i)
    ASSERT_TRUE(say(encode_image_name(WorkerMessage::kFindImage, 1, sha256(bytes))).ok());
  int descriptors = 0;
  for (;;) {
    Fd got;
    if (!receive_message(worker_.get(), Clock::now(), &got).ok()) break;
    descriptors += got.valid() ? 1 : 0;
  }
  EXPECT_GT(descriptors, 0);
  EXPECT_LT(descriptors, 64);
  ASSERT_TRUE(say(encode_image_name(WorkerMessage::kFindImage, 1, sha256(bytes))).ok());
  EXPECT_EQ(heard(), 0) << "it reads again";
}

TEST_F(ImageDeskTest, WhatAWorkerLeavesEndsWithIt) {
  for (uint32_t upload = 1; upload < 50; ++upload)
    ASSERT_TRUE(say(encode_begin_image(upload, 100)).ok());
  EXPECT_GT(broker_->upload_bytes(kTenant), 0u);
  desk_->close();
  EXPECT_EQ(broker_->upload_bytes(kTenant), 0u);
}

TEST_F(ImageDeskTest, AWorkerIsToldThatAnUploadGivesWay) {
  ASSERT_TRUE(say(encode_begin_image(5, 60 * kBlock)).ok());
  EXPECT_EQ(heard(), 0);
  EXPECT_GE(broker_->begin(1, 1, 20 * kBlock), 0);
  const auto told = receive_message(worker_.get(), Clock::now());
  ASSERT_TRUE(told.ok());
  EXPECT_EQ(kind_of(*told), WorkerMessage::kEndImage);
  EXPECT_EQ(told->header.sequence, 5u);
}

}  // namespace
}  // namespace fargpu::server
