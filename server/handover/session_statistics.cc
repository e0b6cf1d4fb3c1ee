#include "server/handover/session_statistics.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

namespace fargpu::server {

void SessionStatistics::set_transport(std::string_view text) {
  const size_t bytes = std::min(text.size(), sizeof transport);
  std::memcpy(transport, text.data(), bytes);
  transport_bytes.store(static_cast<uint32_t>(bytes), std::memory_order_release);
}

std::string SessionStatistics::transport_text() const {
  const size_t bytes = transport_bytes.load(std::memory_order_acquire);
  return std::string(transport, std::min(bytes, sizeof transport));
}

Result<StatisticsPage> StatisticsPage::create() {
  Fd fd(::memfd_create("fargpu-statistics", MFD_CLOEXEC));
  if (!fd.valid()) return system_error("memfd_create", errno);
  if (::ftruncate(fd.get(), sizeof(SessionStatistics)) != 0)
    return system_error("ftruncate", errno);
  void* memory =
      ::mmap(nullptr, sizeof(SessionStatistics), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) return system_error("mmap of the statistics", errno);
  return StatisticsPage(std::move(fd), new (memory) SessionStatistics);
}

Result<StatisticsPage> StatisticsPage::open(Fd descriptor) {
  void* memory = ::mmap(nullptr, sizeof(SessionStatistics), PROT_READ | PROT_WRITE, MAP_SHARED,
                        descriptor.get(), 0);
  if (memory == MAP_FAILED) return system_error("mmap of the statistics", errno);
  return StatisticsPage(Fd(), static_cast<SessionStatistics*>(memory));
}

StatisticsPage::StatisticsPage(StatisticsPage&& other) noexcept
    : fd_(std::move(other.fd_)), page_(std::exchange(other.page_, nullptr)) {}

StatisticsPage& StatisticsPage::operator=(StatisticsPage&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(page_, other.page_);
  return *this;
}

StatisticsPage::~StatisticsPage() {
  if (page_ != nullptr) ::munmap(page_, sizeof(SessionStatistics));
}

}  // namespace fargpu::server
