// For programs of which system calls wait for memory that is not here.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/utsname.h>

#include "tests/orderings/check.h"

// Linux 6.4, and the device or the privilege.
inline bool serves_faults_of_writes() {
  struct utsname system = {};
  int major = 0, minor = 0;
  if (::uname(&system) != 0 || std::sscanf(system.release, "%d.%d", &major, &minor) != 2 ||
      major * 1000 + minor < 6004)
    return false;
  int opened = ::open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
  if (opened < 0) opened = static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC));
  if (opened >= 0) ::close(opened);
  return opened >= 0;
}

// Faults are then served, also beside an adapter. Otherwise the program ends.
inline void require_served_faults(const char* variable) {
  if (!serves_faults_of_writes()) {
    note("skipped: the system does not let this process serve its faults (userfaultfd)");
    right();
  }
  setenv(variable, "touched", 1);
}
