// The primary context of a device. Its handle never changes and is always in the registry; there is
// a context behind it while it is retained. Lives as long as the device. Thread safe.
#pragma once

#include <cuda.h>

#include <atomic>
#include <memory>
#include <mutex>

#include "sim/base/registry.h"

namespace fargpu::sim {

class Context;
class Device;

class PrimaryContext {
 public:
  static constexpr ObjectKind kKind = ObjectKind::kPrimaryContext;

  static PrimaryContext& of(const Device& device);
  explicit PrimaryContext(Device& device) : device_(device) {}

  Device& device() const { return device_; }
  CUcontext handle() const { return handle_; }
  // Null: it is not retained.
  std::shared_ptr<Context> get() const;
  // Null when the device's compute mode allows no contexts, or there is no memory for one.
  std::shared_ptr<Context> retain();
  CUresult release();
  void reset();                // the references stay
  std::atomic<int> greens{0};  // green contexts that are part of it
  unsigned flags() const;
  void set_flags(unsigned flags);

 private:
  Device& device_;
  CUcontext handle_ = nullptr;  // set once, before it is published
  mutable std::mutex mutex_;
  std::shared_ptr<Context> context_;
  int references_ = 0;
  unsigned flags_ = 0;
};

}  // namespace fargpu::sim
