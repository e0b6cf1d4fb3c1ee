// Variables with .attribute(.managed), as a real driver (580) keeps them: in managed memory of its
// own, at addresses that it chooses, one page for variables of several modules.
//
// An object of this class has the variables of one module, or of one library, whose modules in all
// contexts share them. They end with it. Any thread.
#pragma once

#include <cuda.h>

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "sim/exec/engine.h"

namespace fargpu::sim {

class ManagedVariables final : public ManagedPlaces {
 public:
  ManagedVariables() = default;
  ManagedVariables(const ManagedVariables&) = delete;
  ManagedVariables& operator=(const ManagedVariables&) = delete;
  ~ManagedVariables() override;

  Place place(const std::string& name, size_t bytes, size_t align) override;
  struct Variable {
    CUdeviceptr address;
    size_t bytes;
  };
  std::optional<Variable> find(std::string_view name) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, Variable, std::less<>> variables_;  // guarded by mutex_
};

}  // namespace fargpu::sim
