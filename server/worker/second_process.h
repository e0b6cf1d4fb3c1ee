// SecondProcess: a child of the probe that makes contexts at its command, so that the probe
// sees in its own contexts what those of another process take of the GPUs' memory.
#pragma once

#include <sys/types.h>

#include <string>

#include "common/base/fd.h"

namespace fargpu::server {

class SecondProcess {
 public:
  // Forks: before this process opens the driver.
  explicit SecondProcess(const std::string& driver_path);
  SecondProcess(const SecondProcess&) = delete;
  SecondProcess& operator=(const SecondProcess&) = delete;
  ~SecondProcess();  // ends it, and with it its contexts

  // It has a context on each GPU now. False: not on all of them, or not in time.
  bool make_contexts();

 private:
  Fd socket_;
  pid_t child_ = -1;
};

}  // namespace fargpu::server
