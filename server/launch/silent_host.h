// SilentHost: whether the other end's host has gone without a word: it answers nothing, not even
// the system's probes. A living host answers for a stopped process. Of connections over TCP; one
// thread.
#pragma once

#include <chrono>

namespace fargpu::server {

class SilentHost {
 public:
  // Makes the system probe often enough. `after`: how long a silence may be; 0: as long as it is.
  // `socket` stays the caller's.
  SilentHost(int socket, std::chrono::milliseconds after);

  // How often to look; -1 ms: never.
  std::chrono::milliseconds pause() const { return pause_; }
  // After two looks that found the same, a pause apart.
  bool has_gone();

 private:
  const int socket_;
  std::chrono::milliseconds after_, pause_{-1};
  std::chrono::steady_clock::time_point last_look_{};
  bool suspect_ = false;
};

}  // namespace fargpu::server
