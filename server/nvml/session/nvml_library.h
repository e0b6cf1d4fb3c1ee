// Finding and opening the server's NVML: NVIDIA's libnvidia-ml.so.1, or the simulated one. Only
// workers of management sessions do this.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "schema/nvml/nvml.h"

namespace fargpu::server {

struct NvmlTable;

class NvmlLibrary {
 public:
  // Opens and initialises the library that belongs to a CUDA driver (its path): beside it, or where
  // the loader finds it. Never fargpu's own, which has the same name. kDriver, with a remedy.
  static Result<NvmlLibrary> open(const std::string& driver);

  const NvmlTable& table() const { return *table_; }
  // By the UUIDs of CUDA. kDriver: it does not know one.
  Result<std::vector<nvmlDevice_t>> devices(const std::vector<std::string>& uuids) const;

 private:
  explicit NvmlLibrary(std::shared_ptr<const NvmlTable> table) : table_(std::move(table)) {}
  std::shared_ptr<const NvmlTable> table_;
};

}  // namespace fargpu::server
