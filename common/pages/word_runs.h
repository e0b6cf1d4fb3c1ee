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

  // Bytes that `agreed`, as long as the data, has as well are gaps of the run and not written. The
  // last word may have to wait for the next run, or for finish(). A word may begin before `to` and
  // end behind the data, in their pages.
  void add(std::byte* to, std::span<const std::byte> data, const std::byte* agreed) {
    while (!data.empty()) {
      const size_t in_word = reinterpret_cast<uintptr_t>(to) % kBytes;
      auto* const word = reinterpret_cast<uint64_t*>(to - in_word);
      if (word != word_) finish();
      size_t n = std::min(kBytes - in_word, data.size());
      if (n == kBytes) {
        n = data.size() / kBytes * kBytes;
        for (size_t at = 0; at < n; at += kBytes)
          put(word + at / kBytes, load(data.data() + at), load(agreed + at));
      } else {
        uint64_t value = 0, old = 0;
        std::memcpy(reinterpret_cast<std::byte*>(&value) + in_word, data.data(), n);
        std::memcpy(reinterpret_cast<std::byte*>(&old) + in_word, agreed, n);
        const uint64_t changed = changed_bytes(value, old);
        word_ = word;
        value_ = (value_ & ~changed) | (value & changed);
        mask_ |= changed;
      }
      to += n;
      data = data.subspan(n);
      agreed += n;
    }
  }
  void finish() {
    if (word_ == nullptr) return;
    uint64_t now = __atomic_load_n(word_, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(word_, &now, (now & ~mask_) | (value_ & mask_), false,
                                        __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
    }
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
  void put(uint64_t* word, uint64_t value, uint64_t old) {
    const uint64_t changed = changed_bytes(value, old);
    if (changed == UINT64_MAX) {
      __atomic_store_n(word, value, __ATOMIC_RELEASE);
    } else if (changed != 0) {
      word_ = word, value_ = value, mask_ = changed;
      finish();
    }
  }

  uint64_t* word_ = nullptr;  // of which a part is to be written
  uint64_t value_ = 0, mask_ = 0;
};

}  // namespace fargpu::pages
