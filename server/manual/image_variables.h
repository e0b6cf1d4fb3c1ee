// The variables of images are device memory of the job. On the executor's thread.
#pragma once

#include <cstdio>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "common/base/log.h"
#include "common/base/parse.h"
#include "common/fatbin/kernel_layouts.h"
#include "server/manual/manual.h"

namespace fargpu::server {

// What is charged for an image as long as it is loaded.
class Variables {
 public:
  explicit Variables(MemoryAccount& memory) : memory_(memory) {}
  ~Variables() { refund(); }
  Variables(const Variables&) = delete;
  Variables& operator=(const Variables&) = delete;

  CUresult charge(uint64_t bytes, size_t device) {
    const CUresult result = memory_.charge(static_cast<CUdevice>(device), bytes);
    if (result == CUDA_SUCCESS) charged_.emplace_back(device, bytes);
    return result;
  }
  void refund() {
    for (const auto& [device, bytes] : charged_) memory_.refund(device, bytes);
    charged_.clear();
  }

 private:
  MemoryAccount& memory_;
  std::vector<std::pair<size_t, uint64_t>> charged_;
};

// False: so much PTX is more than the session may have compiled, as the program's stderr says.
inline bool may_compile(Worker& worker, uint64_t bytes) {
  const uint64_t most = worker.parts().max_ptx_bytes;
  if (bytes <= most) return true;
  std::fprintf(stderr, "fargpu: %s of PTX are refused: the server compiles %s at most (max-ptx)\n",
               format_bytes(bytes).c_str(), format_bytes(most).c_str());
  log::warn("event=image-refused ptx={} limit={} why=max-ptx", bytes, most);
  return false;
}

// Charges the variables on the devices from `first` up to `end`, then loads as with_memory() does:
// `start(finished)`, then `done(result, variables)`. OUT_OF_MEMORY: there is too much PTX. In a job
// without a limit nothing is counted, since that unpacks the image. `load` has the `image` and gets
// the number of `variables`.
template <typename Load, typename Start, typename Done>
void with_variables(const LaterReply& later, const std::shared_ptr<Load>& load, size_t first,
                    size_t end, const Start& start, const Done& done) {
  SessionParts& parts = later.worker().parts();
  const auto variables = std::make_shared<Variables>(parts.memory);
  const auto begin = [later, load, first, end, start, variables, done] {
    with_memory(
        later.worker(),
        [load, first, end, start, variables](const Finished& finished) {
          const Finished refunded = [variables, finished](CUresult result) {
            if (result != CUDA_SUCCESS) variables->refund();
            finished(result);
          };
          CUresult result = load->variables ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
          for (size_t device = first; device < end && result == CUDA_SUCCESS; ++device)
            result = variables->charge(*load->variables, device);
          result == CUDA_SUCCESS ? start(refunded) : refunded(result);
        },
        [variables, done](CUresult result) { done(result, variables); });
  };
  int major = 0, minor = 0;
  const auto device = static_cast<CUdevice>(first);
  const DriverTable& driver = later.worker().driver();
  driver.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
  driver.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
  const auto capability = static_cast<unsigned>(10 * major + minor);
  if (!may_compile(later.worker(), ptx_bytes(load->image.bytes(), capability)))
    return done(CUDA_ERROR_OUT_OF_MEMORY, variables);
  if (parts.memory.limit() == 0) return begin();
  parts.completion.off_thread(
      later.header().context,
      [load, capability] {
        load->variables = variable_bytes(load->image.bytes(), capability);
        return CUDA_SUCCESS;
      },
      [begin, load](CUresult) {
        if (!load->variables)
          log::warn("event=image-refused why=\"how much its variables take cannot be told\"");
        begin();
      });
}

}  // namespace fargpu::server
