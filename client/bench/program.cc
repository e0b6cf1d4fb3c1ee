#include "client/bench/program.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace fargpu::bench {

namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kLongestLine = 64 << 20;
constexpr auto kEndLimit = std::chrono::seconds(5);

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> array;
  for (const std::string& text : texts) array.push_back(const_cast<char*>(text.c_str()));
  array.push_back(nullptr);
  return array;
}

// Ends the child if it has not ended by `limit`.
void reap(pid_t pid, Deadline limit) {
  while (::waitpid(pid, nullptr, WNOHANG) == 0) {
    if (Clock::now() > limit) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
      return;
    }
    ::usleep(1000);
  }
}

}  // namespace

Program::Program(Program&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      input_(std::move(other.input_)),
      output_(std::move(other.output_)),
      read_(std::move(other.read_)),
      about_(std::move(other.about_)) {}

Program::~Program() {
  if (pid_ <= 0) return;
  input_.reset();
  reap(pid_, Clock::now() + kEndLimit);
}

Result<Program> Program::start(const std::vector<std::string>& command,
                               const Environment& environment, Deadline deadline) {
  // A socket, so that writing to a program that died is an error and no signal.
  int in[2], out[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, in) != 0)
    return system_error("socketpair", errno);
  Fd our_input(in[0]), its_input(in[1]);
  if (::pipe2(out, O_CLOEXEC) != 0) return system_error("pipe2", errno);
  Fd our_output(out[0]), its_output(out[1]);
  std::vector<std::string> variables;
  for (const auto& [name, value] : environment) variables.push_back(name + "=" + value);
  const std::vector<char*> arguments = pointers(command), strings = pointers(variables);

  Program program;
  const pid_t parent = ::getpid();
  program.pid_ = ::fork();
  if (program.pid_ < 0) return system_error("fork", errno);
  if (program.pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(127);
    ::dup2(its_input.get(), STDIN_FILENO);
    ::dup2(its_output.get(), STDOUT_FILENO);
    ::execve(arguments[0], arguments.data(), strings.data());
    ::_exit(127);
  }
  program.input_ = std::move(our_input);
  program.output_ = std::move(our_output);
  its_input.reset();
  its_output.reset();
  FARGPU_ASSIGN_OR_RETURN(const Json first, program.read_line(deadline));
  if (const std::string why = text_or(first, "failed", ""); !why.empty())
    return Status(StatusCode::kNotFound, why);
  program.about_ = member(first, "about");
  return program;
}

Status Program::write_line(const std::string& line) {
  const std::string text = line + "\n";
  for (size_t done = 0; done < text.size();) {
    const ssize_t wrote =
        ::send(input_.get(), text.data() + done, text.size() - done, MSG_NOSIGNAL);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return Status(StatusCode::kLost, "the measuring program died");
    done += static_cast<size_t>(wrote);
  }
  return {};
}

Result<Json> Program::read_line(Deadline deadline) {
  for (;;) {
    if (const size_t end = read_.find('\n'); end != std::string::npos) {
      const std::string line = read_.substr(0, end);
      read_.erase(0, end + 1);
      return parse_json(line, "the measuring program");
    }
    if (read_.size() > kLongestLine)
      return Status(StatusCode::kProtocol, "the measuring program's line does not end");
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd wait{output_.get(), POLLIN, 0};
    const int ready = ::poll(&wait, 1, static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30)));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) {
      ::kill(pid_, SIGKILL);
      return Status(StatusCode::kTimeout, "the measuring program does not answer");
    }
    char part[65536];
    const ssize_t got = ::read(output_.get(), part, sizeof part);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return Status(StatusCode::kLost, "the measuring program died");
    read_.append(part, static_cast<size_t>(got));
  }
}

Result<Answer> Program::ask(const Question& question, Deadline deadline) {
  FARGPU_RETURN_IF_ERROR(write_line(to_line(to_json(question))));
  FARGPU_ASSIGN_OR_RETURN(const Json json, read_line(deadline));
  if (const std::string why = text_or(json, "failed", ""); !why.empty())
    return Status(StatusCode::kDriver, why);
  return read_answer(json);
}

}  // namespace fargpu::bench
