#include "client/program/private_daemon.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "client/program/companion.h"
#include "client/program/layout.h"
#include "common/base/fd.h"

namespace fargpu::cli {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

namespace {

constexpr auto kStartLimit = 30s;
constexpr auto kStopLimit = 5s;

Status write_private_file(const std::string& path, const std::string& text) {
  Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file.valid()) return system_error("cannot create " + path, errno);
  if (::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return system_error("cannot write " + path, errno);
  }
  return {};
}

Result<std::string> random_token() {
  unsigned char bytes[16];
  if (::getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes))
    return system_error("getrandom", errno);
  static const char* digits = "0123456789abcdef";
  std::string token;
  for (unsigned char byte : bytes) {
    token += digits[byte >> 4];
    token += digits[byte & 15];
  }
  return token;
}

}  // namespace

PrivateDaemon::PrivateDaemon(PrivateDaemon&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      folder_(std::exchange(other.folder_, {})),
      server_(std::move(other.server_)),
      token_file_(std::move(other.token_file_)) {}

Result<PrivateDaemon> PrivateDaemon::start(unsigned gpus) {
  FARGPU_ASSIGN_OR_RETURN(std::string program, daemon_path());
  PrivateDaemon daemon;
  const char* const variable = std::getenv("TMPDIR");
  const bool is_named = variable != nullptr && *variable != '\0';
  const std::string place = is_named ? variable : "/tmp";
  std::string pattern = (fs::path(place) / "fargpu-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) {
    return system_error(
        "cannot make a folder in " + place + (is_named ? ", which TMPDIR names" : ""), errno);
  }
  daemon.folder_ = pattern;
  daemon.token_file_ = pattern + "/token";
  const std::string port_file = pattern + "/port";
  FARGPU_ASSIGN_OR_RETURN(std::string token, random_token());
  FARGPU_RETURN_IF_ERROR(write_private_file(daemon.token_file_, token + "\n"));

  const std::string gpu_count = std::to_string(gpus);
  const pid_t parent = ::getpid();
  daemon.pid_ = ::fork();
  if (daemon.pid_ < 0) return system_error("fork", errno);
  if (daemon.pid_ == 0) {
    ::setpgid(0, 0);  // Ctrl-C is for the application; the daemon ends after it
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent) ::_exit(1);
    ::setenv("FARGPU_LOG", "warn", 0);
    // chooses among the program's GPUs, which are all of this daemon's
    ::unsetenv("CUDA_VISIBLE_DEVICES");
    int null = ::open("/dev/null", O_RDWR);
    ::dup2(null, 0);
    ::dup2(2, 1);  // stdout belongs to the application
    ::execl(program.c_str(), "fargpud", "--driver", "sim", "--sim-gpus", gpu_count.c_str(),
            "--listen", "127.0.0.1:0", "--port-file", port_file.c_str(), "--token-file",
            daemon.token_file_.c_str(), "--drain", "2s", static_cast<char*>(nullptr));
    ::_exit(127);
  }
  FARGPU_RETURN_IF_ERROR(daemon.wait_until_listening(port_file));
  return daemon;
}

Status PrivateDaemon::wait_until_listening(const std::string& port_file) {
  const auto limit = std::chrono::steady_clock::now() + kStartLimit;
  while (std::chrono::steady_clock::now() < limit) {
    int port = 0;
    if (std::ifstream(port_file) >> port && port > 0) {
      server_ = "127.0.0.1:" + std::to_string(port);
      return {};
    }
    if (::waitpid(pid_, nullptr, WNOHANG) == pid_) {
      pid_ = -1;
      return Status(StatusCode::kNotFound,
                    "the private daemon ended before it listened; its reason is above");
    }
    std::this_thread::sleep_for(2ms);
  }
  return Status(StatusCode::kTimeout, "the private daemon does not listen after 30 s");
}

PrivateDaemon::~PrivateDaemon() {
  if (pid_ > 0) {
    ::kill(pid_, SIGTERM);
    const auto limit = std::chrono::steady_clock::now() + kStopLimit;
    while (::waitpid(pid_, nullptr, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > limit) {
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
        break;
      }
      std::this_thread::sleep_for(1ms);
    }
  }
  if (!folder_.empty()) {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
}

Result<PrivateServer> start_private_server(unsigned gpus) {
  FARGPU_ASSIGN_OR_RETURN(const std::string answer, start_companion([gpus](Companion& companion) {
                            companion.leave_the_program("fargpu-sim", Companion::Stderr::kKeep);
                            auto daemon = PrivateDaemon::start(gpus);
                            ::signal(SIGPIPE, SIG_IGN);
                            if (!daemon) return companion.answer(daemon.status());
                            companion.answer(daemon->server() + "\n" + daemon->token_file());
                            companion.wait_for_the_program();
                          }));
  const size_t end = answer.find('\n');
  return PrivateServer{answer.substr(0, end), answer.substr(end + 1)};
}

}  // namespace fargpu::cli
