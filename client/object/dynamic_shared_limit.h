// The limit of dynamic shared memory that a program has set for a function, while the driver's
// value is certain. Libraries set the same value before every launch: nothing has to be sent then.
// Limits set by two threads at once are not certain: their order at the server is unknown. Any
// thread.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>

#include "client/object/context.h"

namespace fargpu::client {

class DynamicSharedLimit {
 public:
  // In this context, which is current, and on this device (visible ordinal).
  bool is(const Context& context, int device, int bytes) const;

  // Around each call that sets it. Without a current context (null) nothing is known afterwards.
  class Setting {
   public:
    Setting(DynamicSharedLimit& limit, const Context* context, int device);
    ~Setting();
    Setting(const Setting&) = delete;
    Setting& operator=(const Setting&) = delete;
    void succeeded(int bytes) { bytes_ = bytes; }

   private:
    DynamicSharedLimit& limit_;
    const Context* const context_;
    const uint32_t epoch_;
    const int device_;
    int bytes_ = -1;
  };

 private:
  struct Known {
    const Context* context;
    uint32_t epoch;
    int bytes;
  };
  mutable std::mutex mutex_;
  std::map<int, Known> of_device_;  // as set last, in any context
  int settings_ = 0;                // under way
  bool at_once_ = false;            // there was more than one
};

}  // namespace fargpu::client
