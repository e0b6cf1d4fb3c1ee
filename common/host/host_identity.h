// Determines whether two processes run on one host.
#pragma once

#include <cstdint>
#include <string>

namespace fargpu::bootstrap {

// Equal for all processes of one running system, containers included; another one after a reboot
// and on another host. Empty: not known, and then equal to no other. Source: the kernel's boot id,
// read by the first call.
std::string host_identity();

// Which numbers of processes this one knows: equal in one pid namespace. 0: not known.
uint64_t pid_namespace();

}  // namespace fargpu::bootstrap
