// Records of modules, libraries and their functions, and of links. They hold the server's results
// of the load, so that launches and queries need no round trip.
//
// A Function stands for a CUfunction or a CUkernel. Its layout is filled in before the application
// learns its handle, and never changes. Its attributes are per device and change only through the
// client. A kernel is its own function in every context; what is set for its function in a context
// overrides what is set for the kernel there. Any thread.
#pragma once

#include <cuda.h>

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "client/object/dynamic_shared_limit.h"
#include "client/object/object.h"

namespace fargpu::client {

class OwnLayouts;  // client/image/own_layouts.h

inline constexpr size_t kFunctionAttributes = 17;  // CU_FUNC_ATTRIBUTE_* 0 .. 16
inline constexpr int kUnknownAttribute = -1;       // the driver has no value for it

struct Parameter {
  uint32_t offset = 0;
  uint32_t size = 0;
};

// Attribute values of one function on one device.
using FunctionAttributes = std::array<std::atomic<int>, kFunctionAttributes>;

// The values of CUDA 3's launch interface.
struct LegacyLaunch {
  std::array<unsigned, 3> block{1, 1, 1};
  unsigned shared_bytes = 0;
  std::vector<std::byte> parameters;
};

// What work of a kernel finds in a context where something was set for its function. Another
// context has it when this one has ended: others may be looking at it for ever.
struct ContextAttributes {
  std::atomic<uint64_t> unique_id{0};  // of the context
  FunctionAttributes values{};
  // Guarded by the function's mutex.
  const Context* context = nullptr;
  std::array<bool, kFunctionAttributes> overridden{};

  std::unique_ptr<ContextAttributes> next{};  // set before others see this
};

struct Function final : Object {
  std::string name;
  std::vector<Parameter> parameters;
  uint32_t parameter_bytes = 0;
  std::array<unsigned, 3> required_block{};  // the only one that a launch may have; 0: any

  // nullptr: not asked for yet on that device (visible ordinal). A kernel's: as set for the kernel.
  FunctionAttributes* on_device(int device) const {
    return static_cast<size_t>(device) < kMaxDevices
               ? by_device[static_cast<size_t>(device)].load(std::memory_order_acquire)
               : nullptr;
  }
  // For work in the context; nullptr: not asked for yet.
  FunctionAttributes* in_context(const Context& context) const {
    ContextAttributes* const first = by_context.load(std::memory_order_acquire);
    if (first == nullptr) [[likely]]
      return on_device(context.device);
    ContextAttributes* const own = find(first, context);
    return own != nullptr ? &own->values : on_device(context.device);
  }
  // Stores values unless there are some already. Returns the stored ones.
  FunctionAttributes* remember(int device, const int* values);
  // The driver has taken the value. Nothing is stored where nothing was asked for yet.
  void set_on_device(int device, CUfunction_attribute attribute, int value);
  // For a kernel's function.
  void set_in_context(const Context& context, CUfunction_attribute attribute, int value);

  static constexpr size_t kMaxDevices = 64;
  std::array<std::atomic<FunctionAttributes*>, kMaxDevices> by_device{};
  std::atomic<ContextAttributes*> by_context{nullptr};  // the latest first; grows under mutex

  std::mutex mutex;
  // (context's unique id, block size, dynamic shared bytes, flags) -> the driver's answer;
  // forgotten when an attribute is set. Guarded by mutex.
  std::map<std::tuple<uint64_t, int, size_t, unsigned>, int> occupancy;

  LegacyLaunch legacy;  // guarded by mutex

  DynamicSharedLimit dynamic_shared;
  DynamicSharedLimit dynamic_shared_in_context;  // of a kernel's function

  // Keys of launch_attributes.h, the latest ones; 0: none. Forgotten when an attribute is set.
  // Guarded by mutex.
  std::array<uint64_t, 16> admitted{};
  size_t next_admitted = 0;

  ~Function() override;

 private:
  static ContextAttributes* find(ContextAttributes* first, const Context& context);
  ContextAttributes* enter(const Context& context, const FunctionAttributes& of_kernel);
};

// A module or a library.
struct ImageRecord final : Object {
  std::mutex mutex;  // of all members but `twins`, `layouts` and those of `loading`
  std::map<std::string, uint64_t, std::less<>> functions;  // name -> function or kernel id
  std::map<Context*, uint64_t> modules;                    // a library's modules
  std::mutex loading;
  // A library's: contexts (their unique ids) in which the driver has it; 0: the one that the server
  // takes where none is current.
  std::set<uint64_t> loaded_in;
  // A library's ids in other sessions (twins.h); set before the program learns a handle.
  std::map<unsigned, uint64_t> twins;
  // What the program's image says of its kernels; set like `twins`. Null: a library's module, for
  // which the library's holds.
  std::shared_ptr<OwnLayouts> layouts;
};

// JIT options as they travel, and where the logs shall go.
struct JitOptions {
  std::vector<int> options;
  std::vector<unsigned long long> values;
  char* info_log = nullptr;
  unsigned info_log_bytes = 0;
  void** info_log_size = nullptr;  // the value slot to be overwritten with the bytes used
  char* error_log = nullptr;
  unsigned error_log_bytes = 0;
  void** error_log_size = nullptr;
};

// A link that is being made (CUlinkState).
struct LinkRecord final : Object {
  std::mutex mutex;  // all members; held during calls, as a link serves one thread at a time
  JitOptions jit;
  std::shared_ptr<OwnLayouts> layouts;  // of the inputs
  std::vector<std::byte> image;         // the result of cuLinkComplete, valid until cuLinkDestroy
};

}  // namespace fargpu::client
