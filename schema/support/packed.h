// Arguments one behind the other, as bytes: what a call of NVML and its answer carry
// (docs/adr/0038). Both ends put and take the same items in the same order, which the description
// gives; the fingerprint of a call's opcode stands for that order.
//
// An item is a value (8 bytes, the C value at their beginning) or data (its length in 8 bytes, then
// its bytes, then zeros up to a multiple of 8). The bytes are a peer's: a reader never looks beyond
// them, and after the first item that is not there everything it gives is zero or empty.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

namespace fargpu::schema {

// What one item holds at most.
inline constexpr size_t kMaxItemBytes = size_t{256} << 10;

template <typename T>
concept PackedValue = std::is_trivially_copyable_v<T> && sizeof(T) <= 8;

class PackedWriter {
 public:
  template <PackedValue T>
  void value(T value) {
    uint64_t word = 0;
    std::memcpy(&word, &value, sizeof value);
    words_.push_back(word);
  }
  void data(const void* bytes, size_t count) {
    words_.push_back(count);
    const size_t at = words_.size();
    words_.resize(at + (count + 7) / 8);
    if (count != 0) std::memcpy(words_.data() + at, bytes, count);
  }
  std::span<const std::byte> bytes() const { return std::as_bytes(std::span(words_)); }
  void clear() { words_.clear(); }

 private:
  std::vector<uint64_t> words_;
};

class PackedReader {
 public:
  explicit PackedReader(std::span<const std::byte> bytes = {}) : rest_(bytes) {}

  template <PackedValue T>
  T value() {
    T value{};
    if (take(8)) std::memcpy(&value, item_.data(), sizeof value);
    return value;
  }
  // At most kMaxItemBytes; aligned as the bytes are.
  std::span<const std::byte> data() {
    const auto count = value<uint64_t>();
    if (count > kMaxItemBytes || !take((count + 7) / 8 * 8)) {
      broken_ = true;
      return {};
    }
    return item_.first(count);
  }
  // All items were there, and there are no more.
  bool finished() const { return !broken_ && rest_.empty(); }
  bool broken() const { return broken_; }
  void fail() { broken_ = true; }

 private:
  bool take(uint64_t count) {
    broken_ = broken_ || rest_.size() < count;
    if (broken_) return false;
    item_ = rest_.first(count);
    rest_ = rest_.subspan(count);
    return true;
  }

  std::span<const std::byte> rest_, item_;
  bool broken_ = false;
};

}  // namespace fargpu::schema
