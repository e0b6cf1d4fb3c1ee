// A transport that does what another one does, for tests that add something to it; and one that
// adds the passing of descriptors, between the two ends in one process.
#pragma once

#include <fcntl.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "common/transport/descriptor_passing.h"
#include "common/transport/transport.h"

namespace fargpu::test {

class ForwardingTransport : public transport::Transport {
 public:
  explicit ForwardingTransport(std::unique_ptr<transport::Transport> inner)
      : inner_(std::move(inner)) {}
  transport::Capabilities capabilities() const override { return inner_->capabilities(); }
  Result<std::span<std::byte>> reserve(size_t bytes, transport::Deadline deadline) override {
    return inner_->reserve(bytes, deadline);
  }
  Status commit(size_t bytes, std::span<const std::span<const std::byte>> bulk,
                transport::Deadline deadline) override {
    return inner_->commit(bytes, bulk, deadline);
  }
  Status flush(transport::Deadline deadline) override { return inner_->flush(deadline); }
  bool set_aside() override { return inner_->set_aside(); }
  Status send_aside() override { return inner_->send_aside(); }
  Result<size_t> receive(transport::FrameHandler& handler, transport::Deadline deadline) override {
    return inner_->receive(handler, deadline);
  }
  void wake() override { inner_->wake(); }
  int poll_descriptor() const override { return inner_->poll_descriptor(); }
  bool arm() override { return inner_->arm(); }
  void close() override { inner_->close(); }
  void abandon_after_fork() override { inner_->abandon_after_fork(); }
  transport::Statistics statistics() const override { return inner_->statistics(); }
  std::string describe() const override { return inner_->describe(); }

 private:
  std::unique_ptr<transport::Transport> inner_;
};

// What was sent and not taken. Any thread.
class PassedDescriptors final : public transport::DescriptorPassing {
 public:
  Status send(uint64_t number, int descriptor) override {
    std::lock_guard lock(mutex_);
    waiting_.insert_or_assign(number, Fd(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0)));
    return Status();
  }
  Result<Fd> take(uint64_t number) override {
    std::lock_guard lock(mutex_);
    const auto found = waiting_.find(number);
    if (found == waiting_.end()) return Status(StatusCode::kNotFound, "no such descriptor");
    Fd descriptor = std::move(found->second);
    waiting_.erase(found);
    return descriptor;
  }

 private:
  std::mutex mutex_;
  std::map<uint64_t, Fd> waiting_;  // guarded by mutex_
};

// One end: both get the same `passed`, which outlives them.
class TransportThatPasses final : public ForwardingTransport {
 public:
  TransportThatPasses(std::unique_ptr<transport::Transport> inner, PassedDescriptors& passed)
      : ForwardingTransport(std::move(inner)), passed_(passed) {}
  transport::DescriptorPassing* descriptor_passing() override { return &passed_; }

 private:
  PassedDescriptors& passed_;
};

}  // namespace fargpu::test
