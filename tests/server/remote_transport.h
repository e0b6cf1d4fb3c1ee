// A transport with remote memory where there is no adapter: frames go as before, writes to the peer
// go to a vector. The adapter has read at once what it writes, unless complete(false).
#pragma once

#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "tests/transport/fake_remote_memory.h"
#include "tests/transport/forwarding_transport.h"

namespace fargpu::test {

class RemoteMemoryThatWrites final : public RemoteMemoryWithoutTransfers {
 public:
  // What is at the beginning of the peer's memory by now.
  std::vector<std::byte> written() {
    std::lock_guard lock(mutex_);
    return written_;
  }
  transport::RemoteKey key() {
    std::lock_guard lock(mutex_);
    return key_;
  }
  void complete(bool all = true) { complete_ = all; }

  Result<std::unique_ptr<transport::RegisteredMemory>> register_memory(
      std::span<std::byte> memory, transport::RemoteAccess) override {
    return std::unique_ptr<transport::RegisteredMemory>(std::make_unique<Registered>(memory));
  }
  Result<std::unique_ptr<transport::RegisteredMemory>> register_dmabuf(
      int, uint64_t, std::span<std::byte>, transport::RemoteAccess) override {
    return Status(StatusCode::kUnsupported, "no dma-buf");
  }
  Result<Ticket> write(const transport::RegisteredMemory&, std::span<const std::byte> source,
                       const transport::RemoteKey& to, uint64_t offset) override {
    std::lock_guard lock(mutex_);
    key_ = to;
    if (written_.size() < offset + source.size()) written_.resize(offset + source.size());
    std::memcpy(written_.data() + offset, source.data(), source.size());
    return ++tickets_;
  }
  Status wait(Ticket, Deadline) override {
    return complete_ ? Status() : Status(StatusCode::kTimeout, "still reading");
  }

 private:
  class Registered final : public transport::RegisteredMemory {
   public:
    explicit Registered(std::span<std::byte> memory) : memory_(memory) {}
    std::span<std::byte> memory() const override { return memory_; }
    transport::RemoteKey key() const override { return {}; }

   private:
    std::span<std::byte> memory_;
  };

  std::mutex mutex_;
  std::vector<std::byte> written_;  // guarded by mutex_, like these
  transport::RemoteKey key_;
  Ticket tickets_ = 0;
  std::atomic<bool> complete_{true};
};

class TransportWithRemoteMemory final : public ForwardingTransport {
 public:
  TransportWithRemoteMemory(std::unique_ptr<transport::Transport> inner,
                            transport::RemoteMemory& remote)
      : ForwardingTransport(std::move(inner)), remote_(remote) {}
  transport::RemoteMemory* remote_memory() override { return &remote_; }

 private:
  transport::RemoteMemory& remote_;
};

}  // namespace fargpu::test
