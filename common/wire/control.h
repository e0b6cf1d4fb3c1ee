// Opcodes of session control, below kFirstApiOpcode: the numbers of schema/control.capnp's first
// comment. Fixed for ever.
#pragma once

#include <cstdint>

namespace fargpu::wire {

enum ControlOpcode : uint16_t {
  kHello = 1,
  kPing = 2,
  kBye = 3,
  kOutput = 4,
  kHostCall = 5,
  kHostCallDone = 6,
  kStatus = 7,
  kUpgrade = 8,
  kJoin = 9,
  kCopied = 10,
  kAlive = 11,
  kErrorOutput = 12,
  kDelivery = 13,
  kFetch = 14,
  kInspect = 16,
  kQueueReached = 17,
  kOpenJob = 18,
  kManage = 19,
  kLanded = 20,
  kDeliveryBeside = 21,
  kSessionEnd = 22,
  kPassed = 23,
};

// All of them: the control opcodes of this build, below kFirstApiOpcode.
inline constexpr ControlOpcode kControlOpcodes[] = {
    kHello,    kPing,           kBye,        kOutput,       kHostCall, kHostCallDone,
    kStatus,   kUpgrade,        kJoin,       kCopied,       kAlive,    kErrorOutput,
    kDelivery, kFetch,          kInspect,    kQueueReached, kOpenJob,  kManage,
    kLanded,   kDeliveryBeside, kSessionEnd, kPassed};

}  // namespace fargpu::wire
