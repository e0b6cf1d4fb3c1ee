// The kinds of typed ids that stand for CUDA objects on the wire; never renumbered.
#pragma once

#include <cstdint>

namespace fargpu::rpc {

enum class HandleKind : uint8_t {
  kNone = 0,
  kContext = 1,
  kModule = 2,
  kFunction = 3,
  kLibrary = 4,
  kKernel = 5,
  kStream = 6,
  kEvent = 7,
  kMemPool = 8,
  kMemGeneric = 9,  // CUmemGenericAllocationHandle
  kArray = 10,
  kMipmappedArray = 11,
  kTexObject = 12,
  kSurfObject = 13,
  kGraph = 14,
  kGraphNode = 15,
  kGraphExec = 16,
  kLinkState = 17,
  kGreenContext = 18,
  kUserObject = 19,
  kTexRef = 20,
  kSurfRef = 21,
  kExternalMemory = 22,
  kExternalSemaphore = 23,
};

constexpr uint64_t make_handle(HandleKind kind, uint64_t serial) {
  return (static_cast<uint64_t>(kind) << 40) | (serial << 4);
}
constexpr HandleKind handle_kind(uint64_t id) {
  return (id >> 45) != 0 ? HandleKind::kNone : static_cast<HandleKind>(id >> 40);
}
constexpr uint64_t handle_serial(uint64_t id) { return (id & ((uint64_t{1} << 40) - 1)) >> 4; }

}  // namespace fargpu::rpc
