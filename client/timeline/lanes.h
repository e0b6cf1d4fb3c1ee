// Lanes of a worker as events of Chrome's trace format, each with a comma and the end of its line.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "client/timeline/frames.h"

namespace fargpu::client::timeline {

// The lanes of one session belong to an artificial process, with a number that no real process has.
uint64_t process_of(unsigned session);
// Their names. `server`: as the program was given it.
std::string name_lanes(uint64_t process, const std::string& server);
std::string describe(uint64_t process, std::span<const Slice> slices);
// A mark now. `arguments`: JSON between the braces.
std::string note(uint64_t process, const std::string& text, const std::string& arguments = "");

}  // namespace fargpu::client::timeline
