// The begin of an exchange over bare sockets, and moving its bytes. Shared by both ends.
#pragma once

#include <cstdint>
#include <span>

namespace fargpu::bench {

// The client's first bytes. Then, as often as it likes: `there` bytes from the client, `back` bytes
// to it.
struct Setup {
  uint64_t magic = kMagic;
  uint64_t there = 0, back = 0;
  static constexpr uint64_t kMagic = 0x66677075'62617265;
  static constexpr uint64_t kMost = uint64_t{1} << 40;  // of `there` and `back`
};

// All bytes; false: the other end has gone, or has been silent for a minute.
bool send_all(int socket, std::span<const char> bytes);
bool receive_all(int socket, std::span<char> room);
// `total` bytes, of which the contents do not matter, from or into `buffer` again and again.
bool send_total(int socket, uint64_t total, std::span<const char> buffer);
bool receive_total(int socket, uint64_t total, std::span<char> buffer);

}  // namespace fargpu::bench
