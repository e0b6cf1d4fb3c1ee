// A private daemon with simulated GPUs, for one command: `fargpu run --sim`. It listens on a free
// loopback port and accepts only the token that was made for it. It ends with this object, or with
// this process, however that dies.
#pragma once

#include <sys/types.h>

#include <string>

#include "common/base/status.h"

namespace fargpu::cli {

class PrivateDaemon final {
 public:
  // Starts the daemon and waits until it listens, at most 30 s. kNotFound without fargpud; its own
  // error line goes to stderr.
  static Result<PrivateDaemon> start(unsigned gpus);
  PrivateDaemon(PrivateDaemon&& other) noexcept;
  PrivateDaemon& operator=(PrivateDaemon&&) = delete;
  ~PrivateDaemon();

  const std::string& server() const { return server_; }  // 127.0.0.1:port
  const std::string& token_file() const { return token_file_; }

 private:
  PrivateDaemon() = default;
  Status wait_until_listening(const std::string& port_file);

  pid_t pid_ = -1;
  std::string folder_;  // ours alone: token and port file
  std::string server_;
  std::string token_file_;
};

// How to reach a private daemon.
struct PrivateServer {
  std::string server, token_file;
};
// Starts one for the program that this process becomes: it ends, and its files go, when the program
// has ended. Only when can_become_the_program() (companion.h). The errors of
// PrivateDaemon::start(); kSystem.
Result<PrivateServer> start_private_server(unsigned gpus);

}  // namespace fargpu::cli
