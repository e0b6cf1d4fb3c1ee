#include "common/host/mapped_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <span>

#include "common/base/keep_errno.h"
#include "common/host/foreign_memory.h"
#include "common/host/memory_page.h"
#include "common/host/thread_stacks.h"

namespace fargpu {
namespace {

// Older headers lack these.
constexpr int kPopulateRead = 22, kPopulateWrite = 23;  // MADV_POPULATE_*

bool is_mapped(uint64_t address) {
  unsigned char resident = 0;
  return ::mincore(as_pointer(page_of(address)), kPageBytes, &resident) == 0 || errno != ENOMEM;
}

// Calls visit(begin, end, permissions, name) for the mappings of the process in order, until it
// says false. False: they cannot be read.
template <typename Visit>
bool for_each_mapping(const Visit& visit) {
  std::FILE* const maps = std::fopen("/proc/self/maps", "re");
  if (maps == nullptr) return false;
  char line[512];
  bool at_begin = true, go_on = true;
  while (go_on && std::fgets(line, sizeof line, maps) != nullptr) {
    unsigned long long begin = 0, end = 0;
    char permissions[8] = {}, name[8] = {};
    if (at_begin &&
        std::sscanf(line, "%llx-%llx %7s %*s %*s %*s %7s", &begin, &end, permissions, name) >= 3)
      go_on = visit(uint64_t{begin}, uint64_t{end}, permissions, name);
    at_begin = std::strchr(line, '\n') != nullptr;
  }
  std::fclose(maps);
  return true;
}

bool is_mapped_for(uint64_t begin, uint64_t end, MemoryUse use) {
  uint64_t reached = begin;
  const size_t wanted = use == MemoryUse::kRead ? 0 : 1;
  const bool looked =
      for_each_mapping([&](uint64_t from, uint64_t until, const char* permissions, const char*) {
        if (until <= reached) return true;
        if (from > reached || permissions[wanted] == '-') return false;
        reached = until;
        return reached < end;
      });
  return !looked || reached >= end;
}

// Of a thread, by the GNU C library: aligned to its largest size, and the fourth word says how much
// of it is mapped for use.
bool is_heap(uint64_t from, uint64_t until) {
  constexpr uint64_t kMost = uint64_t{64} << 20;
  std::array<uint64_t, 4> head = {};
  return from % kMost == 0 && until - from <= kMost &&
         read_foreign(from, std::as_writable_bytes(std::span(head))).bytes == sizeof head &&
         head[3] == until - from;
}

}  // namespace

bool is_own_mapping(uint64_t begin, uint64_t end) {
  const KeepErrno keep;
  if (is_on_a_stack(begin, end)) return false;
  bool own = false;
  (void)for_each_mapping(
      [&](uint64_t from, uint64_t until, const char* permissions, const char* name) {
        if (until <= begin) return true;
        const bool has_name = name[0] != '\0' && std::strncmp(name, "[anon:", 6) != 0;
        own = from <= begin && end <= until && std::strcmp(permissions, "rw-p") == 0 && !has_name &&
              !is_heap(from, until);
        return false;
      });
  return own;
}

uint64_t end_of_hole(uint64_t address) {
  const KeepErrno keep;
  if (is_mapped(address)) return 0;
  const uint64_t page_end = page_of(address) + kPageBytes;
  uint64_t end = UINT64_MAX;
  const bool looked =
      for_each_mapping([&](uint64_t from, uint64_t until, const char*, const char*) {
        if (until <= address) return true;
        end = from;
        return false;
      });
  return looked ? std::max(end, page_end) : page_end;
}

bool is_accessible(uint64_t address, uint64_t bytes, MemoryUse use) {
  const KeepErrno keep;
  const uint64_t begin = page_of(address);
  const uint64_t length = page_of(address + bytes - 1) + kPageBytes - begin;
  const int advice = use == MemoryUse::kRead ? kPopulateRead : kPopulateWrite;
  if (::madvise(as_pointer(begin), length, advice) == 0) return true;
  // EINVAL: protected, or memory that cannot be made present, or an older system.
  return errno == EINVAL && is_mapped_for(begin, begin + length, use);
}

}  // namespace fargpu
