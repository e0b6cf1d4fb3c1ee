// The session's contexts by the 16-bit ids of frame headers, and which one is current in the
// driver. Primary contexts are ordinal + 1, created ones begin at 256. One thread (the executor's).
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace fargpu::server {

struct DriverTable;

// A context, not only its id: another one may have the id later, as a primary context that is
// retained again.
struct ContextRef {
  uint16_t id = 0;      // 0: none
  uint64_t number = 0;  // of Contexts; never used again
};

class Contexts {
 public:
  Contexts(const DriverTable& driver, size_t devices) : driver_(driver), devices_(devices) {}
  Contexts(const Contexts&) = delete;
  Contexts& operator=(const Contexts&) = delete;

  // Makes the context current in the driver (cached). 0: leaves it. INVALID_CONTEXT: unknown id.
  CUresult enter(uint16_t id) {
    return id == 0 || id == current_ ? CUDA_SUCCESS : make_current(id);
  }
  // The context that has this id now.
  ContextRef ref(uint16_t id) const {
    return {id, id != 0 && id == current_ ? current_number_ : number_of(id)};
  }
  // False when it has ended.
  bool lives(const ContextRef& context) const { return ref(context.id).number == context.number; }
  // INVALID_CONTEXT when it has ended.
  CUresult enter(const ContextRef& context) {
    return lives(context) ? enter(context.id) : CUDA_ERROR_INVALID_CONTEXT;
  }
  // No context is current.
  void leave();
  // A context that was just made, and is entered. INVALID_VALUE when the id is 0 or in use.
  // `green`: its resource, a part of its device's primary context.
  CUresult bind(uint16_t id, CUcontext context, CUdevice device, CUgreenCtx green = nullptr);
  // Forgets the id; does not call the driver.
  void remove(uint16_t id);

  CUcontext find(uint16_t id) const;      // nullptr: unknown id
  CUdevice device_of(uint16_t id) const;  // 0: unknown id
  CUgreenCtx green(uint16_t id) const;    // nullptr: it is no green context
  std::vector<uint16_t> greens_of(uint16_t primary) const;
  std::vector<uint16_t> ids() const;
  size_t count() const { return contexts_.size(); }
  // The per-thread default stream of the current context was named. A driver makes it, and takes
  // device memory for it, at its first use.
  void use_per_thread_stream();
  bool uses_per_thread_stream(uint16_t id) const;
  uint16_t current() const { return current_; }  // 0: that is not known
  size_t current_device() const { return current_device_; }
  int device_count() const { return static_cast<int>(devices_); }

  // For questions that the driver answers only inside a context, before the client has one: makes
  // device 0's primary context current. It is held until the client retains it itself
  // (return_borrowed), so that it is made only once.
  CUresult borrow();
  void return_borrowed();

 private:
  struct Context {
    CUcontext handle = nullptr;
    CUdevice device = 0;
    uint64_t number = 0;
    CUgreenCtx green = nullptr;
    bool per_thread_stream = false;
  };
  CUresult make_current(uint16_t id);
  uint64_t number_of(uint16_t id) const;  // 0: unknown id

  const DriverTable& driver_;
  const size_t devices_;
  std::unordered_map<uint16_t, Context> contexts_;
  size_t greens_ = 0;  // among them
  uint64_t last_number_ = 0;
  uint16_t current_ = 0;
  uint64_t current_number_ = 0;  // while current_ is not 0
  size_t current_device_ = 0;
  CUcontext borrowed_ = nullptr;
};

}  // namespace fargpu::server
