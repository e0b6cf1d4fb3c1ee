// SwitchedTransport: stands for one connection after the other, as a transport would that makes a
// new one when its connection is lost. Frames that a lost connection did not bring are lost.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "common/transport/resumable.h"
#include "common/transport/transport.h"

namespace fargpu::test {

class SwitchedTransport final : public transport::Transport, public transport::Resumable {
 public:
  explicit SwitchedTransport(std::unique_ptr<transport::Transport> first) { add(std::move(first)); }

  // A connection for later. Any thread, as the next one.
  void add(std::unique_ptr<transport::Transport> connection) {
    std::lock_guard lock(mutex_);
    connections_.push_back(std::move(connection));
  }
  // What resume() does; before the first use. Usually go_on().
  void when_lost(std::function<bool(const Status&)> then) { then_ = std::move(then); }
  int losses() const { return losses_; }
  bool resume(const Status& why) override {
    ++losses_;
    return then_ ? then_(why) : go_on();
  }
  // Puts the next connection in the place of one that has failed; false: there is none.
  bool go_on() {
    std::lock_guard lock(mutex_);
    if (!failed_) return true;  // another thread has asked before
    if (used_ + 1 == connections_.size()) return false;
    connections_[used_++]->close();  // for those who wait in it
    failed_ = false;
    return true;
  }

  transport::Capabilities capabilities() const override { return now().capabilities(); }
  Result<std::span<std::byte>> reserve(size_t bytes, transport::Deadline deadline) override {
    sends_ = &now();
    auto slot = sends_->reserve(bytes, deadline);
    (void)note(*sends_, slot.status());
    return slot;
  }
  // On the connection of the slot.
  Status commit(size_t bytes, std::span<const std::span<const std::byte>> bulk,
                transport::Deadline deadline) override {
    return note(*sends_, sends_->commit(bytes, bulk, deadline));
  }
  Status flush(transport::Deadline deadline) override {
    transport::Transport& used = now();
    return note(used, used.flush(deadline));
  }
  Result<size_t> receive(transport::FrameHandler& handler, transport::Deadline deadline) override {
    transport::Transport& used = now();
    auto received = used.receive(handler, deadline);
    (void)note(used, received.status());
    return received;
  }
  void wake() override { now().wake(); }
  int poll_descriptor() const override { return now().poll_descriptor(); }
  bool arm() override { return now().arm(); }
  void close() override { now().close(); }
  void abandon_after_fork() override { now().abandon_after_fork(); }
  transport::Statistics statistics() const override { return now().statistics(); }
  std::string describe() const override { return now().describe(); }
  // As of a silent one: nobody has noticed a failure.
  void give_up() {
    std::lock_guard lock(mutex_);
    failed_ = true;
  }

 private:
  transport::Transport& now() const {
    std::lock_guard lock(mutex_);
    return *connections_[used_];
  }
  Status note(const transport::Transport& used, Status status) {
    std::lock_guard lock(mutex_);
    if (status.code() == StatusCode::kLost && &used == connections_[used_].get()) failed_ = true;
    return status;
  }

  std::function<bool(const Status&)> then_;
  std::atomic<int> losses_{0};
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<transport::Transport>> connections_;  // used ones stay
  size_t used_ = 0;
  bool failed_ = false;
  transport::Transport* sends_ = nullptr;  // of the last slot; the sender's
};

}  // namespace fargpu::test
