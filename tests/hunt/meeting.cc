#include "tests/hunt/meeting.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

extern char** environ;

namespace fargpu::hunt {
namespace {

[[noreturn]] void give_up(const char* what) {
  std::perror(what);
  std::exit(2);
}

SharedPage* map(int descriptor) {
  void* const memory =
      ::mmap(nullptr, sizeof(SharedPage), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (memory == MAP_FAILED) give_up("mmap");
  return static_cast<SharedPage*>(memory);
}

}  // namespace

Meeting::Meeting(int page, int socket) : page_(map(page)), socket_(socket), child_(0) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::close(page);
}

Meeting Meeting::start() {
  const int page = ::memfd_create("hunt", 0);
  int sockets[2];
  if (page < 0 || ::ftruncate(page, sizeof(SharedPage)) != 0) give_up("memfd_create");
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0) give_up("socketpair");
  ::fcntl(sockets[0], F_SETFD, FD_CLOEXEC);
  const std::string number = std::to_string(page), second = std::to_string(sockets[1]);
  std::string program = "hunt", option = "--second";
  std::string descriptors = number + "," + second;
  char* arguments[] = {program.data(), option.data(), descriptors.data(), nullptr};
  pid_t child = 0;
  if (::posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, arguments, environ) != 0)
    give_up("posix_spawn");
  Meeting meeting(map(page), sockets[0], child);
  ::close(page);
  ::close(sockets[1]);
  return meeting;
}

Meeting::Meeting(Meeting&& other) noexcept
    : page_(std::exchange(other.page_, nullptr)),
      socket_(std::exchange(other.socket_, -1)),
      child_(std::exchange(other.child_, -1)) {}

Meeting::~Meeting() {
  if (page_ == nullptr) return;
  ::close(socket_);  // the second process reads that there is nothing more
  if (child_ > 0 && failed()) ::kill(child_, SIGKILL);  // it may hang
  if (child_ > 0) ::waitpid(child_, nullptr, 0);
  ::munmap(page_, sizeof(SharedPage));
}

void Meeting::begin(uint64_t seed, uint32_t mistake, const std::vector<size_t>& without) {
  // It is done with the page of the program before.
  char ready = 0;
  const bool is_ready = ::recv(socket_, &ready, 1, MSG_WAITALL) == 1;
  std::memset(static_cast<void*>(page_), 0, sizeof(SharedPage));
  const Request request{seed, mistake, static_cast<uint32_t>(without.size())};
  const size_t bytes = without.size() * sizeof without[0];
  const bool sent = is_ready &&
                    ::send(socket_, &request, sizeof request, MSG_NOSIGNAL) == sizeof request &&
                    (bytes == 0 || ::send(socket_, without.data(), bytes, MSG_NOSIGNAL) ==
                                       static_cast<ssize_t>(bytes));
  if (!sent) fail("the second process has ended");
}

bool Meeting::next(uint64_t& seed, uint32_t& mistake, std::vector<size_t>& without) const {
  Request request{};
  if (::send(socket_, "r", 1, MSG_NOSIGNAL) != 1) return false;
  if (::recv(socket_, &request, sizeof request, MSG_WAITALL) != sizeof request) return false;
  without.resize(request.without);
  const size_t bytes = without.size() * sizeof without[0];
  if (bytes > 0 &&
      ::recv(socket_, without.data(), bytes, MSG_WAITALL) != static_cast<ssize_t>(bytes))
    return false;
  seed = request.seed;
  mistake = request.mistake;
  return true;
}

void Meeting::meet(int count) const {
  ++page_->arrived;
  for (int spins = 0; page_->arrived < 2 * count && !failed(); ++spins) {
    if (spins % 16 == 0) look_after_other();
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

void Meeting::fail(const std::string& why) const {
  if (page_->failed) return;
  std::snprintf(page_->failure.data(), page_->failure.size(), "%s", why.c_str());
  page_->failed = true;
}

void Meeting::look_after_other() const {
  if (child_ <= 0) return;
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(child_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
      info.si_pid == child_)
    fail("the second process has ended, by code or signal " + std::to_string(info.si_status));
}

void Meeting::await_end() {
  if (child_ > 0) ::waitpid(child_, nullptr, 0);
  child_ = -1;
}

}  // namespace fargpu::hunt
