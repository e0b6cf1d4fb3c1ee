#include "client/managed/managed_variables.h"

#include <algorithm>
#include <utility>

#include "client/managed/fault_handler.h"
#include "common/host/memory_page.h"

namespace fargpu::client {
namespace {

uint64_t first_page(const ManagedVariables::Variable& variable) {
  return page_of(variable.address);
}
uint64_t end_of_pages(const ManagedVariables::Variable& variable) {
  return page_from(variable.address + variable.bytes);
}

// What of the variable lies in the chunk.
ManagedMemory::Extent part_in(const DualMapping& chunk,
                              const ManagedVariables::Variable& variable) {
  const uint64_t begin = std::max(chunk.address(), variable.address);
  const uint64_t end = std::min(chunk.address() + chunk.bytes(), variable.address + variable.bytes);
  return {begin, end - begin};
}

}  // namespace

CUresult ManagedVariables::add(const Variable& variable) {
  // The program uses them as the server says, so that all must be covered.
  const uint64_t end = variable.address + variable.bytes;
  if (end <= variable.address || page_from(end) < end) return CUDA_ERROR_NOT_SUPPORTED;
  std::lock_guard lock(mutex_);
  const bool known = std::any_of(variables_.begin(), variables_.end(), [&](const Variable& each) {
    return each.address == variable.address && each.bytes == variable.bytes &&
           each.owner == variable.owner;
  });
  if (known) return CUDA_SUCCESS;
  const CUresult result = cover(variable);
  if (result == CUDA_SUCCESS)
    variables_.push_back(variable);
  else
    uncover(variable);
  return result;
}

std::vector<ManagedVariables::Variable> ManagedVariables::end(
    const std::function<bool(const Variable&)>& ended) {
  std::lock_guard lock(mutex_);
  std::vector<Variable> all;
  for (size_t i = 0; i < variables_.size();) {
    if (!ended(variables_[i])) {
      ++i;
      continue;
    }
    const Variable variable = variables_[i];
    variables_.erase(variables_.begin() + static_cast<ptrdiff_t>(i));
    uncover(variable);
    all.push_back(variable);
  }
  return all;
}

std::vector<ManagedVariables::Variable> ManagedVariables::end_of(uint64_t owner) {
  return end([owner](const Variable& variable) { return variable.owner == owner; });
}

CUresult ManagedVariables::cover(const Variable& variable) {
  const uint64_t end = end_of_pages(variable);
  for (uint64_t page = first_page(variable); page < end;) {
    // The chunk that has the page, or else the pages up to the next chunk.
    auto next = pages_.upper_bound(page);
    const auto before = next == pages_.begin() ? pages_.end() : std::prev(next);
    if (before != pages_.end() && page < before->first + before->second.bytes()) {
      const CUresult result = memory_.add_extent(before->first, part_in(before->second, variable));
      if (result != CUDA_SUCCESS) return result;
      page = before->first + before->second.bytes();
      continue;
    }
    const uint64_t until = next == pages_.end() ? end : std::min(end, next->first);
    auto made = DualMapping::make_at(page, until - page);
    if (!made) return CUDA_ERROR_NOT_SUPPORTED;
    const auto chunk = pages_.emplace(page, std::move(*made)).first;
    const CUresult result = memory_.add({.address = page,
                                         .bytes = until - page,
                                         .mapping = &chunk->second,
                                         .context = variable.context,
                                         .extents = {part_in(chunk->second, variable)}});
    if (result != CUDA_SUCCESS) {
      pages_.erase(chunk);
      return result;
    }
    watch_faults(page, until - page, memory_, faults_);
    page = until;
  }
  return CUDA_SUCCESS;
}

void ManagedVariables::uncover(const Variable& variable) {
  auto at = pages_.upper_bound(first_page(variable));
  if (at != pages_.begin()) --at;
  while (at != pages_.end() && at->first < end_of_pages(variable)) {
    const uint64_t address = at->first;
    if (address + at->second.bytes() <= variable.address ||
        memory_.remove_extent(address, part_in(at->second, variable))) {
      ++at;
      continue;
    }
    memory_.remove(address);
    unwatch_faults(address);
    at = pages_.erase(at);
  }
}

}  // namespace fargpu::client
