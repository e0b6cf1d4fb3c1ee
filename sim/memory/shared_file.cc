#include "sim/memory/shared_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace fargpu::sim {
namespace {

// Behind the memory.
struct Label {
  char magic[16];
  uint64_t bytes;
  int32_t index;
  CUmemAllocationProp properties;
};

constexpr char kMagic[16] = "fargpu-sim-mem1";
// The size must not change, or other processes would die of SIGBUS.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

Status other_file() { return {StatusCode::kInvalidArgument, "not memory of a simulated GPU"}; }

}  // namespace

Result<SharedFile> SharedFile::create(uint64_t bytes, int index,
                                      const CUmemAllocationProp& properties) {
  Fd file(memfd_create("fargpu-sim-shared", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  Label label{};
  std::memcpy(label.magic, kMagic, sizeof kMagic);
  label.bytes = bytes;
  label.index = index;
  label.properties = properties;
  const auto end = static_cast<off_t>(bytes + sizeof label);
  if (!file.valid() || ftruncate(file.get(), end) != 0 ||
      pwrite(file.get(), &label, sizeof label, static_cast<off_t>(bytes)) != sizeof label ||
      fcntl(file.get(), F_ADD_SEALS, kSeals) != 0) {
    return system_error("a memory file of a simulated GPU", errno);
  }
  return SharedFile(std::move(file), bytes, index, properties);
}

Result<SharedFile> SharedFile::open(int descriptor) {
  struct stat about {};
  if (fstat(descriptor, &about) != 0 || !S_ISREG(about.st_mode) ||
      (fcntl(descriptor, F_GET_SEALS) & kSeals) != kSeals ||
      about.st_size < static_cast<off_t>(sizeof(Label))) {
    return other_file();
  }
  Label label{};
  const off_t at = about.st_size - static_cast<off_t>(sizeof label);
  if (pread(descriptor, &label, sizeof label, at) != sizeof label ||
      std::memcmp(label.magic, kMagic, sizeof kMagic) != 0 ||
      label.bytes != static_cast<uint64_t>(at)) {
    return other_file();
  }
  Fd file(fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
  if (!file.valid()) return system_error("a memory file of a simulated GPU", errno);
  return SharedFile(std::move(file), label.bytes, label.index, label.properties);
}

int SharedFile::duplicate() const { return fcntl(file_.get(), F_DUPFD_CLOEXEC, 0); }

CUresult no_export(int descriptor) {
  return descriptor == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_UNKNOWN;
}

}  // namespace fargpu::sim
