#include "server/memory/host_pages.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <new>

#include "common/host/map_exactly.h"
#include "common/host/memory_page.h"
#include "common/pages/word_runs.h"
#include "generated/server/driver_table.h"

namespace fargpu::server {
namespace {

// A worker with a sanitizer has the addresses that the heap of a client with one has. It cannot say
// at a registration that device code will never use it: tests would not get any memory.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr CUresult kOccupied = CUDA_ERROR_NOT_SUPPORTED;
#else
constexpr CUresult kOccupied = CUDA_ERROR_ALREADY_MAPPED;
#endif
constexpr uint64_t kAddressEnd = uint64_t{1} << 47;  // user addresses on x86-64

std::byte* pointer(uint64_t address) { return reinterpret_cast<std::byte*>(address); }

bool is_range(uint64_t address, uint64_t bytes) {
  return page_of(address) != 0 && bytes != 0 && bytes <= kAddressEnd - kPageBytes &&
         address <= kAddressEnd - kPageBytes - bytes;
}

uint64_t pages_of(uint64_t address, uint64_t bytes) {
  return page_from(address + bytes) - page_of(address);
}

// Whether one of the ranges, which do not overlap, has any of these bytes.
template <typename Ranges>
bool touches(const Ranges& ranges, uint64_t address, uint64_t bytes) {
  const auto after = ranges.lower_bound(address);
  if (after != ranges.end() && after->first - address < bytes) return true;
  if (after == ranges.begin()) return false;
  const auto& [base, range] = *std::prev(after);
  return address - base < range.bytes;
}

}  // namespace

HostPages::~HostPages() {
  settle();
  for (auto& [address, region] : regions_) {
    if (region.agreement) (void)withdraw(address);
  }
  for (auto& [address, block] : blocks_) ::munmap(pointer(address), block.bytes);
}

bool HostPages::overlaps(uint64_t address, uint64_t bytes) const {
  return touches(regions_, address, bytes);
}

template <typename Visit>
CUresult HostPages::each_block(uint64_t address, uint64_t bytes, Visit&& visit) {
  const uint64_t end = page_from(address + bytes);
  auto block = blocks_.upper_bound(page_of(address));
  if (block != blocks_.begin()) --block;
  while (block != blocks_.end() && block->first < end) {
    const auto here = block++;  // it may be erased
    if (here->first + here->second.bytes <= page_of(address)) continue;
    if (const CUresult result = visit(here); result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUresult HostPages::take_pages(uint64_t address, uint64_t bytes) {
  const uint64_t end = page_from(address + bytes);
  const auto take = [this](uint64_t from, uint64_t to) {
    if (from >= to) return CUDA_SUCCESS;
    if (!map_exactly(pointer(from), to - from, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE)) {
      return errno == ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_ALREADY_MAPPED;
    }
    blocks_.emplace(from, Block{.bytes = to - from});
    return CUDA_SUCCESS;
  };
  // The pages between blocks that other regions have.
  uint64_t at = page_of(address);
  CUresult result = each_block(address, bytes, [&](Blocks::iterator block) {
    const CUresult taken = take(at, block->first);
    at = block->first + block->second.bytes;
    return taken;
  });
  if (result == CUDA_SUCCESS) result = take(at, end);
  (void)each_block(address, bytes, [](Blocks::iterator block) {
    ++block->second.regions;
    return CUDA_SUCCESS;
  });
  if (result != CUDA_SUCCESS) give_back_pages(address, bytes);
  return result;
}

void HostPages::give_back_pages(uint64_t address, uint64_t bytes) {
  (void)each_block(address, bytes, [this](Blocks::iterator entry) {
    auto& [at, block] = *entry;
    if (--block.regions == 0) {
      ::munmap(pointer(at), block.bytes);
      blocks_.erase(entry);
    }
    return CUDA_SUCCESS;
  });
}

CUresult HostPages::enroll(uint64_t address, uint64_t bytes, unsigned flags,
                           CUdeviceptr* device_pointer) {
  constexpr unsigned kReadOnly = CU_MEMHOSTREGISTER_READ_ONLY;
  CUresult result = CUDA_SUCCESS;
  (void)each_block(address, bytes, [&](Blocks::iterator entry) {
    auto& [at, block] = *entry;
    if (++block.registered != 1) return CUDA_SUCCESS;
    if (::mprotect(pointer(at), block.bytes, PROT_READ | PROT_WRITE) != 0)
      result = CUDA_ERROR_OUT_OF_MEMORY;
    ::madvise(pointer(at), block.bytes, MADV_HUGEPAGE);
    return CUDA_SUCCESS;
  });
  void* const memory = pointer(address);
  if (result == CUDA_SUCCESS) {
    constexpr unsigned kFlags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
    result = driver_.cuMemHostRegister_v2(memory, bytes, kFlags | (flags & kReadOnly));
    // The application may have registered it on another server's GPU, which can.
    if (result == CUDA_ERROR_NOT_SUPPORTED && (flags & kReadOnly) != 0)
      result = driver_.cuMemHostRegister_v2(memory, bytes, kFlags);
    if (result == CUDA_SUCCESS) {
      result = driver_.cuMemHostGetDevicePointer_v2(device_pointer, memory, 0);
      if (result != CUDA_SUCCESS) (void)withdraw(address);
    }
  }
  if (result != CUDA_SUCCESS) drop_memory(address, bytes);
  return result;
}

uint64_t HostPages::cost(uint64_t address, uint64_t bytes) { return 2 * pages_of(address, bytes); }

void HostPages::drop_memory(uint64_t address, uint64_t bytes) {
  (void)each_block(address, bytes, [](Blocks::iterator entry) {
    auto& [at, block] = *entry;
    if (--block.registered == 0) {
      // Its memory goes, its addresses stay.
      ::madvise(pointer(at), block.bytes, MADV_DONTNEED);
      ::mprotect(pointer(at), block.bytes, PROT_NONE);
    }
    return CUDA_SUCCESS;
  });
}

CUresult HostPages::withdraw(uint64_t address) const {
  return driver_.cuMemHostUnregister(pointer(address));
}

void HostPages::left(std::span<const uint64_t> withdrawn) {
  for (const uint64_t address : withdrawn) {
    const auto found = leaving_.find(address);
    if (found == leaving_.end()) continue;
    const Leaving gone = found->second;
    leaving_.erase(found);
    budget_->give_back(cost(address, gone.bytes));
    drop_memory(address, gone.bytes);
    if (gone.ends) give_back_pages(address, gone.bytes);
  }
}

uint16_t HostPages::mapped_in(uint64_t address) const {
  const auto found = regions_.find(address);
  return found != regions_.end() && found->second.agreement ? found->second.context : uint16_t{0};
}

bool HostPages::is_leaving(uint64_t address, uint64_t bytes) const {
  return is_range(address, bytes) && touches(leaving_, address, bytes);
}

CUresult HostPages::reserve(uint64_t address, uint64_t bytes) {
  settle();
  if (!is_range(address, bytes) || overlaps(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = take_pages(address, bytes);
  if (result != CUDA_SUCCESS) return result == CUDA_ERROR_ALREADY_MAPPED ? kOccupied : result;
  regions_.emplace(address, Region{.bytes = bytes});
  return CUDA_SUCCESS;
}

CUresult HostPages::map(uint64_t address, uint64_t bytes, uint16_t context, unsigned flags,
                        CUdeviceptr* device_pointer) {
  settle();
  if (driver_.cuMemHostRegister_v2 == nullptr || driver_.cuMemHostGetDevicePointer_v2 == nullptr ||
      driver_.cuMemHostUnregister == nullptr) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (!is_range(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (!budget_->take(cost(address, bytes))) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = map_paid(address, bytes, context, flags, device_pointer);
  if (result != CUDA_SUCCESS) budget_->give_back(cost(address, bytes));
  return result;
}

CUresult HostPages::map_paid(uint64_t address, uint64_t bytes, uint16_t context, unsigned flags,
                             CUdeviceptr* device_pointer) {
  auto found = regions_.find(address);
  const bool is_new = found == regions_.end();
  if (is_new) {
    const CUresult result = reserve(address, bytes);
    if (result != CUDA_SUCCESS) return result == kOccupied ? CUDA_ERROR_ALREADY_MAPPED : result;
    found = regions_.find(address);
  }
  Region& region = found->second;
  if (region.bytes != bytes || region.agreement) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  try {
    pages::Agreement agreement(address, bytes);
    result = enroll(address, bytes, flags, device_pointer);
    if (result == CUDA_SUCCESS) region.agreement = std::move(agreement);
  } catch (const std::bad_alloc&) {
  }
  if (result == CUDA_SUCCESS) {
    // What the last region had there, in pages that another one has as well.
    (void)each_block(address, bytes, [&](Blocks::iterator entry) {
      const auto& [at, block] = *entry;
      const uint64_t from = std::max(at, address),
                     end = std::min(at + block.bytes, address + bytes);
      if (block.registered > 1) std::memset(pointer(from), 0, end - from);
      return CUDA_SUCCESS;
    });
    region.context = context;
  } else if (is_new) {
    regions_.erase(found);
    give_back_pages(address, bytes);
  }
  return result;
}

CUresult HostPages::unmap(uint64_t address, std::vector<uint64_t>* leaving) {
  settle();
  const auto found = regions_.find(address);
  if (found == regions_.end()) return CUDA_ERROR_NOT_MAPPED;
  const Region region = std::move(found->second);
  regions_.erase(found);
  // Its context may be withdrawing it already.
  if (const auto leaves = leaving_.find(address); leaves != leaving_.end()) {
    leaves->second.ends = true;
  } else if (region.agreement) {
    leaving_.emplace(address, Leaving{region.bytes, true});
    leaving->push_back(address);
  } else {
    give_back_pages(address, region.bytes);
  }
  return CUDA_SUCCESS;
}

std::vector<uint64_t> HostPages::take_context(uint16_t context) {
  settle();
  std::vector<uint64_t> taken;
  for (auto& [address, region] : regions_) {
    if (!region.agreement || region.context != context) continue;
    region.agreement.reset();
    region.on_demand = false;
    leaving_.emplace(address, Leaving{region.bytes, false});
    taken.push_back(address);
  }
  return taken;
}

void HostPages::context_ended(ContextEnd& end) {
  const std::vector<uint64_t> taken = take_context(end.id);
  for (const uint64_t address : taken)
    end.withdrawals.push_back([this, address] { (void)withdraw(address); });
  end.afterwards.push_back([this, taken] { left(taken); });
}

HostPages::Regions::iterator HostPages::region_at(uint64_t address, uint64_t bytes) {
  const auto after = regions_.upper_bound(address);
  if (after == regions_.begin()) return regions_.end();
  const auto found = std::prev(after);
  const auto& agreement = found->second.agreement;
  return agreement && agreement->holds(address, bytes) ? found : regions_.end();
}

bool HostPages::is_valid(std::span<const std::byte> runs) {
  pages::RunReader reader(runs);
  while (const auto run = reader.next()) {
    if (region_at(run->address, run->data.size()) == regions_.end()) return false;
  }
  return !reader.malformed();
}

// A kernel that looks meanwhile should find few words changed in one place and not yet in another
// one: so what the writes need is requested before the first one. A later run may change a byte of
// an earlier one back.
void HostPages::place(const Push& push) {
  const auto agreement_of = [this](const pages::ByteRun& run) -> pages::Agreement& {
    return *region_at(run.address, run.data.size())->second.agreement;
  };
  const auto agreed = [](const pages::Agreement& agreement, const pages::ByteRun& run) {
    return agreement.contents(run.address - agreement.address(), run.data.size()).data();
  };
  pages::RunReader reader(push.runs);
  while (const auto run = reader.next()) {
    __builtin_prefetch(agreed(agreement_of(*run), *run), /*rw=*/1);
    __builtin_prefetch(pointer(run->address), /*rw=*/1);
  }
  pages::RunReader again(push.runs);
  pages::WordRuns words;
  while (const auto run = again.next()) {
    pages::Agreement& agreement = agreement_of(*run);
    words.add(pointer(run->address), run->data, push.gaps ? agreed(agreement, *run) : nullptr);
    agreement.agree(*run);
  }
}

CUresult HostPages::push(const Push& push) {
  settle();
  ++pushes_;
  if (!is_valid(push.runs)) return CUDA_ERROR_INVALID_VALUE;
  place(push);
  return CUDA_SUCCESS;
}

CUresult HostPages::push_beside(const Push& push) {
  ++pushes_;
  if (!is_valid(push.runs)) {
    settle();
    return CUDA_ERROR_INVALID_VALUE;
  }
  placer_.add(push);
  return CUDA_SUCCESS;
}

uint64_t HostPages::fetch(uint64_t from, pages::RunWriter& runs) {
  settle();
  size_t scan = kScanBytes;
  auto region = regions_.upper_bound(from);
  if (region != regions_.begin()) --region;
  for (; region != regions_.end(); ++region) {
    const auto& [address, here] = *region;
    if (!here.agreement || here.on_demand) continue;
    const size_t begin = from > address ? std::min(from - address, here.bytes) : 0;
    if (begin == here.bytes) continue;
    if (scan == 0) return address + begin;
    const size_t until = begin + std::min<size_t>(scan, here.bytes - begin);
    const size_t end = region->second.agreement->collect(pointer(address), begin, until, runs);
    if (end < here.bytes) return address + end;
    scan -= end - begin;
  }
  return 0;
}

CUresult HostPages::set_on_demand(uint64_t address, bool on_demand) {
  settle();
  const auto found = regions_.find(address);
  if (found == regions_.end() || !found->second.agreement) return CUDA_ERROR_NOT_MAPPED;
  found->second.on_demand = on_demand;
  return CUDA_SUCCESS;
}

std::optional<uint64_t> HostPages::fetch_part(uint64_t address, uint64_t bytes,
                                              pages::RunWriter& runs) {
  settle();
  if (bytes == 0 || bytes > kScanBytes) return std::nullopt;
  const auto region = region_at(address, bytes);
  if (region == regions_.end()) return std::nullopt;
  const size_t begin = address - region->first, until = begin + bytes;
  for (int look = 0; look < kMostLooks; ++look) {
    const size_t before = runs.bytes().size();
    const size_t end = region->second.agreement->collect(pointer(region->first), begin, until, runs,
                                                         {}, pages::Agreement::Gaps::kInside);
    if (end < until) return region->first + end;
    if (runs.bytes().size() == before) break;
    std::atomic_thread_fence(std::memory_order_acquire);
  }
  return 0;
}

}  // namespace fargpu::server
