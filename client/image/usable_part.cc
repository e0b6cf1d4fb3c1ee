#include "client/image/usable_part.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "common/fatbin/fatbin.h"

namespace fargpu::client {
namespace {

constexpr size_t kLeastLeftOut = 16 << 10;  // bytes; below, nothing is gained

// Machine code runs on GPUs of its major version, from its minor version on. (Code that wants one
// version exactly is a case of it.)
bool runs_machine_code(int capability, uint32_t arch) {
  const auto gpu = static_cast<uint32_t>(capability);
  return arch / 10 == gpu / 10 && arch <= gpu;
}

bool is_of(const FatbinEntry& entry, EntryKind kind) {
  return entry.kind == static_cast<uint16_t>(kind);
}

bool can_use(int capability, const FatbinEntry& entry) {
  if (is_of(entry, EntryKind::kCubin)) return runs_machine_code(capability, entry.arch);
  // A driver compiles PTX of its GPU's version and of all before. Other kinds are for linkers: it
  // is not for us to know what these take.
  return !is_of(entry, EntryKind::kPtx) || entry.arch <= static_cast<uint32_t>(capability);
}

bool has_machine_code(const std::vector<FatbinEntry>& entries, std::span<const int> capabilities) {
  const auto runs_on = [&](int capability) {
    return std::any_of(entries.begin(), entries.end(), [&](const FatbinEntry& entry) {
      return is_of(entry, EntryKind::kCubin) && can_use(capability, entry);
    });
  };
  return !capabilities.empty() && std::all_of(capabilities.begin(), capabilities.end(), runs_on);
}

bool is_used(const FatbinEntry& entry, std::span<const int> capabilities) {
  return std::any_of(capabilities.begin(), capabilities.end(),
                     [&](int capability) { return can_use(capability, entry); });
}

// Entries that follow each other become one piece.
void append(std::vector<std::span<const std::byte>>& pieces, std::span<const std::byte> next) {
  if (pieces.empty() || pieces.back().data() + pieces.back().size() != next.data())
    pieces.push_back(next);
  else
    pieces.back() = {pieces.back().data(), pieces.back().size() + next.size()};
}

}  // namespace

bool has_machine_code(std::span<const std::byte> container, std::span<const int> capabilities) {
  const auto entries = read_fatbin(container);
  return entries.ok() && has_machine_code(*entries, capabilities);
}

UsablePart usable_part(std::span<const std::byte> container, std::span<const int> capabilities) {
  const auto entries = read_fatbin(container);
  if (!entries.ok() || !has_machine_code(*entries, capabilities)) return {};
  std::vector<std::span<const std::byte>> used;
  size_t used_bytes = 0;
  size_t left_out = 0;
  for (const FatbinEntry& entry : *entries) {
    if (is_used(entry, capabilities)) {
      append(used, entry.whole);
      used_bytes += entry.whole.size();
    } else {
      left_out += entry.whole.size();
    }
  }
  if (left_out < kLeastLeftOut) return {};
  UsablePart part;
  part.header = fatbin_header(container, used_bytes);
  part.bytes.emplace_back(part.header);
  part.bytes.insert(part.bytes.end(), used.begin(), used.end());
  return part;
}

}  // namespace fargpu::client
