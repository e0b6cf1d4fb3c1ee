#include "client/manual/memory/handle_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "common/base/descriptors.h"

namespace fargpu::client {
namespace {

constexpr char kMagic[16] = "fargpu-ticket-1";
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;

struct Content {
  char magic[sizeof kMagic];
  ExportHandleBytes export_handle;
};

}  // namespace

Result<Fd> make_handle_file(const ExportHandleBytes& export_handle, bool inherited) {
  Content content{};
  std::memcpy(content.magic, kMagic, sizeof kMagic);
  content.export_handle = export_handle;
  const unsigned flags = MFD_ALLOW_SEALING | (inherited ? 0 : MFD_CLOEXEC);
  // The program gets the number: the lowest that is none of the standard ones.
  const descriptors::StandardTaken taken;
  Fd file(::memfd_create("fargpu-shared", flags));
  if (!file.valid() || ::write(file.get(), &content, sizeof content) != sizeof content ||
      ::fcntl(file.get(), F_ADD_SEALS, kSeals) != 0) {
    return system_error("a file for shared memory", errno);
  }
  // A driver takes 0 for no descriptor.
  if (file.get() <= STDERR_FILENO) {
    Fd other(::fcntl(file.get(), inherited ? F_DUPFD : F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
    if (!other.valid()) return system_error("a file for shared memory", errno);
    return other;
  }
  return file;
}

CUresult read_handle_file(int descriptor, ExportHandleBytes* export_handle) {
  struct stat about {};
  Content content{};
  if (descriptor == 0) return CUDA_ERROR_INVALID_VALUE;
  // Reading could wait, of a pipe.
  if (::fstat(descriptor, &about) != 0 || !S_ISREG(about.st_mode) ||
      about.st_size != sizeof content ||
      ::pread(descriptor, &content, sizeof content, 0) != sizeof content ||
      std::memcmp(content.magic, kMagic, sizeof kMagic) != 0) {
    return CUDA_ERROR_UNKNOWN;
  }
  *export_handle = content.export_handle;
  return CUDA_SUCCESS;
}

}  // namespace fargpu::client
