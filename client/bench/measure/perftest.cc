#include "client/bench/measure/perftest.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <vector>

#include "client/bench/figures/perftest_report.h"
#include "client/bench/figures/timing.h"
#include "client/bench/measure/driver.h"
#include "common/base/fd.h"

namespace fargpu::bench {

namespace {

constexpr const char* kLatency = "ib_write_lat";
constexpr const char* kBandwidth = "ib_write_bw";
constexpr size_t kTypicalColumn = 4;    // of ib_write_lat: half a round trip, us
constexpr size_t kBandwidthColumn = 3;  // of ib_write_bw: average, MiB/s
constexpr useconds_t kServerStart = 300'000;
constexpr auto kLimit = std::chrono::seconds(30);
constexpr uint64_t kMostBytes = 1 << 30;  // of one message

bool is_in_path(const std::string& program) {
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin");
  for (std::string folder; std::getline(folders, folder, ':');)
    if (::access((std::filesystem::path(folder) / program).c_str(), X_OK) == 0) return true;
  return false;
}

// A program whose output is kept; killed with this object, or after kLimit.
class Running {
 public:
  explicit Running(const std::vector<std::string>& command) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw Failed(system_error("pipe2", errno).message());
    output_.reset(ends[0]);
    const Fd writer(ends[1]);
    std::vector<char*> arguments;
    for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ < 0) throw Failed(system_error("fork", errno).message());
    if (pid_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::alarm(static_cast<unsigned>(kLimit.count()));
    ::dup2(writer.get(), STDOUT_FILENO);
    ::dup2(writer.get(), STDERR_FILENO);
    ::execvp(arguments[0], arguments.data());
    ::_exit(127);
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  ~Running() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  // All that it prints until its end.
  std::string report() const {
    std::string text;
    char part[4096];
    for (ssize_t got; (got = ::read(output_.get(), part, sizeof part)) > 0;)
      text.append(part, static_cast<size_t>(got));
    return text;
  }

 private:
  pid_t pid_ = -1;
  Fd output_;
};

double run_both(const char* program, const PerftestPort& where, uint64_t bytes, unsigned iterations,
                size_t column) {
  std::vector<std::string> command{program,
                                   "-d",
                                   where.device,
                                   "-i",
                                   std::to_string(where.port),
                                   "-x",
                                   std::to_string(where.gid),
                                   "-F",
                                   "-s",
                                   std::to_string(bytes),
                                   "-n",
                                   std::to_string(iterations)};
  const Running server(command);
  ::usleep(kServerStart);  // it does not say when it listens
  command.push_back(where.host);
  const std::string report = Running(command).report();
  const double figure = figure_of_report(report, bytes, column);
  if (figure <= 0) throw Failed(std::string(program) + " reported no figure");
  return figure;
}

}  // namespace

void look_for_perftest() {
  for (const char* program : {kLatency, kBandwidth})
    if (!is_in_path(program))
      throw Failed(std::string(program) + " is not installed here (package perftest)");
}

Answer measure_perftest(const PerftestPort& where, const Question& question) {
  if (question.count > 1) return {{}, "perftest is run with one connection"};
  if (question.name == "to_client") return {{}, "as to_server: both ends are on this host"};
  if (question.bytes > kMostBytes) return {{}, "more than a message of perftest"};
  Histogram times;
  if (question.name == "round_trip") {
    const double half = run_both(kLatency, where, question.bytes, 1000, kTypicalColumn);
    times.add(static_cast<uint64_t>(2e3 * half));
  } else {
    // Few of large messages: a slow adapter would take minutes.
    const auto iterations =
        static_cast<unsigned>(std::clamp<uint64_t>((256 << 20) / question.bytes, 5, 1000));
    const double rate = run_both(kBandwidth, where, question.bytes, iterations, kBandwidthColumn);
    times.add(static_cast<uint64_t>(static_cast<double>(question.bytes) / rate / 1048576 * 1e9));
  }
  return one_record(question.name, times);
}

}  // namespace fargpu::bench
