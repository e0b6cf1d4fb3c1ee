#include "server/core/output_capture.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "common/base/log.h"
#include "common/host/memory_page.h"

namespace fargpu::server {
namespace {

// For the signal handler: set once, before it is installed.
int captured_errors = -1;
int former_stderr = -1;

// Calls only what a signal handler may.
void show_last_words(int number) {
  constexpr off_t kMost = 4096;
  char words[kMost];
  struct stat about {};
  if (::fstat(captured_errors, &about) == 0 && about.st_size > 0) {
    const ssize_t got =
        ::pread(captured_errors, words, sizeof words, std::max<off_t>(0, about.st_size - kMost));
    if (got > 0) [[maybe_unused]]
      const ssize_t written = ::write(former_stderr, words, static_cast<size_t>(got));
  }
  ::signal(number, SIG_DFL);
  ::raise(number);
}

}  // namespace

Result<OutputCapture> OutputCapture::install(int descriptor) {
  Fd file(
      ::memfd_create(descriptor == STDOUT_FILENO ? "fargpu-output" : "fargpu-errors", MFD_CLOEXEC));
  // Appending, so that writers do not depend on a position that another process moves.
  if (!file.valid() || ::fcntl(file.get(), F_SETFL, O_APPEND) != 0)
    return system_error("memfd_create", errno);
  std::fflush(nullptr);
  if (::dup2(file.get(), descriptor) < 0) return system_error("cannot replace an output", errno);
  return OutputCapture(std::move(file));
}

std::vector<std::byte> OutputCapture::take(size_t limit) {
  if (!file_.valid()) return {};
  std::fflush(stdout);
  struct stat about {};
  if (::fstat(file_.get(), &about) != 0) return {};
  const uint64_t end = static_cast<uint64_t>(about.st_size);
  if (end <= taken_) return {};
  std::string dropped;
  if (end - taken_ > kMostWaiting) {
    dropped = fmt::format("fargpu: {} bytes of output were dropped\n", end - taken_ - kMostWaiting);
    taken_ = end - kMostWaiting;
  }
  const size_t room = limit - std::min(limit, dropped.size());
  std::vector<std::byte> bytes(dropped.size() + std::min<uint64_t>(end - taken_, room));
  std::copy_n(reinterpret_cast<const std::byte*>(dropped.data()), dropped.size(), bytes.begin());
  const ssize_t got = ::pread(file_.get(), bytes.data() + dropped.size(),
                              bytes.size() - dropped.size(), static_cast<off_t>(taken_));
  bytes.resize(dropped.size() + (got > 0 ? static_cast<size_t>(got) : 0));
  taken_ += got > 0 ? static_cast<uint64_t>(got) : 0;
  // The pages that were taken go back; cutting the file instead could lose what is being written
  // meanwhile.
  ::fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
              static_cast<off_t>(page_of(taken_)));
  return bytes;
}

Result<CapturedOutput> capture_output() {
  CapturedOutput output;
  FARGPU_ASSIGN_OR_RETURN(output.out, OutputCapture::install(STDOUT_FILENO));
  // Above the numbers that a worker is started with.
  constexpr int kFirst = 64;
  former_stderr = ::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, kFirst);
  if (former_stderr < 0) return system_error("cannot keep stderr for the log", errno);
  log::to_descriptor(former_stderr);
  FARGPU_ASSIGN_OR_RETURN(output.err, OutputCapture::install(STDERR_FILENO));
  captured_errors = output.err.descriptor();
  ::signal(SIGABRT, show_last_words);
  return output;
}

}  // namespace fargpu::server
