// Files that were verified and have not been written since, so that they need not be read again:
// the owner is this process's user, the mode 0400, and the time of modification the beginning of
// time, which any write would change. The file system has to keep these; some do not.
//
// Any thread.
#pragma once

#include <sys/stat.h>

#include <string>

#include "common/base/status.h"

namespace fargpu {

// `descriptor`: a file of ours that is not empty, complete and verified. kSystem, also when the
// file system of `folder` does not store the marks of a seal: then the file is not sealed.
Status seal_file(int descriptor, const std::string& folder);
bool is_sealed(const struct stat& about);
// Seals a file of its own in `folder` and removes it. kSystem as seal_file.
Status try_to_seal_in(const std::string& folder);

}  // namespace fargpu
