// A process's managed memory with a worker that is a vector (managed_memory_test.cc and
// managed_served_test.cc).
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "client/managed/managed_memory.h"
#include "client/memory/dual_mapping.h"
#include "client/memory/user_faults.h"
#include "client/object/context.h"

namespace fargpu::client {

using Touched = ManagedMemory::Touched;

inline constexpr uint64_t kBlock = 64 << 10;

// By signals a test says what it touches, as the handler would; by messages it may as well just do
// it.
enum class Way { kSignals, kMessages };

// The worker's memory, and what travels.
class ManagedMemoryTest : public testing::TestWithParam<Way> {
 protected:
  struct Travelled {
    uint64_t offset, bytes;
    bool operator==(const Travelled&) const = default;
  };

  class FakeWire final : public ManagedMemory::Wire {
   public:
    explicit FakeWire(ManagedMemoryTest& test) : test_(test) {}
    CUresult push(const ManagedMemory::Piece& piece) override {
      if (test_.before_push_) std::exchange(test_.before_push_, nullptr)();
      for (const auto& [address, bytes] : piece.parts) {
        test_.pushed_.push_back({address - test_.base(), bytes});
        std::memcpy(test_.at_worker(address), piece.local + (address - piece.address), bytes);
      }
      return test_.result_;
    }
    CUresult fetch(const ManagedMemory::Piece& piece) override {
      for (const auto& [address, bytes] : piece.parts)
        test_.fetched_.push_back({address - test_.base(), bytes});
      if (test_.before_fetch_) std::exchange(test_.before_fetch_, nullptr)();
      for (const auto& [address, bytes] : piece.parts) {
        if (address - test_.base() < test_.worker_.size())
          std::memcpy(piece.local + (address - piece.address), test_.at_worker(address), bytes);
      }
      if (test_.during_fetch_) std::exchange(test_.during_fetch_, nullptr)();
      return test_.result_;
    }
    CUresult finish_pushes(Context&) override {
      ++test_.finished_;
      return CUDA_SUCCESS;
    }
    CUresult clear(Context&, uint64_t, uint64_t) override { return CUDA_SUCCESS; }
    void await_idle(Context&) override { ++test_.awaited_; }
    uint64_t most_fetched() override { return test_.most_fetched_; }

   private:
    ManagedMemoryTest& test_;
  };

  void SetUp() override {
    if (GetParam() == Way::kMessages) {
#ifdef __SANITIZE_THREAD__
      GTEST_SKIP() << "ThreadSanitizer does not see that a fault orders two threads";
#endif
      if (const Status status = UserFaults::probe(UserFaults::Mode::kWrites); !status.ok())
        GTEST_SKIP() << "the system does not let this process serve faults: " << status.message();
    }
    chunk_ = DualMapping::make(AddressUse::kManaged, uint64_t{16} << 20);
    ASSERT_TRUE(chunk_);
    worker_.resize(chunk_->bytes());
    memory_.set_wire(
        std::make_unique<FakeWire>(*this), reported(), is_eager_,
        [this](uint64_t address) { wanted_.push_back(address - base()); }, ask_show());
    ASSERT_EQ(add(0, uint64_t{8} << 20), CUDA_SUCCESS);
  }
  void TearDown() override {
    // What waits finds nothing any more.
    for (const uint64_t address : added_) memory_.remove(address);
  }
  virtual ManagedMemory::AskShow ask_show() { return nullptr; }
  const UserFaults* reported() {
    if (GetParam() == Way::kSignals) return nullptr;
    // The thread lives as long as the process.
    static auto& faults = *new UserFaults(UserFaults::Mode::kWrites);
    static std::atomic<ManagedMemoryTest*> now;
    now = this;
    EXPECT_TRUE(faults.open());
    [[maybe_unused]] static const bool served = [] {
      std::thread([] {
        UserFaults::Accesses found;
        for (;;) {
          faults.wait(std::nullopt);
          now.load()->heard_ = now.load()->memory_.gives();
          for (const UserFaults::Access& access : faults.take(found))
            now.load()->serve(faults, access.address, access.is_write);
        }
      }).detach();
      return true;
    }();
    return &faults;
  }
  void serve(const UserFaults& faults, uint64_t address, bool is_write) {
    ++served_;
    switch (memory_.touch(address, is_write, heard_)) {
      case Touched::kServed:
        return;
      case Touched::kUnknown:
        return faults.retry(address / 4096 * 4096, 4096);
      case Touched::kNeedsService:
        if (memory_.bring(address, is_write, heard_) != CUDA_SUCCESS) memory_.fail(address);
    }
  }
  CUresult add(uint64_t offset, uint64_t bytes) {
    added_.push_back(base() + offset);
    return memory_.add(
        {.address = base() + offset, .bytes = bytes, .mapping = &*chunk_, .context = &context_});
  }
  uint64_t base() const { return chunk_->address(); }
  std::byte* at_worker(uint64_t address) { return worker_.data() + (address - base()); }
  // What the handler and the service do together.
  void touch(uint64_t offset, bool is_write) {
    while (memory_.touch(base() + offset, is_write) == Touched::kNeedsService)
      ASSERT_EQ(memory_.bring(base() + offset, is_write), CUDA_SUCCESS);
  }
  char read(uint64_t offset) {
    touch(offset, false);
    return *reinterpret_cast<volatile char*>(base() + offset);
  }
  void write(uint64_t offset, char value) {
    touch(offset, true);
    *reinterpret_cast<volatile char*>(base() + offset) = value;
  }
  void work() {
    memory_.begin_work();
    ASSERT_EQ(memory_.give(), CUDA_SUCCESS);
    memory_.end_work();
  }
  void finish() { memory_.work_is_done(memory_.mark()); }

  std::optional<DualMapping> chunk_;
  std::vector<std::byte> worker_;
  Context context_;
  Observers observers_;
  ManagedMemory memory_{observers_};
  CUresult result_ = CUDA_SUCCESS;
  std::vector<Travelled> pushed_, fetched_;
  uint64_t most_fetched_ = uint64_t{8} << 20;
  int awaited_ = 0, finished_ = 0;
  std::function<void()> during_fetch_, before_fetch_, before_push_;
  bool is_eager_ = false;
  std::atomic<int> served_{0};
  uint64_t heard_ = 0;  // the serving thread's
  std::vector<uint64_t> added_;
  std::vector<uint64_t> wanted_;  // ahead
};

inline const auto kWays = testing::Values(Way::kSignals, Way::kMessages);
inline std::string name_of(const testing::TestParamInfo<Way>& way) {
  return way.param == Way::kSignals ? "Signals" : "Messages";
}

}  // namespace fargpu::client
