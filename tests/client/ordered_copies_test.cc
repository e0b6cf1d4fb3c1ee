#include "client/copy/ordered_copies.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>

#include "tests/client/apart.h"

namespace fargpu::client {
namespace {

uint64_t address(const void* p) { return reinterpret_cast<uint64_t>(p); }

std::span<const std::byte> bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

class OrderedCopiesTest : public testing::Test {
 protected:
  // What a thread was given to do, as a text: "id:offset:bytes", "id delivered", "published", or
  // "missing" when some of the bytes before were not there.
  struct Sent {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<std::string> lines;
    bool beside = false;  // bytes go over a bulk connection
    bool taken = true;    // else what sends them waits
  };
  bool sent(const std::vector<std::string>& lines) {
    return eventually([&] { return lines == sent_.lines; });
  }
  bool eventually(const std::function<bool()>& condition) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    for (;;) {
      {
        std::lock_guard lock(sent_.mutex);
        if (condition()) return true;
      }
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  // A notice as the channel passes it on.
  Status deliver(uint64_t id, uint64_t offset, const std::string& text) {
    FARGPU_ASSIGN_OR_RETURN(const std::span<std::byte> target,
                            copies_.target(id, offset, text.size()));
    if (target.empty()) return copies_.on_delivery(id, offset, CUDA_SUCCESS, bytes(text));
    EXPECT_EQ(target.size(), text.size());
    std::memcpy(target.data(), text.data(), text.size());
    return copies_.on_delivery(id, offset, CUDA_SUCCESS, target);
  }
  static copy::Shape line(uint64_t bytes) { return {bytes}; }
  static copy::Rows flat_side(std::string& text) {
    return copy::dense(address(text.data()), {text.size()});
  }

  // The thread of the copies outlives the test: nothing that it uses goes, and no leak is reported.
  template <typename T>
  static T& keep(T* object) {
    static std::vector<void*>& kept = *new std::vector<void*>;
    kept.push_back(object);
    return *object;
  }

  // In pieces of at most 4 bytes.
  static void send(const OrderedCopies& copies, Sent& sent, const OrderedCopies::Task& task) {
    PackBuffer packed;
    for (uint64_t offset = task.offset; offset < task.offset + task.bytes; offset += 4) {
      bool is_missing = false;
      const auto part =
          copies.part(task, offset, std::min<uint64_t>(4, task.offset + task.bytes - offset),
                      packed, &is_missing);
      if (part.empty()) return;
      add(sent, std::to_string(task.id) + ":" + std::to_string(offset) + ":" +
                    std::string(reinterpret_cast<const char*>(part.data()), part.size()));
      if (is_missing) add(sent, "missing");
    }
  }
  static void add(Sent& sent, const std::string& line) {
    std::unique_lock lock(sent.mutex);
    sent.lines.push_back(line);
    sent.changed.wait(lock, [&sent] { return sent.taken; });
  }
  static void run(OrderedCopies& copies, Sent& sent) {
    using Action = OrderedCopies::Task::Action;
    for (;;) {
      const OrderedCopies::Task task = copies.next();
      const std::string name = std::to_string(task.id);
      if (task.action == Action::kSend) send(copies, sent, task);
      if (task.action == Action::kGiveUp) add(sent, name + ":" + std::to_string(task.offset) + ":");
      if (task.action == Action::kAcknowledge) add(sent, name + " delivered");
      if (task.action == Action::kPublish) add(sent, "published");
      copies.done(task, sent.beside);
    }
  }
  // For a copy that holds its stream: the device.
  uint16_t hold() {
    holds_.hold(7);
    return 7;
  }
  bool released() const { return !holds_.outstanding(); }

  OrderedCopiesTest() {
    std::thread([&copies = copies_, &sent = sent_] { run(copies, sent); }).detach();
  }

  bool are_under_way() const { return observers_.any(Observers::kCopies); }

  Sent& sent_ = keep(new Sent);
  Observers& observers_ = keep(new Observers);
  HostCalls& holds_ = keep(new HostCalls(observers_));
  OrderedCopies& copies_ = keep(new OrderedCopies(holds_, observers_));
};

TEST_F(OrderedCopiesTest, ADeliveryEndsWithItsLastByte) {
  std::string memory(10, '.');
  const uint64_t id = copies_.add_delivery(line(10), flat_side(memory), {true, hold(), false});
  EXPECT_TRUE(are_under_way());
  EXPECT_TRUE(copies_.writes(address(memory.data()) + 9, 1));
  EXPECT_FALSE(copies_.writes(address(memory.data()) + 10, 100));
  EXPECT_TRUE(deliver(id, 0, "abcdef").ok());
  EXPECT_TRUE(copies_.uses(address(memory.data()), 10));
  EXPECT_TRUE(deliver(id, 6, "ghij").ok());
  EXPECT_EQ(memory, "abcdefghij");
  EXPECT_FALSE(are_under_way());
  EXPECT_FALSE(copies_.uses(address(memory.data()), 10));
  EXPECT_TRUE(released());
}

TEST_F(OrderedCopiesTest, RowsWithGapsAreFilledFromAnyPart) {
  std::string memory(12, '.');
  const uint64_t id = copies_.add_delivery({3, 3, 1}, {address(memory.data()), 4, 12}, {});
  EXPECT_TRUE(deliver(id, 0, "ab").ok());
  EXPECT_TRUE(deliver(id, 2, "cdefg").ok());
  EXPECT_TRUE(deliver(id, 7, "hi").ok());
  EXPECT_EQ(memory, "abc.def.ghi.");
  EXPECT_FALSE(are_under_way());
}

TEST_F(OrderedCopiesTest, TheWorkerIsToldWhenItHoldsTheStreamForADelivery) {
  std::string memory(3, '.');
  const uint64_t id = copies_.add_delivery(line(3), flat_side(memory), {true, hold(), true});
  EXPECT_TRUE(deliver(id, 0, "abc").ok());
  EXPECT_TRUE(sent({std::to_string(id) + " delivered"}));
  EXPECT_TRUE(eventually([this] { return !are_under_way() && released(); }));
}

TEST_F(OrderedCopiesTest, BytesForMemoryThatIsShownMeanwhileArePublished) {
  std::string memory(10, '.');
  const uint64_t id = copies_.add_delivery(line(10), flat_side(memory), {});
  const uint64_t held = copies_.add_delivery(line(10), flat_side(memory), {true, hold(), true});
  copies_.show(address(memory.data()) + 10, 100);
  EXPECT_FALSE(observers_.any(Observers::kUnseenDeliveries)) << "other memory";
  EXPECT_TRUE(deliver(id, 0, "abc").ok());
  copies_.show(address(memory.data()) + 9, 1);
  copies_.show(address(memory.data()), 10);
  EXPECT_TRUE(observers_.any(Observers::kUnseenDeliveries));
  EXPECT_TRUE(deliver(id, 3, "defghij").ok());
  EXPECT_TRUE(sent({"published"}));
  EXPECT_TRUE(eventually([this] { return !observers_.any(Observers::kUnseenDeliveries); }))
      << "the stream waits for the other one";
  EXPECT_TRUE(deliver(held, 0, "0123456789").ok());
  EXPECT_TRUE(sent({"published", std::to_string(held) + " delivered"}));
  copies_.add_delivery(line(10), flat_side(memory), {});
  copies_.show(address(memory.data()), 10);
  copies_.lost();
  EXPECT_FALSE(observers_.any(Observers::kUnseenDeliveries));
}

TEST_F(OrderedCopiesTest, ABarrierIsAnsweredBehindTheDeliveriesBeforeIt) {
  std::string memory(3, '.');
  const uint64_t delivery = copies_.add_delivery(line(3), flat_side(memory), {});
  const uint64_t id = copies_.add_barrier(hold()), refused = copies_.add_barrier(hold());
  copies_.show(address(memory.data()), 3);
  EXPECT_FALSE(copies_.writes(0, UINT64_MAX) && copies_.uses(1, 1));
  EXPECT_TRUE(deliver(delivery, 0, "abc").ok());
  EXPECT_TRUE(copies_.on_fetch(id, 0, 0, CUDA_SUCCESS).ok());
  EXPECT_TRUE(sent({"published", std::to_string(id) + " delivered"}));
  EXPECT_FALSE(released());
  EXPECT_TRUE(copies_.on_fetch(refused, 0, 0, CUDA_ERROR_ILLEGAL_ADDRESS).ok());
  EXPECT_TRUE(released());
  EXPECT_FALSE(are_under_way());
  EXPECT_EQ(copies_.on_fetch(copies_.add_barrier(hold()), 0, 1, CUDA_SUCCESS).code(),
            StatusCode::kProtocol);
}

TEST_F(OrderedCopiesTest, BytesThatTheWorkerHasWrittenCountLikeBytesThatCame) {
  std::string memory(10, '.');
  const uint64_t id = copies_.add_delivery(line(10), flat_side(memory), {}, /*written=*/true);
  EXPECT_EQ(copies_.unheld_bytes(), 10u);
  EXPECT_TRUE(copies_.on_delivery(id, 0, CUDA_SUCCESS, {}, 4).ok());
  EXPECT_TRUE(deliver(id, 4, "efg").ok());
  EXPECT_TRUE(are_under_way());
  EXPECT_TRUE(copies_.on_delivery(id, 7, CUDA_SUCCESS, {}, 3).ok());
  EXPECT_FALSE(are_under_way());
  EXPECT_EQ(copies_.unheld_bytes(), 0u);
  EXPECT_EQ(memory, "....efg...");
}

TEST_F(OrderedCopiesTest, BytesAreTakenWhenTheWorkerAsks) {
  std::string memory = "..........";
  const uint64_t id = copies_.add_fetch(line(10), flat_side(memory), hold());
  EXPECT_TRUE(copies_.uses(address(memory.data()), 1));
  EXPECT_FALSE(copies_.writes(address(memory.data()), 1));
  memory = "abcdefghij";
  const std::string name = std::to_string(id);
  EXPECT_TRUE(copies_.on_fetch(id, 0, 6, CUDA_SUCCESS).ok());
  EXPECT_TRUE(sent({name + ":0:abcd", name + ":4:ef"})) << "in pieces of at most 4 bytes";
  EXPECT_TRUE(are_under_way());
  EXPECT_TRUE(copies_.on_fetch(id, 6, 4, CUDA_SUCCESS).ok());
  EXPECT_TRUE(sent({name + ":0:abcd", name + ":4:ef", name + ":6:ghij"}));
  EXPECT_TRUE(eventually([this] { return !are_under_way() && released(); }));
}

TEST_F(OrderedCopiesTest, BytesOfABulkConnectionHoldTheStreamUntilTheyHaveLanded) {
  sent_.beside = true;
  std::string memory = "abcdef";
  const uint64_t id = copies_.add_fetch(line(6), flat_side(memory), hold());
  const std::string name = std::to_string(id);
  EXPECT_EQ(copies_.on_landed(id).code(), StatusCode::kProtocol) << "before it was asked for";
  EXPECT_TRUE(copies_.on_fetch(id, 0, 4, CUDA_SUCCESS).ok());
  EXPECT_TRUE(sent({name + ":0:abcd"}));
  EXPECT_EQ(copies_.on_landed(id).code(), StatusCode::kProtocol) << "before all was sent";
  EXPECT_TRUE(copies_.on_fetch(id, 4, 2, CUDA_SUCCESS).ok());
  EXPECT_TRUE(sent({name + ":0:abcd", name + ":4:ef"}));
  EXPECT_TRUE(are_under_way());
  EXPECT_FALSE(released());
  EXPECT_TRUE(copies_.on_landed(id).ok());
  EXPECT_TRUE(eventually([this] { return !are_under_way() && released(); }));
  EXPECT_EQ(copies_.on_landed(id).code(), StatusCode::kProtocol) << "twice";
}

TEST_F(OrderedCopiesTest, MemoryThatIsReadStaysWhateverTheServerSays) {
  sent_.beside = true;
  sent_.taken = false;
  std::string memory = "abcd";
  const uint64_t id = copies_.add_fetch(line(4), flat_side(memory), hold());
  EXPECT_TRUE(copies_.on_fetch(id, 0, 4, CUDA_SUCCESS).ok());
  EXPECT_TRUE(sent({std::to_string(id) + ":0:abcd"}));
  EXPECT_TRUE(copies_.on_landed(id).ok());
  EXPECT_TRUE(copies_.uses(address(memory.data()), 4)) << "it is being sent";
  EXPECT_EQ(copies_.on_landed(id).code(), StatusCode::kProtocol) << "twice";
  {
    std::lock_guard lock(sent_.mutex);
    EXPECT_FALSE(released());
    sent_.taken = true;
  }
  sent_.changed.notify_all();
  EXPECT_TRUE(eventually([this] { return !are_under_way() && released(); }));
}

TEST_F(OrderedCopiesTest, WhatIsGivenUpOverABulkConnectionIsOverAtOnce) {
  sent_.beside = true;
  std::string memory = "abcdef";
  const uint64_t id = copies_.add_fetch(line(6), flat_side(memory), hold());
  const uint64_t barrier = copies_.add_barrier(hold());
  EXPECT_EQ(copies_.on_landed(barrier).code(), StatusCode::kProtocol);
  EXPECT_TRUE(copies_.on_fetch(id, 0, 4, CUDA_SUCCESS).ok());
  EXPECT_TRUE(copies_.on_fetch(id, 0, 0, CUDA_ERROR_ILLEGAL_ADDRESS).ok());
  EXPECT_TRUE(sent({std::to_string(id) + ":0:abcd", std::to_string(id) + ":0:"}));
  EXPECT_FALSE(released());
  copies_.cancel(barrier);
  EXPECT_TRUE(eventually([this] { return released(); }));
}

TEST_F(OrderedCopiesTest, RowsWithGapsArePacked) {
  std::string memory = "abc.def.ghi.";
  const uint64_t id = copies_.add_fetch({3, 3, 1}, {address(memory.data()), 4, 12}, hold());
  EXPECT_TRUE(copies_.on_fetch(id, 0, 9, CUDA_SUCCESS).ok());
  const std::string name = std::to_string(id);
  EXPECT_TRUE(sent({name + ":0:abcd", name + ":4:efgh", name + ":8:i"}));
}

// Registered memory is the application's to unmap, while copies are under way.
TEST_F(OrderedCopiesTest, RegisteredMemoryMayGo) {
  constexpr size_t kPage = 4096;
  std::byte* const memory = test::map_apart(2 * kPage);
  ASSERT_NE(memory, nullptr);
  auto* const text = reinterpret_cast<char*>(memory + kPage - 3);
  std::ranges::copy(std::string_view("abcdef"), text);
  const copy::Rows rows = copy::dense(address(text), line(6));
  const uint64_t fetch =
      copies_.add_fetch(line(6), rows, hold(), OrderedCopies::Memory::kRegistered);
  const uint64_t before =
      copies_.add_fetch(line(6), rows, hold(), OrderedCopies::Memory::kRegistered);
  const uint64_t delivery =
      copies_.add_delivery(line(6), rows, {}, false, OrderedCopies::Memory::kRegistered);
  EXPECT_TRUE(copies_.on_fetch(before, 0, 6, CUDA_SUCCESS).ok());
  const std::string first = std::to_string(before), name = std::to_string(fetch);
  EXPECT_TRUE(sent({first + ":0:abcd", first + ":4:ef"}));
  ::munmap(memory + kPage, kPage);
  EXPECT_TRUE(copies_.on_fetch(fetch, 0, 6, CUDA_SUCCESS).ok());
  const std::string zeros(1, '\0');
  EXPECT_TRUE(sent({first + ":0:abcd", first + ":4:ef", name + ":0:abc" + zeros, "missing",
                    name + ":4:" + zeros + zeros, "missing"}));
  EXPECT_TRUE(deliver(delivery, 0, "ABCDEF").ok());
  EXPECT_EQ(std::string(text, 3), "ABC");
  EXPECT_TRUE(eventually([this] { return !are_under_way(); }));
  ::munmap(memory, kPage);
}

TEST_F(OrderedCopiesTest, WhatTheWorkerRefusesIsOver) {
  std::string memory(10, '.');
  const uint64_t delivery = copies_.add_delivery(line(10), flat_side(memory), {true, hold(), true});
  const uint64_t fetch = copies_.add_fetch(line(10), flat_side(memory), hold());
  EXPECT_TRUE(deliver(delivery, 0, "abc").ok());
  EXPECT_TRUE(copies_.on_delivery(delivery, 0, CUDA_ERROR_ILLEGAL_ADDRESS, {}).ok());
  EXPECT_TRUE(copies_.on_fetch(fetch, 0, 0, CUDA_ERROR_ILLEGAL_ADDRESS).ok());
  copies_.cancel(fetch);  // the call's own result; the worker is still to be told
  EXPECT_TRUE(sent({std::to_string(fetch) + ":0:"}));
  EXPECT_TRUE(eventually([this] { return !are_under_way() && released(); }));
}

TEST_F(OrderedCopiesTest, ACallThatFailedLeavesNothing) {
  std::string memory(10, '.');
  const uint64_t id = copies_.add_delivery(line(10), flat_side(memory), {true, hold(), false});
  copies_.cancel(id);
  copies_.cancel(id);
  EXPECT_FALSE(are_under_way());
  EXPECT_TRUE(released());
  EXPECT_NE(copies_.add_delivery(line(10), flat_side(memory), {true, hold(), false}), id);
}

TEST_F(OrderedCopiesTest, NothingOutlivesTheSession) {
  std::string memory(10, '.');
  copies_.add_delivery(line(10), flat_side(memory), {true, hold(), true});
  copies_.add_fetch(line(10), flat_side(memory), hold());
  copies_.lost();
  EXPECT_FALSE(are_under_way());
  EXPECT_TRUE(released());
  copies_.add_fetch(line(10), flat_side(memory), hold());
  EXPECT_FALSE(are_under_way());
  EXPECT_TRUE(released());
}

TEST_F(OrderedCopiesTest, MemoryThatIsReadStaysWhenTheSessionIsLost) {
  sent_.taken = false;
  std::string memory = "abcdef";
  const uint64_t id = copies_.add_fetch(line(6), flat_side(memory), hold());
  EXPECT_TRUE(copies_.on_fetch(id, 0, 2, CUDA_SUCCESS).ok());
  EXPECT_TRUE(copies_.on_fetch(id, 2, 4, CUDA_SUCCESS).ok());
  EXPECT_TRUE(sent({std::to_string(id) + ":0:ab"}));
  copies_.lost();
  EXPECT_TRUE(copies_.uses(address(memory.data()), 6)) << "it is being sent";
  {
    std::lock_guard lock(sent_.mutex);
    EXPECT_FALSE(released());
    sent_.taken = true;
    sent_.changed.notify_all();
  }
  EXPECT_TRUE(eventually([this] { return !are_under_way() && released(); }));
  EXPECT_TRUE(sent({std::to_string(id) + ":0:ab"})) << "the rest is not read any more";
}

TEST_F(OrderedCopiesTest, WhatDoesNotFitEndsTheSession) {
  std::string memory(10, '.');
  const uint64_t delivery = copies_.add_delivery(line(10), flat_side(memory), {});
  const uint64_t fetch = copies_.add_fetch(line(10), flat_side(memory), hold());
  const auto is_broken = [](const Status& status) {
    return status.code() == StatusCode::kProtocol;
  };
  EXPECT_TRUE(is_broken(deliver(99, 0, "a")));
  EXPECT_TRUE(is_broken(deliver(fetch, 0, "a")));
  EXPECT_TRUE(is_broken(deliver(delivery, 1, "a")));
  EXPECT_TRUE(is_broken(deliver(delivery, 0, "0123456789a")));
  EXPECT_TRUE(is_broken(deliver(delivery, 5, "")));
  EXPECT_TRUE(is_broken(copies_.on_delivery(99, 0, CUDA_ERROR_UNKNOWN, {})));
  EXPECT_TRUE(is_broken(copies_.on_delivery(delivery, 0, CUDA_SUCCESS, {})));
  EXPECT_TRUE(is_broken(copies_.on_delivery(delivery, 0, CUDA_SUCCESS, {}, 4)))
      << "nothing was registered for it";
  EXPECT_TRUE(is_broken(copies_.on_fetch(99, 0, 1, CUDA_SUCCESS)));
  EXPECT_TRUE(is_broken(copies_.on_fetch(delivery, 0, 1, CUDA_SUCCESS)));
  EXPECT_TRUE(is_broken(copies_.on_fetch(fetch, 1, 1, CUDA_SUCCESS)));
  EXPECT_TRUE(is_broken(copies_.on_fetch(fetch, 0, 0, CUDA_SUCCESS)));
  EXPECT_TRUE(is_broken(copies_.on_fetch(fetch, 0, 11, CUDA_SUCCESS)));
  const uint64_t written = copies_.add_delivery(line(10), flat_side(memory), {}, true);
  EXPECT_TRUE(is_broken(copies_.on_delivery(written, 0, CUDA_SUCCESS, {}, 11)));
  EXPECT_TRUE(is_broken(copies_.on_delivery(written, 0, CUDA_SUCCESS, bytes("a"), 1)));
  EXPECT_TRUE(copies_.on_fetch(fetch, 0, 10, CUDA_SUCCESS).ok());
  EXPECT_TRUE(is_broken(copies_.on_fetch(fetch, 0, 10, CUDA_SUCCESS)));
  EXPECT_TRUE(eventually([&] { return sent_.lines.size() == 3; })) << "the memory is still read";
  EXPECT_EQ(memory, "..........");
}

}  // namespace
}  // namespace fargpu::client
