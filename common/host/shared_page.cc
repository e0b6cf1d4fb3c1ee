#include "common/host/shared_page.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

#include "common/base/descriptors.h"

namespace fargpu {
namespace {

constexpr int kSizeIsFixed = F_SEAL_SHRINK | F_SEAL_GROW;
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

}  // namespace

Result<SharedPage> SharedPage::map(Fd fd, size_t bytes, Access access) {
  const int protection = access == Access::kRead ? PROT_READ : PROT_READ | PROT_WRITE;
  void* const memory = ::mmap(nullptr, bytes, protection, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) return system_error("mmap of a shared page", errno);
  return SharedPage(std::move(fd), static_cast<std::byte*>(memory), bytes);
}

Result<SharedPage> SharedPage::create(const char* name, size_t bytes, Access of_others) {
  Fd fd = descriptors::make([&] { return ::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING); });
  if (!fd.valid()) return system_error("memfd_create", errno);
  // Whole pages: a process of another release may know more or less of what stands in the last one.
  const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t whole = (bytes + page - 1) / page * page;
  if (::ftruncate(fd.get(), static_cast<off_t>(whole)) != 0)
    return system_error("ftruncate", errno);
  FARGPU_ASSIGN_OR_RETURN(SharedPage made, map(std::move(fd), whole, Access::kReadAndWrite));
  // After the mapping, which may write on. An older system does not know it.
  if (of_others == Access::kRead)
    (void)::fcntl(made.descriptor(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE);
  if (::fcntl(made.descriptor(), F_ADD_SEALS, kSizeIsFixed | F_SEAL_SEAL) != 0)
    return system_error(std::string("sealing of ") + name, errno);
  return made;
}

Result<SharedPage> SharedPage::open(Fd descriptor, size_t bytes, Access access) {
  struct stat about {};
  if (::fstat(descriptor.get(), &about) != 0) return system_error("fstat of a shared page", errno);
  const int seals = ::fcntl(descriptor.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSizeIsFixed) != kSizeIsFixed)
    return Status(StatusCode::kProtocol, "the shared page is not sealed");
  if (static_cast<uint64_t>(about.st_size) < bytes)
    return Status(StatusCode::kProtocol, "the shared page is too small");
  FARGPU_ASSIGN_OR_RETURN(SharedPage opened, map(std::move(descriptor), bytes, access));
  opened.close_descriptor();
  return opened;
}

SharedPage::SharedPage(SharedPage&& other) noexcept
    : fd_(std::move(other.fd_)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

SharedPage& SharedPage::operator=(SharedPage&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

SharedPage::~SharedPage() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

}  // namespace fargpu
