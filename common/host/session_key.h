// An unguessable number that identifies its receiver: 128 random bits. Pure values; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "common/base/status.h"

namespace fargpu::bootstrap {

using SessionKey = std::array<std::byte, 16>;

// kSystem: no randomness to be had.
Result<SessionKey> make_session_key();
// Takes the same time wherever they differ. False for another length.
bool same_key(const SessionKey& key, std::span<const std::byte> shown);

}  // namespace fargpu::bootstrap
