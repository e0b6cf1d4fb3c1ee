#include "client/image/own_layouts.h"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <numeric>

namespace fargpu::client {
namespace {

std::vector<std::byte> copy_of(ImageBytes image) {
  std::vector<std::byte> copy;
  copy.reserve(size_of(image));
  for (const auto& place : image) copy.insert(copy.end(), place.begin(), place.end());
  return copy;
}

std::string text_of(const ParameterLayout& layout) {
  return fmt::format("{} parameters of {} bytes", layout.sizes.size(),
                     std::accumulate(layout.sizes.begin(), layout.sizes.end(), uint64_t{0}));
}

// As many, none of them longer.
bool fits(const ParameterLayout& said, const ParameterLayout& own) {
  return said.sizes.size() == own.sizes.size() &&
         std::ranges::equal(said.sizes, own.sizes, std::less_equal<>());
}

Status differs(const std::string& kernel, const ParameterLayout& said, const std::string& own) {
  return Status(StatusCode::kProtocol,
                fmt::format("refused: the server says that kernel {} has {}; by the program's own "
                            "image it has {}",
                            kernel, text_of(said), own));
}

}  // namespace

void OwnLayouts::add(ImageBytes image) {
  const std::lock_guard lock(mutex_);
  added_.push_back(copy_of(image));
}

void OwnLayouts::add_unknown() {
  const std::lock_guard lock(mutex_);
  layouts_.has_more = true;
}

Status OwnLayouts::add_linked(ImageBytes image) {
  KernelLayouts linked;
  read_kernel_layouts(copy_of(image), linked);
  const std::lock_guard lock(mutex_);
  read_added();
  for (const auto& [kernel, layouts] : linked.kernels)
    for (const ParameterLayout& layout : layouts)
      if (Status status = check_locked(kernel, layout); !status.ok()) return status;
  if (layouts_.has_more) layouts_.kernels.merge(linked.kernels);
  return Status();
}

Status OwnLayouts::check(const std::string& kernel, const ParameterLayout& layout) {
  const std::lock_guard lock(mutex_);
  read_added();
  return check_locked(kernel, layout);
}

std::array<unsigned, 3> OwnLayouts::required_block(const std::string& kernel) {
  const std::lock_guard lock(mutex_);
  read_added();
  const auto found = layouts_.kernels.find(kernel);
  if (found == layouts_.kernels.end() || found->second.empty()) return {};
  const auto block = found->second.front().required_block;
  const auto has_it = [&block](const ParameterLayout& one) { return one.required_block == block; };
  return std::ranges::all_of(found->second, has_it) ? block : std::array<unsigned, 3>{};
}

Status OwnLayouts::check_locked(const std::string& kernel, const ParameterLayout& layout) {
  const auto found = layouts_.kernels.find(kernel);
  if (found == layouts_.kernels.end()) {
    return layout.sizes.empty() || layouts_.has_more ? Status() : differs(kernel, layout, "none");
  }
  const auto& own = found->second;
  const auto takes_it = [&layout](const ParameterLayout& one) { return fits(layout, one); };
  if (own.empty() || std::ranges::any_of(own, takes_it)) return Status();
  return differs(kernel, layout, text_of(own.front()));
}

void OwnLayouts::read_added() {
  for (const auto& image : added_) read_kernel_layouts(image, layouts_);
  added_.clear();
}

}  // namespace fargpu::client
