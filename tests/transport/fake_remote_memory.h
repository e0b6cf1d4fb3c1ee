// What tests of registrations need of a RemoteMemory beside registering: transfers that move
// nothing.
#pragma once

#include "common/transport/remote_memory.h"

namespace fargpu::test {

class RemoteMemoryWithoutTransfers : public transport::RemoteMemory {
 public:
  Result<Ticket> read(const transport::RemoteKey&, uint64_t, const transport::RegisteredMemory&,
                      std::span<std::byte>) override {
    return Ticket{0};
  }
  Result<Ticket> write(const transport::RegisteredMemory&, std::span<const std::byte>,
                       const transport::RemoteKey&, uint64_t) override {
    return Ticket{0};
  }
  Status read_now(const transport::RemoteKey&, uint64_t, const transport::RegisteredMemory&,
                  std::span<std::byte>, Deadline) override {
    return Status();
  }
  Status write_now(const transport::RegisteredMemory&, std::span<const std::byte>,
                   const transport::RemoteKey&, uint64_t, Deadline) override {
    return Status();
  }
  Status wait(Ticket, Deadline) override { return Status(); }
  std::string route() const override { return {}; }
};

}  // namespace fargpu::test
