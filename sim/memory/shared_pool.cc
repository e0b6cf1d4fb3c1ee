#include "sim/memory/shared_pool.h"

#include <fcntl.h>
#include <sys/random.h>

#include <cerrno>

namespace fargpu::sim {
namespace {

constexpr uint32_t kMagic = 0x6f706773;  // "sgpo"

}  // namespace

Result<SharedPool> SharedPool::create(int index) {
  FARGPU_ASSIGN_OR_RETURN(auto page, SharedValue<Page>::create("fargpu-sim-pool"));
  if (::getrandom(&page->key, sizeof page->key, 0) != sizeof page->key)
    return system_error("getrandom", errno);
  page->magic = kMagic;
  page->index = index;
  return SharedPool(std::move(page));
}

Result<SharedPool> SharedPool::open(int descriptor) {
  const Status wrong(StatusCode::kInvalidArgument, "this is no pool");
  Fd own(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
  if (!own.valid()) return wrong;
  auto page = SharedValue<Page>::open(std::move(own));
  if (!page.ok() || (*page)->magic != kMagic) return wrong;
  return SharedPool(std::move(*page));
}

int SharedPool::duplicate() const { return ::fcntl(page_.descriptor(), F_DUPFD, 0); }

}  // namespace fargpu::sim
