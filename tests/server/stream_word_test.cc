// Waits for streams by a word that the stream writes: when the worker lets it do so, and that the
// reply comes in any case. The test plays the GPU.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/fd.h"
#include "generated/schema/internal.capnp.h"
#include "generated/schema/opcodes.h"
#include "generated/schema/stream.capnp.h"
#include "tests/server/executor_fixture.h"
#include "tests/transport/forwarding_transport.h"

namespace fargpu::server {
namespace {

constexpr size_t kPage = 4096;
constexpr uint64_t kStream = rpc::make_handle(rpc::HandleKind::kStream, 1);
constexpr uint64_t kLegacy = 1;
constexpr unsigned kMost = Completion::kMaxWords;

FakeDriver& driver() { return FakeDriver::get(); }

class StreamWordTest : public ExecutorTest {
 protected:
  // A context, and a page that is shared.
  void begin(bool printing = false) {
    wrap_ = [this](std::unique_ptr<transport::Transport> inner) {
      return std::make_unique<test::TransportThatPasses>(std::move(inner), passed_);
    };
    start(printing);
    enter();
    driver().fail("cuMemHostRegister", CUDA_SUCCESS);
    void* const hole = ::mmap(nullptr, kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ::munmap(hole, kPage);
    address_ = reinterpret_cast<uint64_t>(hole);
    Fd file(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    ASSERT_EQ(::ftruncate(file.get(), kPage), 0);
    ASSERT_EQ(::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
    ASSERT_TRUE(passed_.send(1, file.get()).ok());
    expect_answer(send<schema::FgHostShareParams>(schema::op_fgHostShare,
                                                  [&](auto p) {
                                                    p.setAddress(address_);
                                                    p.setBytes(kPage);
                                                    p.setNumber(1);
                                                  }),
                  CUDA_SUCCESS);
  }
  void create_stream() {
    expect_answer(send<schema::CuStreamCreateParams>(schema::op_cuStreamCreate,
                                                     [](auto p) { p.setPhStream(kStream); }),
                  CUDA_SUCCESS);
  }
  // The wait's word is that with this index, and becomes 1.
  uint32_t synchronise(uint64_t stream, unsigned index = 0) {
    return send<schema::FgStreamSynchronizeParams>(schema::op_fgStreamSynchronize, [&](auto p) {
      p.setStream(stream);
      p.setWord(address_ + sizeof(uint32_t) * index);
      p.setOnDevice(0x9000);
      p.setValue(1);
    });
  }
  uint32_t ask() {
    return send<schema::CuStreamQueryParams>(schema::op_cuStreamQuery,
                                             [](auto p) { p.setHStream(kStream); });
  }
  // It is over, and the driver still says that the stream is not.
  void wait_told_early() {
    driver().shut("created stream");
    const uint32_t waiting = synchronise(kStream);
    word() = 1;
    expect_answer(waiting, CUDA_SUCCESS);
  }
  std::atomic<uint32_t>& word(unsigned index = 0) {
    return reinterpret_cast<std::atomic<uint32_t>*>(address_)[index];
  }
  static size_t writes() { return driver().count("cuStreamWriteValue32 1"); }
  // It ends by an event, and no word is written.
  void expect_without_word(uint64_t stream) {
    expect_answer(synchronise(stream), CUDA_SUCCESS);
    EXPECT_EQ(writes(), 0u);
    EXPECT_EQ(word().load(), 0u);
  }

  test::PassedDescriptors passed_;
  uint64_t address_ = 0;
};

TEST_F(StreamWordTest, TheReplyComesWhenTheStreamHasWrittenTheWord) {
  begin();
  create_stream();
  const uint32_t waiting = synchronise(kStream);
  expect_silence();
  EXPECT_EQ(writes(), 1u);
  word() = 1;
  expect_answer(waiting, CUDA_SUCCESS);
}

// The client may use the word for its next wait as soon as it has seen the value.
TEST_F(StreamWordTest, ALaterValueEndsTheWaitAsWell) {
  begin();
  create_stream();
  const uint32_t waiting = synchronise(kStream);
  expect_silence();
  word() = 2;
  expect_answer(waiting, CUDA_SUCCESS);
}

TEST_F(StreamWordTest, AFailedContextEndsTheWait) {
  begin();
  create_stream();
  const uint32_t waiting = synchronise(kStream);
  expect_silence();
  driver().fail("cuStreamQuery", CUDA_ERROR_ILLEGAL_ADDRESS);
  expect_answer(waiting, CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(StreamWordTest, NotWhereDeviceCodePrints) {
  begin(/*printing=*/true);
  create_stream();
  expect_without_word(kStream);
}

TEST_F(StreamWordTest, TheLegacyStreamOnlyWhereItIsAlone) {
  begin();
  const uint32_t waiting = synchronise(kLegacy);
  expect_silence();
  EXPECT_EQ(writes(), 1u);
  word() = 1;
  expect_answer(waiting, CUDA_SUCCESS);
  create_stream();
  expect_answer(synchronise(kLegacy, 1), CUDA_SUCCESS);
  EXPECT_EQ(writes(), 1u);
}

TEST_F(StreamWordTest, NotWhereTheDriverRefuses) {
  begin();
  create_stream();
  driver().fail("cuStreamWriteValue32 1", CUDA_ERROR_NOT_SUPPORTED);
  expect_answer(synchronise(kStream), CUDA_SUCCESS);
  EXPECT_TRUE(driver().saw("cuEventRecord 1"));
}

TEST_F(StreamWordTest, NotMoreThanTheQueueHasRoomFor) {
  begin();
  create_stream();
  std::vector<uint32_t> waiting;
  for (unsigned i = 0; i < kMost; ++i) waiting.push_back(synchronise(kStream, i));
  expect_answer(synchronise(kStream, kMost), CUDA_SUCCESS);
  EXPECT_EQ(writes(), kMost);
  for (unsigned i = 0; i < kMost; ++i) {
    word(i) = 1;
    expect_answer(waiting[i], CUDA_SUCCESS);
  }
  // There is room again.
  const uint32_t next = synchronise(kStream, kMost);
  expect_silence();
  word(kMost) = 1;
  expect_answer(next, CUDA_SUCCESS);
}

// A driver may say a little later than the word that the stream is done.
TEST_F(StreamWordTest, AQuestionWaitsUntilTheDriverKnowsOfTheWord) {
  begin();
  create_stream();
  wait_told_early();
  const uint32_t question = ask();
  expect_silence();
  driver().open("created stream");
  expect_answer(question, CUDA_SUCCESS);
}

TEST_F(StreamWordTest, AQuestionDoesNotWaitForLaterWork) {
  begin();
  create_stream();
  wait_told_early();
  const std::string text = "bytes";
  using copy::Location;
  expect_answer(
      send_copy(
          {Location::frame(), Location::device({0x7000}), {text.size()}, {}, copy::Order::kStream},
          kStream, wire::kWantReply, 1, std::as_bytes(std::span(text))),
      CUDA_SUCCESS);
  expect_answer(ask(), CUDA_ERROR_NOT_READY);
}

TEST_F(StreamWordTest, AQuestionDoesNotWaitForLong) {
  begin();
  create_stream();
  wait_told_early();
  expect_answer(ask(), CUDA_ERROR_NOT_READY);
}

TEST_F(StreamWordTest, OnlyInMemoryThatIsShared) {
  begin();
  create_stream();
  address_ += kPage - 2;  // half of it lies behind the page
  expect_answer(synchronise(kStream), CUDA_ERROR_INVALID_VALUE);
  address_ += 2 + kPage;
  expect_answer(synchronise(kStream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(writes(), 0u);
}

}  // namespace
}  // namespace fargpu::server
