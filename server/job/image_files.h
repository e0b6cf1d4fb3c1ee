// Images on the disk: files without a name, so that nobody opens one who was not given it, and none
// is left behind. Calls take as long as the disk wants. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "common/base/fd.h"
#include "common/base/status.h"
#include "common/host/sha256.h"

namespace fargpu::server {

// What a file of so many bytes takes of a disk: whole blocks of 4 KiB, and one for itself.
uint64_t disk_bytes_of(uint64_t bytes);

// Whether a file can be made in `folder`. kSystem.
Status try_image_files(const std::string& folder);
// Copies `bytes` bytes of `memory`, which nobody can change any more, to a new file in `folder`,
// and verifies the copied ones. A descriptor for reading; the only one.
// kProtocol: they have another hash. kSystem: the disk, or it is full. kLost: `ending` was set.
Result<Fd> copy_to_file(const std::string& folder, int memory, uint64_t bytes,
                        const Sha256Digest& hash, const std::atomic<bool>& ending);
// Frees the blocks of such a file, whoever may have it open still: a mapping of it is of no use any
// more.
void empty_file(const Fd& file);

}  // namespace fargpu::server
