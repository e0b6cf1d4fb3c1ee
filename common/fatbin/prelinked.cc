#include "common/fatbin/prelinked.h"

#include <fmt/core.h>

#include <cstring>

#include "common/fatbin/fatbin.h"

namespace fargpu {
namespace {

constexpr uint32_t kMagic = 0x6c706766;  // "fgpl"
constexpr size_t kUnit = 8;

size_t padding_of(uint64_t bytes) { return static_cast<size_t>(-bytes % kUnit); }

Status damaged(std::string why) {
  return Status(StatusCode::kInvalidArgument, "damaged block of containers: " + std::move(why));
}

}  // namespace

PrelinkedBlock prelinked_block(std::span<const std::span<const std::byte>> containers) {
  static constexpr std::byte kZeros[kUnit] = {};
  PrelinkedBlock block;
  block.header.resize(2 * sizeof(uint32_t) + containers.size() * sizeof(uint64_t));
  const uint32_t head[2] = {kMagic, static_cast<uint32_t>(containers.size())};
  std::memcpy(block.header.data(), head, sizeof head);
  block.pieces.emplace_back(block.header);
  for (size_t i = 0; i < containers.size(); ++i) {
    const uint64_t bytes = containers[i].size();
    std::memcpy(block.header.data() + sizeof head + i * sizeof bytes, &bytes, sizeof bytes);
    block.pieces.push_back(containers[i]);
    if (const size_t padding = padding_of(bytes); padding > 0)
      block.pieces.emplace_back(kZeros, padding);
  }
  return block;
}

Result<std::vector<std::span<const std::byte>>> read_prelinked(std::span<const std::byte> block) {
  std::vector<std::span<const std::byte>> containers;
  uint32_t head[2];
  if (block.size() < sizeof head) return containers;
  std::memcpy(head, block.data(), sizeof head);
  if (head[0] != kMagic) return containers;
  const uint32_t count = head[1];
  if (count == 0 || count > kMaxPrelinked) return damaged(fmt::format("{} containers", count));
  const size_t sizes = sizeof head;
  size_t at = sizes + count * sizeof(uint64_t);
  if (at > block.size()) return damaged("cut off");
  for (uint32_t i = 0; i < count; ++i) {
    uint64_t bytes;
    std::memcpy(&bytes, block.data() + sizes + i * sizeof bytes, sizeof bytes);
    if (bytes > block.size() - at || padding_of(bytes) > block.size() - at - bytes)
      return damaged(fmt::format("container {} of {} bytes is cut off", i, bytes));
    const auto container = block.subspan(at, bytes);
    if (bytes < kFatbinHeaderBytes) return damaged(fmt::format("container {} is none", i));
    const Result<size_t> said = fatbin_size(container);
    if (!said.ok()) return said.status();
    if (*said > bytes)
      return damaged(fmt::format("container {} says {} bytes and has {}", i, *said, bytes));
    containers.push_back(container);
    at += bytes + padding_of(bytes);
  }
  if (at != block.size()) return damaged("bytes behind the last container");
  return containers;
}

}  // namespace fargpu
