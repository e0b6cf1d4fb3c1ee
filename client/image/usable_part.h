// The part of a fat binary that the GPUs of one server can use. Libraries bring machine code for
// every architecture, of which a server has one or two: the rest need be neither hashed nor sent.
// Pure functions over memory of the caller.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace fargpu::client {

// A fat binary that lies in several places, read one after the other. Its entries are where they
// were. Moves, does not copy: the first of `bytes` is its own `header`.
struct UsablePart {
  UsablePart() = default;
  UsablePart(UsablePart&&) = default;
  UsablePart& operator=(UsablePart&&) = default;

  std::vector<std::byte> header;                  // the first of `bytes`
  std::vector<std::span<const std::byte>> bytes;  // empty: there is no part
};

// Whether each of these GPUs has machine code in it.
bool has_machine_code(std::span<const std::byte> container, std::span<const int> capabilities);

// The container without the entries that no GPU of these compute capabilities (90 for 9.0) can use;
// a driver chooses the same entry from both. Of left-out entries only the headers are read. No
// part: `container` is to be taken as it is: it is no container, there is little to leave out, or a
// GPU has no machine code in it (what its driver then takes, or how it refuses, is the driver's
// own).
UsablePart usable_part(std::span<const std::byte> container, std::span<const int> capabilities);

}  // namespace fargpu::client
