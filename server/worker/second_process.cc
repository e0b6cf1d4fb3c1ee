#include "server/worker/second_process.h"

#include <cuda.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "generated/server/driver_table.h"
#include "server/handover/worker_options.h"
#include "server/worker/driver_library.h"

namespace fargpu::server {
namespace {

constexpr int kPatience = 20000;  // milliseconds, for cuInit and a context on each GPU

bool make_context_on_each(const DriverTable& driver) {
  int count = 0;
  if (driver.cuDeviceGetCount(&count) != CUDA_SUCCESS) return false;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    CUdevice device = 0;
    CUcontext context = nullptr;
    if (driver.cuDeviceGet(&device, ordinal) != CUDA_SUCCESS ||
        driver.cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS)
      return false;
  }
  return true;
}

// The probe says of a driver what is to be said; this process is silent.
[[noreturn]] void be_second(int socket, const std::string& path) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::close(kControlFd);
  if (const int nothing = ::open("/dev/null", O_WRONLY | O_CLOEXEC); nothing >= 0) {
    ::dup2(nothing, STDOUT_FILENO);
    ::dup2(nothing, STDERR_FILENO);
  }
  const auto driver = DriverLibrary::open(path);
  char byte = 0;
  if (driver.ok() && ::read(socket, &byte, 1) == 1 && make_context_on_each(driver->table()) &&
      ::write(socket, &byte, 1) == 1)
    (void)!::read(socket, &byte, 1);  // until the probe has seen them
  ::_exit(0);
}

}  // namespace

SecondProcess::SecondProcess(const std::string& driver_path) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return;
  socket_.reset(ends[0]);
  const Fd other(ends[1]);
  child_ = ::fork();
  if (child_ != 0) return;
  socket_.reset();
  be_second(other.get(), driver_path);
}

SecondProcess::~SecondProcess() {
  if (child_ <= 0) return;
  ::kill(child_, SIGKILL);
  ::waitpid(child_, nullptr, 0);
}

bool SecondProcess::make_contexts() {
  char byte = 0;
  if (child_ <= 0 || ::send(socket_.get(), &byte, 1, MSG_NOSIGNAL) != 1) return false;
  pollfd entry{socket_.get(), POLLIN, 0};
  return ::poll(&entry, 1, kPatience) == 1 && ::read(socket_.get(), &byte, 1) == 1;
}

}  // namespace fargpu::server
