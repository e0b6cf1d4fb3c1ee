// A process that the daemon has started (handover/launcher.h), and the event loop's wait for its
// end. On the daemon's event loop.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <functional>
#include <memory>

#include "common/base/fd.h"
#include "server/launch/launcher.h"

namespace fargpu::server {

class WatchedProcess : public std::enable_shared_from_this<WatchedProcess> {
 public:
  using OnEnd = std::function<void(const ProcessEnd&)>;
  static Result<std::shared_ptr<WatchedProcess>> start(boost::asio::io_context& loop,
                                                       Launcher& launcher,
                                                       const ProcessSetup& setup);
  // `on_end` is called once, from the loop, when the process has ended; it replaces the previous
  // one. To be set before the loop runs again. Not called if this goes first.
  void on_end(OnEnd on_end) { on_end_ = std::move(on_end); }
  int id() const { return process_->id(); }
  // Without effect after its end.
  void signal(int number) const { process_->signal(number); }
  // In the daemon's log.
  void set_name(const std::string& name) const { process_->set_name(name); }

 private:
  WatchedProcess(boost::asio::io_context& loop, std::unique_ptr<LaunchedProcess> process);
  void wait();

  const std::unique_ptr<LaunchedProcess> process_;
  boost::asio::posix::stream_descriptor end_;
  OnEnd on_end_;
};

}  // namespace fargpu::server
