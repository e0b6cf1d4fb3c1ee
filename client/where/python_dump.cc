#include "client/where/python_dump.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <mutex>
#include <new>
#include <optional>

#include "common/base/descriptors.h"

namespace fargpu::client::where {
namespace {

constexpr size_t kLongestDump = 64 << 10;

enum class Stage { kNotAsked, kAsked, kReady };

struct Dumper {
  int signal = 0;
  void (*handler)(int) = nullptr;
  int descriptor = -1;  // faulthandler writes to it; never closed: it knows the number
  struct stat file {};  // so that it is known again
};

std::atomic<Stage> stage{Stage::kNotAsked};
// Written before `stage` becomes kReady (release), read after (acquire).
Dumper dumper;
// For one dump at a time. Constructed again in a forked child, where its owner may not exist.
alignas(std::mutex) constinit std::mutex mutex;

bool is_same_file(const struct stat& one, int descriptor) {
  struct stat now {};
  return ::fstat(descriptor, &now) == 0 && now.st_dev == one.st_dev && now.st_ino == one.st_ino;
}

void (*handler_of(int signal))(int) {
  struct sigaction now {};
  if (::sigaction(signal, nullptr, &now) != 0 || (now.sa_flags & SA_SIGINFO) != 0) return nullptr;
  return now.sa_handler;
}

// Python's own from before a fork is taken again.
std::optional<int> signal_to_use() {
  if (dumper.handler != nullptr && handler_of(dumper.signal) == dumper.handler)
    return dumper.signal;
  for (int signal = SIGRTMAX; signal > SIGRTMIN; --signal) {
    if (handler_of(signal) == SIG_DFL) return signal;
  }
  return std::nullopt;
}

// faulthandler.register(signal, descriptor, all_threads=False).
bool registered(const PythonApi& api, int signal, int descriptor) {
  PyObject* const module = api.import("faulthandler");
  PyObject* const done = module == nullptr
                             ? nullptr
                             : api.call_method(module, "register", "iii", signal, descriptor, 0);
  if (done != nullptr) api.decrease(done);
  if (module != nullptr) api.decrease(module);
  if (done == nullptr) api.clear_error();
  return done != nullptr;
}

// By Python's first thread, with the GIL. What fails leaves the places native.
int set_up(void*) {
  if (stage.load(std::memory_order_relaxed) != Stage::kAsked) return 0;  // asked before a fork, too
  const PythonApi* const api = python_api();
  const std::optional<int> signal = signal_to_use();
  if (api == nullptr || !signal) return 0;
  Dumper made;
  made.signal = *signal;
  made.descriptor =
      descriptors::make([] { return ::memfd_create("fargpu-places", MFD_CLOEXEC); }).release();
  if (made.descriptor < 0 || ::fstat(made.descriptor, &made.file) != 0) return 0;
  if (!registered(*api, made.signal, made.descriptor)) {
    ::close(made.descriptor);
    return 0;
  }
  if (is_same_file(dumper.file, dumper.descriptor)) ::close(dumper.descriptor);  // the parent's
  made.handler = handler_of(made.signal);
  dumper = made;
  stage.store(Stage::kReady, std::memory_order_release);
  return 0;
}

// Whether all is as it was made: a program may close descriptors that are not its own and use their
// numbers, and Python takes its handler away when it ends.
bool is_usable() {
  return dumper.handler != nullptr && handler_of(dumper.signal) == dumper.handler &&
         is_same_file(dumper.file, dumper.descriptor);
}

std::optional<std::string> dump() {
  const std::lock_guard lock(mutex);
  if (!is_usable() || ::ftruncate(dumper.descriptor, 0) != 0 ||
      ::lseek(dumper.descriptor, 0, SEEK_SET) != 0)
    return std::nullopt;
  dumper.handler(dumper.signal);
  std::string text(kLongestDump, '\0');
  const ssize_t length = ::pread(dumper.descriptor, text.data(), text.size(), 0);
  text.resize(length > 0 ? static_cast<size_t>(length) : 0);
  return text;
}

}  // namespace

void ask_for_dumps(const PythonApi& api) {
  Stage before = Stage::kNotAsked;
  if (!stage.compare_exchange_strong(before, Stage::kAsked)) return;
  if (api.add_pending_call(set_up, nullptr) != 0) stage.store(Stage::kNotAsked);  // no room now
}

std::optional<std::vector<Frame>> dumped_frames() {
  if (stage.load(std::memory_order_acquire) != Stage::kReady) return std::nullopt;
  const int saved = errno;
  const std::optional<std::string> text = dump();
  errno = saved;
  if (!text) return std::nullopt;
  return parse_traceback(*text);
}

// The file is the parent's, too: the child makes its own.
void forget_dumps_after_fork() {
  new (&mutex) std::mutex;
  stage.store(Stage::kNotAsked);
}

}  // namespace fargpu::client::where
