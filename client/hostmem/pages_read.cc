// Pages: regions whose memory is read and written by the system.
#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <utility>

#include "client/hostmem/pages.h"
#include "common/host/foreign_memory.h"
#include "common/host/mapped_memory.h"
#include "common/host/memory_page.h"

namespace fargpu::client {
namespace {

constexpr size_t kMostRead = 128u << 10;  // at once: stays in a cache
constexpr int kMostReads = 16;            // of a word

// How much from `at` on is there; and in *end_of_gone where what is not ends.
size_t bytes_there(const std::map<size_t, size_t>& gone, size_t at, size_t bytes,
                   size_t* end_of_gone) {
  const auto after = gone.upper_bound(at);
  if (after != gone.begin() && at < std::prev(after)->second) {
    *end_of_gone = std::prev(after)->second;
    return 0;
  }
  return after == gone.end() ? bytes : std::min(bytes, after->first - at);
}

void note_gone(std::map<size_t, size_t>* gone, size_t begin, size_t end) {
  auto at = gone->upper_bound(begin);
  if (at != gone->begin() && std::prev(at)->second >= begin) {
    --at;
    begin = at->first;
    end = std::max(end, at->second);
    at = gone->erase(at);
  }
  for (; at != gone->end() && at->first <= end; at = gone->erase(at))
    end = std::max(end, at->second);
  gone->emplace(begin, end);
}

size_t end_of_page(uint64_t base, size_t at, size_t bytes) {
  return std::min<size_t>(bytes, page_of(base + at) + kPageBytes - base);
}

// The page at the offset could not be had: the offset behind it, or behind all that has left the
// region together with it.
size_t leave_out(uint64_t base, size_t at, size_t bytes, bool is_gone,
                 std::map<size_t, size_t>* gone) {
  size_t end = end_of_page(base, at, bytes);
  if (!is_gone) return end;
  if (const uint64_t hole = end_of_hole(base + at); hole > base + at)
    end = std::max<size_t>(end, std::min<uint64_t>(hole - base, bytes));
  note_gone(gone, at, end);
  return end;
}

// Where a region would begin of which the copy is the part from the offset on.
std::byte* base_of(std::span<std::byte> copy, size_t offset) {
  return reinterpret_cast<std::byte*>(reinterpret_cast<uintptr_t>(copy.data()) - offset);
}

// What differs between two copies, as pieces of the second one.
void add_changed(uint64_t address, std::span<const std::byte> before,
                 std::span<const std::byte> after, std::vector<ForeignPiece>* pieces) {
  for (size_t at = 0; at < before.size();) {
    if (before[at] == after[at]) {
      ++at;
      continue;
    }
    size_t end = at + 1;
    while (end < before.size() && before[end] != after[end]) ++end;
    pieces->push_back({address + at, after.subspan(at, end - at)});
    at = end;
  }
}

}  // namespace

bool Pages::is_read(const Region& region, size_t block) {
  return region.gate == nullptr || (region.gate->is_moved() && region.blocks.is_open(block));
}

std::span<std::byte> Pages::sample(size_t bytes) {
  if (sample_.size() < bytes) sample_.resize(bytes);
  return std::span(sample_).first(bytes);
}

size_t Pages::collect_from(Region& region, const std::byte* memory, size_t from, size_t until,
                           const pages::Agreement::Visit& visit) {
  return collect_into(region, memory, from, until, visit, *runs_, late_);
}

size_t Pages::collect_into(Region& region, const std::byte* memory, size_t from, size_t until,
                           const pages::Agreement::Visit& visit, pages::RunWriter& runs,
                           pages::LateWords& late) const {
  using Gaps = pages::Agreement::Gaps;
  const Gaps gaps = region.is_new              ? Gaps::kBehind
                    : has_gaps_ && looks_ == 1 ? Gaps::kInside
                                               : Gaps::kNone;
  return region.agreement.collect(memory, from, until, runs, visit, gaps,
                                  region.is_new ? nullptr : &late);
}

size_t Pages::collect(Region& region, size_t from, size_t until,
                      const pages::Agreement::Visit& visit) {
  const BlockStates& blocks = region.blocks;
  while (from < until) {
    const auto same = blocks.same_from(blocks.block_of(from), until);
    const size_t stop = std::min(until, blocks.offset(same) + blocks.bytes(same));
    const size_t end = is_read(region, same.first)
                           ? collect_read(region, from, stop, visit)
                           : collect_from(region, region.gate->local(), from, stop, visit);
    if (end < stop) return end;
    from = stop;
  }
  return until;
}

size_t Pages::collect_read(Region& region, size_t from, size_t until,
                           const pages::Agreement::Visit& visit) {
  const uint64_t base = region.address();
  while (from < until) {
    size_t next = 0;
    const size_t wanted = bytes_there(region.gone, from, std::min(until - from, kMostRead), &next);
    if (wanted == 0) {
      from = std::min(next, until);
      continue;
    }
    const auto now = sample(wanted);
    const CopiedPart read = read_foreign(base + from, now);
    snapshot_.restore(base + from, now.first(read.bytes));
    const size_t end = collect_from(region, base_of(now, from), from, from + read.bytes, visit);
    if (end < from + read.bytes) return end;  // there is no room
    from = end;
    if (read.bytes < wanted)
      from =
          std::min(until, leave_out(base, from, region.agreement.bytes(), read.gone, &region.gone));
  }
  return until;
}

bool Pages::read_word(Region& region, size_t offset, std::span<std::byte> now) {
  if (!is_read(region, region.blocks.block_of(offset))) {
    std::byte* const at = region.gate->local() + offset;
    if (now.size() == sizeof(uint32_t)) {
      const uint32_t word = __atomic_load_n(reinterpret_cast<uint32_t*>(at), __ATOMIC_ACQUIRE);
      std::memcpy(now.data(), &word, sizeof word);
    } else {
      const uint64_t word = __atomic_load_n(reinterpret_cast<uint64_t*>(at), __ATOMIC_ACQUIRE);
      std::memcpy(now.data(), &word, sizeof word);
    }
    return true;
  }
  size_t next = 0;
  if (bytes_there(region.gone, offset, now.size(), &next) == 0) return false;
  // The system may copy a word byte by byte, while it is being stored: read again until it stands.
  std::array<std::byte, sizeof(uint64_t)> again;
  const auto second = std::span(again).first(now.size());
  if (read_foreign(region.address() + offset, now).bytes < now.size()) return false;
  for (int i = 0; i < kMostReads; ++i) {
    if (read_foreign(region.address() + offset, second).bytes < now.size()) return false;
    if (std::equal(now.begin(), now.end(), second.begin())) break;
    std::copy(second.begin(), second.end(), now.begin());
  }
  return true;
}

// Runs of one page are merged into one copy of it.
void Pages::merge_read(Region& region, pages::ByteRun run) {
  const uint64_t base = region.address();
  while (!run.data.empty()) {
    if (merging_.region == &region && run.address - merging_.address < merging_.after.size()) {
      const size_t at = run.address - merging_.address;
      const size_t bytes = std::min(run.data.size(), merging_.after.size() - at);
      region.agreement.merge({run.address, run.data.first(bytes)},
                             base_of(merging_.after, merging_.address - base));
      run = {run.address + bytes, run.data.subspan(bytes)};
      continue;
    }
    write_merged();
    const size_t at = run.address - base;
    const size_t whole =
        std::max(run.data.size(), end_of_page(base, at, region.agreement.bytes()) - at);
    size_t next = 0;
    const size_t wanted = bytes_there(region.gone, at, std::min(whole, kMostRead), &next);
    CopiedPart read;
    if (wanted != 0) {
      merging_.before.resize(wanted);
      read = read_foreign(run.address, merging_.before);
      if (read.bytes == 0)
        next = leave_out(base, at, region.agreement.bytes(), read.gone, &region.gone);
    }
    if (read.bytes != 0) {
      merging_.before.resize(read.bytes);
      merging_.after.assign(merging_.before.begin(), merging_.before.end());
      merging_.region = &region;
      merging_.address = run.address;
      continue;
    }
    const size_t none = std::min(next - at, run.data.size());
    // The agreement knows of it all the same.
    region.agreement.merge({run.address, run.data.first(none)}, base_of(sample(none), at));
    run = {run.address + none, run.data.subspan(none)};
  }
}

void Pages::write_merged() {
  if (merging_.region == nullptr) return;
  std::vector<ForeignPiece> pieces;
  add_changed(merging_.address, merging_.before, merging_.after, &pieces);
  write_foreign_pieces(pieces);
  merging_.region = nullptr;
  merging_.after.clear();
}

}  // namespace fargpu::client
