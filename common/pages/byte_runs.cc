#include "common/pages/byte_runs.h"

#include <algorithm>
#include <array>

namespace fargpu::pages {
namespace {

constexpr size_t kLongestNumber = 10;  // 64 bits, 7 in each byte
constexpr size_t kLongestHead = 2 * kLongestNumber;

size_t write_number(uint64_t value, std::byte* to) {
  size_t n = 0;
  for (; value >= 0x80; value >>= 7) to[n++] = static_cast<std::byte>(value | 0x80);
  to[n++] = static_cast<std::byte>(value);
  return n;
}

}  // namespace

RunWriter::RunWriter(size_t limit) : limit_(std::max(limit, kSmallestLimit)) {}

size_t RunWriter::room() const {
  const size_t left = limit_ - bytes_.size();
  return left - std::min(left, kLongestHead);
}

size_t RunWriter::add(uint64_t address, std::span<const std::byte> data) {
  const size_t taken = std::min(data.size(), room());
  if (taken == 0) return 0;
  std::array<std::byte, kLongestHead> head;
  size_t n = write_number(address - end_, head.data());
  n += write_number(taken, head.data() + n);
  bytes_.insert(bytes_.end(), head.begin(), head.begin() + static_cast<ptrdiff_t>(n));
  bytes_.insert(bytes_.end(), data.begin(), data.begin() + static_cast<ptrdiff_t>(taken));
  end_ = address + taken;
  return taken;
}

void RunWriter::clear() {
  bytes_.clear();
  end_ = 0;
}

std::optional<uint64_t> RunReader::number() {
  uint64_t value = 0;
  for (size_t i = 0; i < std::min(left_.size(), kLongestNumber); ++i) {
    const auto byte = std::to_integer<uint64_t>(left_[i]);
    // The tenth byte has one bit of the number left.
    if (i + 1 == kLongestNumber && byte > 1) break;
    value |= (byte & 0x7f) << (7 * i);
    if ((byte & 0x80) != 0) continue;
    left_ = left_.subspan(i + 1);
    return value;
  }
  malformed_ = true;
  return std::nullopt;
}

std::optional<ByteRun> RunReader::next() {
  if (left_.empty() || malformed_) return std::nullopt;
  const auto gap = number();
  const auto length = gap ? number() : std::nullopt;
  if (!length) return std::nullopt;
  const uint64_t address = end_ + *gap;
  if (*length == 0 || *length > left_.size() || address + *length < address) {
    malformed_ = true;
    return std::nullopt;
  }
  const ByteRun run{address, left_.first(static_cast<size_t>(*length))};
  left_ = left_.subspan(run.data.size());
  end_ = address + *length;
  return run;
}

}  // namespace fargpu::pages
