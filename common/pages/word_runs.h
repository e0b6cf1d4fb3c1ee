// WordRuns: puts runs of the other end in place while device code may run and look. An aligned word
// of eight bytes changes at once, also if several runs lie in it, and words change in the order of
// the runs: from each run's first byte to its last one. Bytes beside the runs keep what they have.
//
// One thread at a time; others may write other bytes of the memory meanwhile.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace fargpu::pages {

class WordRuns {
 public:
  WordRuns() = default;
  ~WordRuns() { finish(); }
  WordRuns(const WordRuns&) = delete;
  WordRuns& operator=(const WordRuns&) = delete;

  // The last word may have to wait for the next run, or for finish(). A word may begin before `to`
  // and end behind the data, in their pages. `agreed`: as long as the data; bytes that it has as
  // well are gaps of the run and not written. Null: all are.
  void add(std::byte* to, std::span<const std::byte> data, const std::byte* agreed = nullptr) {
    while (!data.empty()) {
      const size_t in_word = reinterpret_cast<uintptr_t>(to) % kBytes;
      auto* const word = reinterpret_cast<uint64_t*>(to - in_word);
      size_t n = std::min(kBytes - in_word, data.size());
      if (word != word_ || n == kBytes) finish();
      if (n == kBytes) {
        n = data.size() / kBytes * kBytes;
        for (size_t at = 0; at < n; at += kBytes) {
          const uint64_t value = load(data.data() + at);
          put(word + at / kBytes, value,
              agreed == nullptr ? UINT64_MAX : changed_bytes(value, load(agreed + at)));
        }
      } else {
        word_ = word;
        for (size_t i = 0; i < n; ++i) {
          if (agreed != nullptr && data[i] == agreed[i]) continue;
          reinterpret_cast<std::byte*>(&value_)[in_word + i] = data[i];
          reinterpret_cast<std::byte*>(&mask_)[in_word + i] = std::byte{0xff};
        }
      }
      to += n;
      data = data.subspan(n);
      if (agreed != nullptr) agreed += n;
    }
  }
  void finish() {
    if (word_ != nullptr) put(word_, value_, mask_);
    word_ = nullptr;
    mask_ = 0;
  }

 private:
  static constexpr size_t kBytes = sizeof(uint64_t);

  static uint64_t load(const std::byte* from) {
    uint64_t value = 0;
    std::memcpy(&value, from, kBytes);
    return value;
  }
  // 0xff for each byte in which they differ.
  static uint64_t changed_bytes(uint64_t value, uint64_t old) {
    constexpr uint64_t kLow = 0x7f7f7f7f7f7f7f7f;
    const uint64_t difference = value ^ old;
    return ((((difference & kLow) + kLow) | difference) & ~kLow) / 0x80 * 0xff;
  }
  static void put(uint64_t* word, uint64_t value, uint64_t mask) {
    if (mask == UINT64_MAX) {
      __atomic_store_n(word, value, __ATOMIC_RELEASE);
      return;
    }
    if (mask == 0) return;
    uint64_t now = __atomic_load_n(word, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(word, &now, (now & ~mask) | (value & mask), false,
                                        __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
    }
  }

  uint64_t* word_ = nullptr;  // of which a part is to be written
  uint64_t value_ = 0, mask_ = 0;
};

}  // namespace fargpu::pages
