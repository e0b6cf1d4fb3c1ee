// Runs that lie in one aligned word of eight bytes, written by one store: device code that runs may
// wait for one of the bytes and then read another one. Any thread that may adopt runs.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "common/pages/agreement.h"
#include "common/pages/byte_runs.h"

namespace fargpu::pages {

class WordRuns {
 public:
  static constexpr uint64_t kBytes = sizeof(uint64_t);
  explicit WordRuns(const ByteRun& first) {
    const uint64_t word = first.address & ~(kBytes - 1);
    if (first.address + first.data.size() > word + kBytes) return;
    address_ = word;
    add(first);
  }
  // Whether the run lies in the word of the first one, as that does.
  bool takes(const ByteRun& run) const {
    return address_ != 0 && run.address >= address_ &&
           run.address + run.data.size() <= address_ + kBytes;
  }
  void add(const ByteRun& run) {
    const size_t at = run.address - address_;
    std::copy(run.data.begin(), run.data.end(), value_.begin() + at);
    std::fill_n(mask_.begin() + at, run.data.size(), std::byte{0xff});
  }
  // As Agreement::adopt() for each of the runs. The word may begin before the region and end behind
  // it, in its pages.
  void adopt(Agreement& agreement, std::byte* memory) const {
    uint64_t value = 0, mask = 0;
    std::memcpy(&value, value_.data(), kBytes);
    std::memcpy(&mask, mask_.data(), kBytes);
    const uint64_t here = reinterpret_cast<uint64_t>(memory) + (address_ - agreement.address());
    auto* const word = reinterpret_cast<uint64_t*>(here);
    uint64_t now = __atomic_load_n(word, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(word, &now, (now & ~mask) | value, false, __ATOMIC_RELEASE,
                                        __ATOMIC_RELAXED)) {
    }
    // The agreement has to know of it, too; it writes to this copy.
    std::array<std::byte, kBytes> copy{};
    const auto region = reinterpret_cast<uint64_t>(copy.data()) - (address_ - agreement.address());
    for (size_t at = 0; at < kBytes; ++at) {
      if (mask_[at] != std::byte{0})
        agreement.adopt({address_ + at, {&value_[at], 1}}, reinterpret_cast<std::byte*>(region));
    }
  }

 private:
  uint64_t address_ = 0;  // of the word; 0: the first run is longer
  std::array<std::byte, kBytes> value_{}, mask_{};
};

}  // namespace fargpu::pages
