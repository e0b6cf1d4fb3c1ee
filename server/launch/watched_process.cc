#include "server/launch/watched_process.h"

#include <fcntl.h>
#include <signal.h>

#include <cerrno>
#include <utility>

namespace fargpu::server {

using boost::asio::posix::stream_descriptor;

namespace {

// Of a process that nobody would see end.
Status given_up(LaunchedProcess& process, Status why) {
  process.signal(SIGKILL);
  (void)await_end(process, transport::kNoDeadline);
  return why;
}

}  // namespace

Result<std::shared_ptr<WatchedProcess>> WatchedProcess::start(boost::asio::io_context& loop,
                                                              Launcher& launcher,
                                                              const ProcessSetup& setup) {
  FARGPU_ASSIGN_OR_RETURN(auto process, launcher.start(setup));
  Fd end(::fcntl(process->end_descriptor(), F_DUPFD_CLOEXEC, 0));
  if (!end.valid()) {
    return given_up(*process, system_error("cannot watch the process of " + setup.program, errno));
  }
  std::shared_ptr<WatchedProcess> made(new WatchedProcess(loop, std::move(process)));
  if (boost::system::error_code error; made->end_.assign(end.get(), error)) {
    return given_up(*made->process_,
                    system_error("cannot watch the process of " + setup.program, error.value()));
  }
  (void)end.release();
  made->wait();
  return made;
}

WatchedProcess::WatchedProcess(boost::asio::io_context& loop,
                               std::unique_ptr<LaunchedProcess> process)
    : process_(std::move(process)), end_(loop) {}

void WatchedProcess::wait() {
  end_.async_wait(stream_descriptor::wait_read,
                  [weak = weak_from_this()](const boost::system::error_code& error) {
                    const auto self = weak.lock();
                    if (error || !self) return;
                    const auto end = self->process_->end();
                    if (!end) return self->wait();
                    if (const auto tell = std::exchange(self->on_end_, nullptr)) tell(*end);
                  });
}

}  // namespace fargpu::server
