// The ways to wait, and whether a host that polls mapped memory sees what a running kernel writes:
// it does natively and over shared memory, and elsewhere where the system lets faults of system
// calls be served (docs/transports.md).
#pragma once

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "tests/orderings/check.h"

inline bool host_can_poll() {
  if (std::getenv("FARGPU_SERVER") == nullptr) return true;
  const char* const transport = std::getenv("FARGPU_TRANSPORT");
  if (transport != nullptr && std::strcmp(transport, "shm") == 0) return true;
  if (const char* const mode = std::getenv("FARGPU_MAPPED"); mode && !std::strcmp(mode, "eager"))
    return false;
  int faults = ::open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
  if (faults < 0) faults = static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC));
  if (faults < 0) return false;
  ::close(faults);
  return true;
}

// In one of four ways, 0 to 3.
inline void wait_somehow(unsigned how, CUstream stream, CUevent event) {
  switch (how) {
    case 0:
      CU(cuCtxSynchronize());
      break;
    case 1:
      CU(cuStreamSynchronize(stream));
      break;
    case 2:
      CU(cuEventRecord(event, stream));
      CU(cuEventSynchronize(event));
      break;
    default:
      while (cuStreamQuery(stream) == CUDA_ERROR_NOT_READY) usleep(200);
  }
}
