// A worker without sessions: every handle is there, every driver call succeeds, replies are
// counted. For dispatch tests.
#pragma once

#include <cstdlib>
#include <vector>

#include "generated/server/driver_table.h"
#include "server/object/request.h"
#include "tests/wire_roundtrip/dispatch_cases.h"

namespace fargpu::wiretest {

// Takes frames and remembers the last header.
class SinkTransport final : public transport::Transport {
 public:
  transport::Capabilities capabilities() const override {
    return {.name = "sink", .max_slot_bytes = 2u << 20};
  }
  Result<std::span<std::byte>> reserve(size_t bytes, transport::Deadline) override {
    slot_.assign((bytes + 7) / 8, 0);
    return std::span<std::byte>(reinterpret_cast<std::byte*>(slot_.data()), bytes);
  }
  Status commit(size_t, std::span<const std::span<const std::byte>>, transport::Deadline) override {
    ++frames;
    last = *reinterpret_cast<const wire::FrameHeader*>(slot_.data());
    return Status();
  }
  Status flush(transport::Deadline) override { return Status(); }
  Result<size_t> receive(transport::FrameHandler&, transport::Deadline) override {
    return size_t{0};
  }
  void wake() override {}
  int poll_descriptor() const override { return -1; }
  void close() override {}
  void abandon_after_fork() override {}
  transport::Statistics statistics() const override { return {}; }
  std::string describe() const override { return "sink"; }

  int frames = 0;
  wire::FrameHeader last;

 private:
  std::vector<uint64_t> slot_;
};

class FakeWorker final : public server::Worker {
 public:
  FakeWorker() : responder_(transport) { fill_driver(&table); }
  const server::DriverTable& driver() override { return table; }
  // Hand-written halves only.
  server::SessionParts& parts() override { std::abort(); }
  rpc::Responder& responder() override { return responder_; }
  CUresult enter_context(uint16_t) override { return CUDA_SUCCESS; }
  CUresult find(rpc::HandleKind, uint64_t id, void** handle) override {
    *handle = reinterpret_cast<void*>(id);
    return find_result;
  }
  CUresult submit(uint64_t stream_id, server::FrameStream* stream) override {
    ++submitted;
    *stream = {stream_id, 1, reinterpret_cast<CUstream>(stream_id)};
    return find_result;
  }
  CUresult add(rpc::HandleKind, uint64_t, void*, uint16_t, uint64_t) override {
    ++added;
    return add_result;
  }
  void remove(uint64_t) override { ++removed; }
  CUresult charge(uint64_t bytes) override {
    if (charge_result == CUDA_SUCCESS) charged += bytes;
    return charge_result;
  }
  void refund(uint64_t bytes) override { charged -= bytes; }
  void remember_allocation(CUdeviceptr, uint64_t) override { ++remembered; }
  void forget_allocation(CUdeviceptr) override { --remembered; }
  bool tries_again(const server::Request&) override { return false; }
  void before_error() override {}
  void defer(std::function<bool()>) override {}

  SinkTransport transport;
  server::DriverTable table;
  CUresult find_result = CUDA_SUCCESS, add_result = CUDA_SUCCESS, charge_result = CUDA_SUCCESS;
  uint64_t charged = 0;
  int submitted = 0, added = 0, removed = 0, remembered = 0;

 private:
  rpc::Responder responder_;
};

}  // namespace fargpu::wiretest
