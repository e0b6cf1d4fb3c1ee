#include "server/launch/logged_launcher.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <filesystem>
#include <string_view>

#include "common/base/fd.h"
#include "common/base/log.h"

namespace fargpu::server {
namespace {

using boost::asio::posix::stream_descriptor;
using boost::system::error_code;

// Between lines that count what was left out.
constexpr auto kPause = std::chrono::seconds(10);
// What is read of a pipe at once, and the rest after a whole piece.
constexpr size_t kPiece = 16u << 10;
constexpr auto kRest = std::chrono::milliseconds(10);

// The lines of one process. Lives until its pipe ends.
class ProcessLines : public std::enable_shared_from_this<ProcessLines> {
 public:
  ProcessLines(boost::asio::io_context& loop, Fd pipe, std::string name,
               std::shared_ptr<LineBudget> of_program)
      : pipe_(loop),
        rest_(loop),
        pause_(loop),
        name_(std::move(name)),
        of_program_(std::move(of_program)) {
    pipe_.assign(pipe.get());
    (void)pipe.release();
  }

  void set_name(std::string name) { name_ = std::move(name); }
  void wait() {
    pipe_.async_wait(stream_descriptor::wait_read, [self = shared_from_this()](error_code error) {
      if (error) return;
      const uint64_t before = self->left_out_;
      const size_t got = self->read_some();
      if (got == 0) return self->finish();
      // Who floods the pipe waits, so that reading costs little.
      if (got < kPiece && self->left_out_ == before) return self->wait();
      self->rest_.expires_after(kRest);
      self->rest_.async_wait([self](error_code cancelled) {
        if (!cancelled) self->wait();
      });
    });
  }
  // The process has ended: its last lines come before the line that says so.
  void finish() {
    constexpr int kMostReads = 16;  // a grandchild may hold the pipe and write on
    for (int i = 0; i < kMostReads && read_some() > 0; ++i) {
    }
    if (!line_.empty()) write();
    count();
    error_code ignored;
    pipe_.close(ignored);
    rest_.cancel();
    pause_.cancel();
  }

 private:
  // How many bytes; 0: there is nothing to be read now, or at the pipe's end.
  size_t read_some() {
    if (!pipe_.is_open()) return 0;
    std::array<char, kPiece> bytes;
    ssize_t got = 0;
    do got = ::read(pipe_.native_handle(), bytes.data(), bytes.size());
    while (got < 0 && errno == EINTR);
    if (got <= 0) return 0;
    std::string_view text(bytes.data(), static_cast<size_t>(got));
    while (!text.empty()) {
      const size_t end = text.find('\n');
      const std::string_view piece = text.substr(0, end);
      const size_t room = LoggedLauncher::kMostLine - line_.size();
      line_ += piece.substr(0, room);
      text.remove_prefix(std::min(text.size(), piece.size() + 1));
      if (end != std::string_view::npos && !line_.empty()) write();
    }
    return static_cast<size_t>(got);
  }
  void write() {
    const auto [level, text] = log::from_process(line_);
    if (log::enabled(level)) {
      if (own_.take() && of_program_->take()) {
        log::write_as(name_, level, text);
      } else if (left_out_++ == 0) {
        pause_.expires_after(kPause);
        pause_.async_wait([weak = weak_from_this()](error_code error) {
          const auto self = weak.lock();
          if (self && !error) self->count();
        });
      }
    }
    line_.clear();
  }
  void count() {
    if (left_out_ == 0) return;
    log::write_as(name_, log::Level::kWarn,
                  fmt::format("event=lines-left-out lines={}", left_out_));
    left_out_ = 0;
  }

  stream_descriptor pipe_;
  boost::asio::steady_timer rest_, pause_;
  std::string name_;
  std::string line_;  // that is not whole yet
  LineBudget own_{LoggedLauncher::kOfProcess};
  const std::shared_ptr<LineBudget> of_program_;
  uint64_t left_out_ = 0;
};

class LoggedProcess final : public LaunchedProcess {
 public:
  LoggedProcess(std::unique_ptr<LaunchedProcess> process, std::shared_ptr<ProcessLines> lines)
      : process_(std::move(process)), lines_(std::move(lines)) {}
  int id() const override { return process_->id(); }
  void signal(int number) override { process_->signal(number); }
  int end_descriptor() const override { return process_->end_descriptor(); }
  std::optional<ProcessEnd> end() override {
    auto end = process_->end();
    if (end) lines_->finish();
    return end;
  }
  void set_name(const std::string& name) override { lines_->set_name(name); }

 private:
  const std::unique_ptr<LaunchedProcess> process_;
  const std::shared_ptr<ProcessLines> lines_;
};

}  // namespace

Result<std::unique_ptr<LaunchedProcess>> LoggedLauncher::start(const ProcessSetup& setup) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return system_error("pipe", errno);
  Fd ours(ends[0]);
  const Fd theirs(ends[1]);
  ProcessSetup logged = setup;
  logged.environment.emplace_back(log::kForDaemonVariable, "1");
  logged.descriptors.emplace_back(theirs.get(), STDOUT_FILENO);
  logged.descriptors.emplace_back(theirs.get(), STDERR_FILENO);
  auto& of_program = programs_[setup.program];
  if (!of_program) of_program = std::make_shared<LineBudget>(kOfProgram);
  const std::string name =
      setup.name.empty() ? std::filesystem::path(setup.program).filename().string() : setup.name;
  std::shared_ptr<ProcessLines> lines;
  try {
    lines = std::make_shared<ProcessLines>(loop_, std::move(ours), name, of_program);
  } catch (const std::exception& error) {
    return Status(StatusCode::kSystem,
                  fmt::format("the output of {} cannot be watched: {}", name, error.what()));
  }
  FARGPU_ASSIGN_OR_RETURN(auto process, launcher_.start(logged));
  lines->wait();
  return std::unique_ptr<LaunchedProcess>(
      std::make_unique<LoggedProcess>(std::move(process), std::move(lines)));
}

}  // namespace fargpu::server
