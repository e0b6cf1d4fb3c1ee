#include "common/transport/rdma/rdma_domain.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>

namespace fargpu::transport {
namespace {

int access_flags(RemoteAccess access) {
  switch (access) {
    case RemoteAccess::kNone:
      return IBV_ACCESS_LOCAL_WRITE;
    case RemoteAccess::kRead:
      return IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
    case RemoteAccess::kReadWrite:
      return IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
  }
  return 0;
}

std::string locked_memory_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return "unlimited";
  return fmt::format("{} KiB", limit.rlim_cur >> 10);
}

}  // namespace

Status verbs_error(const std::string& what, int error_number) {
  // Whether the kernel or the adapter ran short cannot be told apart: EPERM comes where no memory
  // at all may be locked.
  if (error_number == ENOMEM || error_number == EAGAIN || error_number == EPERM) {
    return Status(StatusCode::kNoCapacity,
                  fmt::format("{}; the limit of locked memory is {} (raise it with `ulimit -l` or, "
                              "for a service, LimitMEMLOCK=)",
                              system_error(what, error_number).message(), locked_memory_limit()));
  }
  return system_error(what, error_number);
}

Status check_device(const ibv_context* context) {
  if (context->device->transport_type != IBV_TRANSPORT_IWARP) return Status();
  return Status(StatusCode::kUnsupported,
                fmt::format("{} is an iWARP device, which has no writes with immediate data",
                            context->device->name));
}

void forget_descriptor(int descriptor) {
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null < 0) return;
  ::dup3(null, descriptor, O_CLOEXEC);
  ::close(null);
}

Result<std::shared_ptr<RdmaDomain>> RdmaDomain::create(rdma_event_channel* channel,
                                                       rdma_cm_id* id) {
  auto made = std::make_shared<RdmaDomain>(channel, id);
  FARGPU_RETURN_IF_ERROR(check_device(id->verbs));
  made->pd_ = rdma().alloc_pd(id->verbs);
  if (made->pd_ == nullptr) return verbs_error("cannot make a protection domain", errno);
  return made;
}

RdmaDomain::~RdmaDomain() {
  if (abandoned()) return;
  if (pd_ != nullptr) rdma().dealloc_pd(pd_);
  rdma().cm_destroy_id(id_);
  rdma().cm_destroy_event_channel(channel_);
}

void RdmaDomain::abandon() {
  if (abandoned_.exchange(true)) return;
  // The device's descriptors are shared by every connection of this process, all of them the
  // parent's.
  for (int descriptor : {channel_->fd, id_->verbs->cmd_fd, id_->verbs->async_fd})
    forget_descriptor(descriptor);
}

Result<std::shared_ptr<RdmaRegion>> RdmaRegion::create(std::shared_ptr<RdmaDomain> domain,
                                                       std::span<std::byte> memory,
                                                       RemoteAccess access) {
  if (memory.empty())
    return Status(StatusCode::kInvalidArgument, "no memory of 0 bytes can be registered");
  const auto try_with = [&](int flags) {
    return rdma().reg_mr_iova2(domain->pd(), memory.data(), memory.size(),
                               reinterpret_cast<uintptr_t>(memory.data()),
                               static_cast<unsigned>(flags));
  };
  int flags = access_flags(access);
  ibv_mr* region = try_with(flags);
  // Memory that this process may only read can still be sent from.
  if (region == nullptr && errno == EFAULT && access != RemoteAccess::kReadWrite) {
    region = try_with(flags & ~IBV_ACCESS_LOCAL_WRITE);
  }
  if (region == nullptr) {
    const int error = errno;
    const std::string what = fmt::format("cannot register {} bytes with {}", memory.size(),
                                         domain->context()->device->name);
    if (error == EFAULT || error == EINVAL || error == EOPNOTSUPP)
      return Status(StatusCode::kUnsupported, system_error(what, error).message());
    return verbs_error(what, error);
  }
  return std::make_shared<RdmaRegion>(std::move(domain), region, memory);
}

Result<std::shared_ptr<RdmaRegion>> RdmaRegion::create_dmabuf(std::shared_ptr<RdmaDomain> domain,
                                                              int dmabuf, uint64_t offset,
                                                              std::span<std::byte> memory,
                                                              RemoteAccess access) {
  const std::string what = fmt::format("cannot register {} bytes of a dma-buf with {}",
                                       memory.size(), domain->context()->device->name);
  if (rdma().reg_dmabuf_mr == nullptr)
    return Status(StatusCode::kUnsupported, what + ": rdma-core is too old");
  ibv_mr* region = rdma().reg_dmabuf_mr(domain->pd(), offset, memory.size(),
                                        reinterpret_cast<uintptr_t>(memory.data()), dmabuf,
                                        access_flags(access));
  if (region == nullptr) {
    const int error = errno;
    if (error == ENOMEM) return verbs_error(what, error);
    return Status(StatusCode::kUnsupported, system_error(what, error).message());
  }
  return std::make_shared<RdmaRegion>(std::move(domain), region, memory);
}

RdmaRegion::~RdmaRegion() {
  if (!domain_->abandoned()) rdma().dereg_mr(region_);
}

Result<std::unique_ptr<RdmaBuffer>> RdmaBuffer::create(std::shared_ptr<RdmaDomain> domain,
                                                       size_t bytes, RemoteAccess access) {
  void* pages = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) return system_error("cannot map a buffer", errno);
  ::madvise(pages, bytes, MADV_DONTFORK);
  const std::span memory(static_cast<std::byte*>(pages), bytes);
  auto region = RdmaRegion::create(std::move(domain), memory, access);
  if (!region.ok()) {
    ::munmap(pages, bytes);
    return region.status();
  }
  return std::unique_ptr<RdmaBuffer>(new RdmaBuffer(std::move(*region), memory));
}

RdmaBuffer::~RdmaBuffer() {
  // in a forked child something else may be at this address
  const bool ours = !region_->abandoned();
  region_.reset();
  if (ours) ::munmap(memory_.data(), memory_.size());
}

}  // namespace fargpu::transport
