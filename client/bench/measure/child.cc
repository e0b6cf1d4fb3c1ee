#include "client/bench/measure/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "client/bench/figures/timing.h"
#include "client/bench/measure/driver.h"

namespace fargpu::bench {

namespace {

std::string answer_of(const std::function<Answer()>& work) try {
  return to_line(to_json(work()));
} catch (const Failed& failure) {
  return to_line(Json{{"failed", failure.what()}});
}

void write_all(int descriptor, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t wrote = ::write(descriptor, text.data() + done, text.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return;
    done += static_cast<size_t>(wrote);
  }
}

}  // namespace

Child::Child(const std::function<Answer()>& work) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw Failed(system_error("pipe2", errno).message());
  Fd reader(ends[0]), writer(ends[1]);
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ < 0) throw Failed(system_error("fork", errno).message());
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    write_all(writer.get(), answer_of(work));
    ::_exit(0);
  }
  pipe_ = std::move(reader);
}

Child::Child(Child&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), pipe_(std::move(other.pipe_)) {}

Child::~Child() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

Answer Child::wait(double seconds) {
  const Clock::time_point end = after(seconds);
  std::string text;
  char part[65536];
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
    pollfd wait{pipe_.get(), POLLIN, 0};
    const int ready = ::poll(&wait, 1, static_cast<int>(std::max<int64_t>(0, left.count())));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) throw Failed("a process that was started for it did not answer in time");
    const ssize_t got = ::read(pipe_.get(), part, sizeof part);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    text.append(part, static_cast<size_t>(got));
  }
  ::waitpid(std::exchange(pid_, -1), nullptr, 0);
  const auto json = parse_json(text, "a process that was started for it");
  if (!json.ok()) throw Failed("a process that was started for it died");
  if (const std::string why = text_or(*json, "failed", ""); !why.empty()) throw Failed(why);
  auto answer = read_answer(*json);
  if (!answer.ok()) throw Failed(answer.status().message());
  return std::move(*answer);
}

}  // namespace fargpu::bench
