// Calls that tell nothing about how far a stream is when they succeed: they neither wait for work,
// nor say anything that work changes. Their callers need not wait for bytes of copies that are on
// the bulk connection (common/rpc/landings.h). Calls that are not listed here show a stream's
// progress.
#pragma once

#include <cstdint>

namespace fargpu::client {

bool tells_nothing(uint16_t opcode);

}  // namespace fargpu::client
