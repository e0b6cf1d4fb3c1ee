// Finding and opening the driver: the real libcuda.so.1 of this host, or the simulated GPU. Only
// workers and the probe do this.
#pragma once

#include <memory>
#include <string>

#include "common/base/status.h"

namespace fargpu::server {

struct DriverTable;

// Where `driver` ("auto", "sim" or a path) is. "auto" never takes fargpu's own client library,
// which has the same name, for a driver. kNotFound names the searched paths and a remedy.
Result<std::string> find_driver(const std::string& driver);

// An opened driver; stays open as long as the process (drivers do not survive being closed).
class DriverLibrary {
 public:
  // Opens, looks up all functions, cuInit. kDriver: with the name of the CUDA error.
  static Result<DriverLibrary> open(const std::string& path);
  const DriverTable& table() const { return *table_; }
  const std::string& path() const { return path_; }
  int version() const { return version_; }

 private:
  DriverLibrary(std::string path, std::shared_ptr<const DriverTable> table, int version)
      : path_(std::move(path)), table_(std::move(table)), version_(version) {}
  std::string path_;
  std::shared_ptr<const DriverTable> table_;
  int version_;
};

// "CUDA_ERROR_OUT_OF_MEMORY (2)": by the driver's own names when it has them.
std::string error_text(const DriverTable& table, int result);

}  // namespace fargpu::server
