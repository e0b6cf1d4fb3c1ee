#include "client/hostmem/shared_segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>

#include "client/link/link.h"
#include "client/memory/reserve.h"
#include "client/stream/host_calls.h"
#include "common/base/descriptors.h"
#include "common/base/fd.h"
#include "common/base/log.h"
#include "common/host/memory_page.h"
#include "common/transport/transport.h"
#include "generated/client/wire/internal.h"

namespace fargpu::client {
namespace {

// Unique in the process, so that a descriptor which the worker has not taken cannot be mistaken for
// another one.
std::atomic<uint64_t> next_number{1};

void tell_once(size_t bytes, const std::string& why) {
  static std::atomic<bool> told{false};
  if (told.exchange(true)) return;
  log::warn(
      "{} bytes of pinned host memory are not shared with the server ({}); copies of such memory "
      "are slower",
      bytes, why);
}

Result<Fd> memory_file(size_t bytes) {
  Fd file = descriptors::make(
      [] { return ::memfd_create("fargpu-host", MFD_CLOEXEC | MFD_ALLOW_SEALING); });
  if (!file.valid()) return system_error("memfd_create", errno);
  // Where files may not be as large, the system sends SIGXFSZ.
  struct rlimit most = {};
  if (::getrlimit(RLIMIT_FSIZE, &most) != 0 || bytes > most.rlim_cur)
    return system_error("the limit of file sizes", EFBIG);
  if (::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0)
    return system_error("ftruncate", errno);
  if (::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return system_error("F_ADD_SEALS", errno);
  return file;
}

}  // namespace

CUresult unshare(Link& link, HostCalls& functions, const Context* context, uint64_t address) {
  const HostCalls::Load load(functions, device_key(context));
  return wire::fgHostUnshare(link, context == nullptr ? 0 : context->wire_id, address);
}

bool SharedSegment::possible(Link& link) { return link.descriptor_passing() != nullptr; }

std::optional<SharedSegment> SharedSegment::make(Link& link, HostCalls& functions, Context& context,
                                                 size_t bytes) {
  if (bytes == 0 || bytes > SIZE_MAX - kPageBytes) return std::nullopt;
  SharedSegment segment;
  const size_t whole = page_from(bytes);
  const Result<Fd> file = memory_file(whole);
  if (!file.ok()) {
    tell_once(whole, file.status().message());
    return std::nullopt;
  }
  void* const memory = allocate_host(whole, file->get());
  if (memory == nullptr) return std::nullopt;
  segment.base_ = static_cast<std::byte*>(memory);
  segment.bytes_ = whole;
  segment.context_ = &context;
  segment.epoch_.emplace(context);
  const uint64_t number = next_number.fetch_add(1, std::memory_order_relaxed);
  if (const Status status = link.channel().pass_descriptor(number, file->get()); !status.ok()) {
    tell_once(whole, status.message());
    return std::nullopt;
  }
  CUdeviceptr device_pointer = 0;
  const CUresult result =
      wire::fgHostShare(link, context.wire_id, segment.address(), whole, number, &device_pointer);
  if (result != CUDA_SUCCESS) {
    if (result == CUDA_ERROR_ALREADY_MAPPED) retire_addresses(memory);
    tell_once(whole, "error " + std::to_string(result));
    return std::nullopt;
  }
  if (segment.context_has_ended()) {
    // Unless the worker has it in the next life of a primary context.
    if (context.usable()) (void)unshare(link, functions, &context, segment.address());
    return std::nullopt;
  }
  segment.device_pointer_ = device_pointer;
  return segment;
}

SharedSegment::~SharedSegment() {
  if (base_ != nullptr) free_host(base_, bytes_);
}

}  // namespace fargpu::client
