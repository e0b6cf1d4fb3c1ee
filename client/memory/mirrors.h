// Host memory that device code may use: each region has a mirror in the worker, at the same
// address.
//
// The two are made equal at synchronisation points. push(), before work is sent: pages that the
// application has changed go to the worker. pull(), after a synchronisation: bytes that the device
// has changed come back; bytes that only the host changed since the push stay. A shadow copy of
// what both sides last agreed on tells who changed what. any() is one relaxed load. Any thread;
// push and pull of different threads exclude each other.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

namespace fargpu::client {

class Mirrors {
 public:
  // How bytes travel; replaced in tests.
  struct Wire {
    std::function<CUresult(uint64_t address, const void* data, size_t bytes)> push;
    std::function<CUresult(uint64_t address, void* data, size_t bytes)> pull;
  };

  bool any() const { return any_.load(std::memory_order_relaxed); }
  // The region [address, address + bytes) has a mirror now (of unknown contents); device code sees
  // it at `device_pointer`.
  void add(uint64_t address, size_t bytes, uint64_t device_pointer);
  bool remove(uint64_t address);
  // Where device code sees the region that begins at `address`; nullopt: it has no mirror.
  std::optional<uint64_t> device_pointer(uint64_t address) const;
  // Sends what the application changed. The device may write from now on.
  CUresult push(const Wire& wire);
  // Fetches what the device changed since the last push; nothing when there was no push.
  // `all_done`: no work is left anywhere, so that the next pull without a push in between has
  // nothing to do.
  CUresult pull(const Wire& wire, bool all_done);

  static constexpr size_t kPage = 4096;

 private:
  struct Mirror {
    size_t bytes = 0;
    uint64_t device_pointer = 0;
    std::vector<std::byte> shadow;  // empty: never pushed
    bool device_may_have_written = false;
  };
  CUresult push_one(uint64_t address, Mirror& mirror, const Wire& wire);
  CUresult pull_one(uint64_t address, Mirror& mirror, const Wire& wire);

  std::atomic<bool> any_{false};
  mutable std::mutex mutex_;
  std::map<uint64_t, Mirror> mirrors_;
};

}  // namespace fargpu::client
