// HiddenMemory: pinned or registered host memory that device code cannot reach, because no device
// has been given its address yet. It detects the moment when one is: it scans words that go to a
// device for addresses of such memory (exposure.h).
//
// scan() costs about a nanosecond for eight bytes, and one relaxed load while no memory is hidden.
// Any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>

namespace fargpu::client {

class HiddenMemory {
 public:
  void add(uint64_t base, uint64_t bytes);
  void remove(uint64_t base);
  bool any() const { return end_.load(std::memory_order_acquire) != 0; }
  // The application has taken exposed memory back. The device may still have its addresses, in
  // graphs and in its own memory, and may use them when memory is registered there again. Of more
  // than kMostRanges ranges the further ones are not kept.
  void was_exposed(uint64_t base, uint64_t bytes);
  bool may_be_known(uint64_t base, uint64_t bytes) const;  // to the device, some of it
  // The region that contains this address.
  std::optional<uint64_t> find(uint64_t address) const;

  // Calls found(base) for each region that an 8-byte word of the data points into. The first word
  // begins at `data`, which needs no alignment.
  template <typename Found>
  void scan(const void* data, size_t bytes, Found&& found) const {
    if (!any()) return;
    const uint64_t lowest = lowest_.load(std::memory_order_acquire);
    const uint64_t span = end_.load(std::memory_order_acquire) - lowest;
    constexpr size_t kWord = sizeof(uint64_t), kAtOnce = 16 * kWord;
    const auto* from = static_cast<const std::byte*>(data);
    const auto word_at = [from](size_t at) {
      uint64_t word;
      std::memcpy(&word, from + at, kWord);
      return word;
    };
    for (size_t at = 0; at + kWord <= bytes;) {
      if (at + kAtOnce <= bytes) {
        bool near = false;
        for (size_t i = 0; i < kAtOnce; i += kWord) near |= word_at(at + i) - lowest < span;
        if (!near) {
          at += kAtOnce;
          continue;
        }
      }
      for (const size_t end = at + kAtOnce; at < end && at + kWord <= bytes; at += kWord) {
        const uint64_t word = word_at(at);
        if (word - lowest >= span) continue;
        if (const auto base = find(word)) found(*base);
      }
    }
  }

 private:
  static constexpr size_t kMostRanges = 4096;
  void set_bounds();  // needs the lock

  mutable std::mutex mutex_;
  std::map<uint64_t, uint64_t> regions_;  // base -> bytes; guarded by mutex_, as is
  std::map<uint64_t, uint64_t> known_;    // of was_exposed(): base -> end, apart from each other
  // All regions lie in [lowest_, end_). Set under the lock. Whoever reads both while they change
  // has two that hold every region that was there before and after: if `end_` is the lower one, all
  // addresses lie between them.
  std::atomic<uint64_t> lowest_{0}, end_{0};
};

}  // namespace fargpu::client
