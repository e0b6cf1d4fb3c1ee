// The messages with which a shared-memory transport is set up: one from each end, in the byte order
// of their common machine.
//
// The server sends kOffer with two descriptors (the memory, then the client's end of the socket for
// room bells), or kRefusal. The client answers an offer with kAccept or kRefusal. Used by shm_serve
// and shm_join only, and by tests that play a peer by hand.
#pragma once

#include <cstdint>

#include "common/transport/shm/shm_segment.h"

namespace fargpu::transport {

struct ShmSetupMessage {
  static constexpr uint32_t kMagic = 0x4d534746;  // "FGSM" in memory order
  // of the layout of the memory and of the messages on the sockets
  static constexpr uint16_t kVersion = 1;
  enum Type : uint16_t { kOffer = 1, kAccept = 2, kRefusal = 3 };

  uint32_t magic = kMagic;
  uint16_t version = kVersion;
  uint16_t type = 0;
  ShmSizes sizes{};       // of an offer
  char reason[232] = {};  // of a refusal; ends with a 0
};
static_assert(sizeof(ShmSetupMessage) == 256);

}  // namespace fargpu::transport
