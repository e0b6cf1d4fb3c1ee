// ParameterLayouts: what a launch needs to know of a kernel, by the id of the function or kernel:
// where its parameters lie in the packed buffer, and its local memory. One thread (the executor's).
//
// A launch passes one pointer per parameter to the driver, as programs do. Where no layout is known
// it passes the packed buffer as a whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>

#include "common/fatbin/kernel_layouts.h"
#include "server/object/object_end.h"

namespace fargpu::server {

struct KnownKernel : ParameterLayout {
  uint64_t local_bytes = 0;  // of each thread
};

// Points `each` at the parameters in their packed buffer. False: the kernel has more than came.
inline bool find_parameters(const ParameterLayout& layout, std::span<const std::byte> packed,
                            void** each) {
  for (size_t i = 0; i < layout.offsets.size(); ++i) {
    if (uint64_t{layout.offsets[i]} + layout.sizes[i] > packed.size()) return false;
    each[i] = const_cast<std::byte*>(packed.data()) + layout.offsets[i];
  }
  return true;
}

class ParameterLayouts {
 public:
  // Layouts from the image of a module or library, for drivers that do not report them.
  void learn_image(uint64_t image, KernelLayouts layouts) { images_[image] = std::move(layouts); }
  void module_ended(const ObjectEnd& end) { images_.erase(end.id); }
  void library_ended(const ObjectEnd& end) { images_.erase(end.id); }
  // nullptr: not known.
  const ParameterLayout* find(uint64_t image, const std::string& kernel) const {
    const auto known = images_.find(image);
    if (known == images_.end()) return nullptr;
    const auto found = known->second.kernels.find(kernel);
    return found == known->second.kernels.end() || found->second.empty() ? nullptr
                                                                         : &found->second.front();
  }
  void learn(uint64_t function, KnownKernel kernel) { kernels_[function] = std::move(kernel); }
  void function_ended(const ObjectEnd& end) { kernels_.erase(end.id); }
  void kernel_ended(const ObjectEnd& end) { kernels_.erase(end.id); }
  // nullptr: not known.
  const KnownKernel* find(uint64_t function) const {
    const auto found = kernels_.find(function);
    return found == kernels_.end() ? nullptr : &found->second;
  }

 private:
  std::unordered_map<uint64_t, KnownKernel> kernels_;
  std::unordered_map<uint64_t, KernelLayouts> images_;
};

}  // namespace fargpu::server
