// Typed ids: what stands for a CUDA object on the wire, and is the application's handle of it. Made
// by the client, never given to two objects. From the lowest bit:
//
//    0 ..  3   zero, so that no id is one of CUDA's special streams
//    4 .. 25   slot of the client's table
//   26 .. 49   generation of the slot; with it, the object's serial
//   50 .. 54   kind, never renumbered
//   55 .. 62   number of its session among those of the process
//        63    zero: some programs keep handles in signed integers
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
  kResourceDesc = 24,
};

constexpr unsigned kSlotBits = 22;
constexpr unsigned kGenerationBits = 24;
constexpr unsigned kSerialBits = kSlotBits + kGenerationBits;
constexpr unsigned kSerialShift = 4;
constexpr unsigned kKindShift = kSerialShift + kSerialBits;
constexpr unsigned kKindBits = 5;
constexpr unsigned kSessionShift = kKindShift + kKindBits;
constexpr unsigned kSessionBits = 8;

constexpr uint64_t make_serial(uint32_t slot, uint32_t generation) {
  return uint64_t{generation} << kSlotBits | slot;
}
constexpr uint64_t make_handle(HandleKind kind, uint64_t serial, unsigned session = 0) {
  return uint64_t{session} << kSessionShift | static_cast<uint64_t>(kind) << kKindShift |
         serial << kSerialShift;
}
// kNone for what cannot be an id.
constexpr HandleKind handle_kind(uint64_t id) {
  if (id >> (kSessionShift + kSessionBits) != 0 || id % (1u << kSerialShift) != 0)
    return HandleKind::kNone;
  return static_cast<HandleKind>(id >> kKindShift & ((1u << kKindBits) - 1));
}
// The session of what is an id.
constexpr unsigned handle_session(uint64_t id) {
  return static_cast<unsigned>(id >> kSessionShift & ((1u << kSessionBits) - 1));
}
constexpr uint64_t handle_serial(uint64_t id) {
  return id >> kSerialShift & ((uint64_t{1} << kSerialBits) - 1);
}
constexpr uint32_t handle_slot(uint64_t id) {
  return static_cast<uint32_t>(id >> kSerialShift & ((uint64_t{1} << kSlotBits) - 1));
}

}  // namespace fargpu::rpc
