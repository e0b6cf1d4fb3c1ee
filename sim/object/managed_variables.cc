#include "sim/object/managed_variables.h"

#include <sys/mman.h>

#include <cstring>
#include <memory>

#include "sim/driver/driver.h"
#include "sim/memory/range_allocator.h"

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

namespace fargpu::sim {
namespace {

constexpr size_t kBytes = size_t{1} << 30;
constexpr uint64_t kUnit = 16;  // variables begin at multiples of it

// The managed memory of all variables of the process.
class Pages {
 public:
  static Pages& get() {
    static auto* pages = new Pages;  // never destroyed: modules may end while the process exits
    return *pages;
  }
  std::optional<uint64_t> take(size_t bytes, size_t align) {
    std::lock_guard lock(mutex_);
    return free_ ? free_->allocate(bytes, std::max<uint64_t>(align, kUnit)) : std::nullopt;
  }
  void give_back(uint64_t address, size_t bytes) {
    std::lock_guard lock(mutex_);
    free_->free(address, bytes);
  }

 private:
  Pages() {
    void* const wanted =
        reinterpret_cast<void*>(managed_variables_begin(Driver::get().settings().slot));
    void* pages = map(wanted, MAP_FIXED_NOREPLACE);
    if (pages == MAP_FAILED) pages = map(nullptr, 0);
    if (pages == MAP_FAILED) return;
    madvise(pages, kBytes, MADV_DONTFORK);
    const auto begin = reinterpret_cast<uint64_t>(pages);
    free_.emplace(begin, begin + kBytes);
  }
  static void* map(void* where, int flags) {
    return mmap(where, kBytes, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
  }

  std::mutex mutex_;
  std::optional<RangeAllocator> free_;  // guarded by mutex_; nullopt: the system gave nothing
};

size_t rounded(size_t bytes) { return (bytes + kUnit - 1) / kUnit * kUnit; }

}  // namespace

ManagedVariables::~ManagedVariables() {
  for (const auto& [name, variable] : variables_) {
    (void)Driver::get().allocations().erase(variable.address);
    Pages::get().give_back(variable.address, rounded(variable.bytes));
  }
}

ManagedPlaces::Place ManagedVariables::place(const std::string& name, size_t bytes, size_t align) {
  std::lock_guard lock(mutex_);
  if (const auto known = variables_.find(name); known != variables_.end())
    return {known->second.address, false};
  const auto address = Pages::get().take(rounded(bytes), align);
  if (!address) return {};
  std::memset(reinterpret_cast<void*>(*address), 0, rounded(bytes));
  Allocation allocation;
  allocation.base = *address;
  allocation.bytes = bytes;
  allocation.kind = Allocation::Kind::kManaged;
  allocation.device = 0;
  allocation.flags = CU_MEM_ATTACH_GLOBAL;
  allocation.is_variable = true;
  Driver::get().allocations().insert(std::move(allocation));
  variables_[name] = {*address, bytes};
  return {*address, true};
}

std::optional<ManagedVariables::Variable> ManagedVariables::find(std::string_view name) const {
  std::lock_guard lock(mutex_);
  // The unit of a local one stands behind its name.
  const auto found = variables_.lower_bound(name);
  if (found == variables_.end()) return std::nullopt;
  const std::string_view known = found->first;
  return known.substr(0, known.find('#')) == name ? std::optional(found->second) : std::nullopt;
}

}  // namespace fargpu::sim
