// Changes of the process since a client library was loaded that explain why a file, a socket or a
// host's name is not found.
#pragma once

#include <string>

namespace fargpu {

// Called once, when a library of ours is loaded. Before that, and in processes of our own, nothing
// has ever changed.
void remember_process();

// Whether paths lead elsewhere now: chroot(2) and the like. Keeps errno.
bool root_has_changed();

// Text behind the text of an error number of a call with a path: " (the program has changed ...)"
// where that may be the cause, otherwise "". Keeps errno.
std::string explanation(int error_number);

}  // namespace fargpu
