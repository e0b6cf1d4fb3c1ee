// A program that does to its own process what daemons, launchers and runtimes of languages do, in
// the order of its arguments, and uses CUDA in between. It loads libcuda.so.1 itself. What went
// wrong is said on a copy of stderr, which stays open; the exit code is then 1.
//
//   load             dlopen
//   version          cuDriverGetVersion
//   init             cuInit; init=CODE expects that result
//   devices=N        cuDeviceGetCount
//   work             memory of all kinds, copies, a kernel; everything must be right
//   prints           a kernel prints ten lines
//   written          managed and mapped memory that the GPU has written and the host not touched
//   not-old          it reads as the GPU has left it, or not at all
//   fails            the same must fail with an error, and end
//   wait=MS          sleeps
//   close=DIGITS     closes these descriptors, in this order
//   write=DIGITS     writes text to each of them, many times
//   closed=DIGITS    they must be closed
//   range=N,M        closes N to M by close_range(2), M may be -1; loop=N,M by close(2)
//   files=N          opens N files, which must stay empty; they are looked at at the end
//   limit=N          the soft limit of open files; limit-is=N expects it; hard-limit=N sets both
//   apart            descriptors that the program did not open are none of 0 to 1023
//   clearenv, set=NAME=VALUE, unset=NAME, chdir=PATH, chroot=PATH, user=ID
//   signals          our threads take none
//   small=KIB        the next operation runs on a thread with so much stack
#include <cuda.h>
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <set>
#include <string>
#include <vector>

namespace {

int voice = -1;
std::set<int> own_files;  // that this program opened, and what it began with
std::vector<int> empty_files;
void* library = nullptr;

bool wrong(const char* format, ...) {
  char line[512];
  va_list arguments;
  va_start(arguments, format);
  int length = std::min(std::vsnprintf(line, sizeof line - 1, format, arguments),
                        static_cast<int>(sizeof line) - 2);
  va_end(arguments);
  line[length++] = '\n';
  if (::write(voice, line, static_cast<size_t>(length)) < 0) _exit(3);
  return false;
}

template <typename Function>
Function* function(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(library, name));
}
#define CUDA_AS(call, symbol) function<decltype(call)>(symbol)
#define CUDA(call) CUDA_AS(call, #call)

const char* kKernel = R"(.version 7.0
.target sm_75
.address_size 64
.visible .entry add_one(.param .u64 at, .param .u32 count)
{
  .reg .pred %p; .reg .b32 %r<5>; .reg .b64 %a<3>;
  ld.param.u64 %a1, [at];
  ld.param.u32 %r1, [count];
  mov.u32 %r2, %tid.x;
  mov.u32 %r3, %ctaid.x;
  mad.lo.s32 %r2, %r3, 64, %r2;
  setp.ge.u32 %p, %r2, %r1;
  @%p bra done;
  mul.wide.u32 %a2, %r2, 4;
  add.s64 %a1, %a1, %a2;
  ld.global.u32 %r4, [%a1];
  add.s32 %r4, %r4, 1;
  st.global.u32 [%a1], %r4;
done:
  ret;
}
)";

// As nvcc compiles printf("line %u that a kernel has printed, longer than eight bytes\n", number).
const char* kPrinting = R"(.version 7.0
.target sm_75
.address_size 64
.extern .func (.param .b32 count) vprintf(.param .b64 format, .param .b64 values);
.global .align 1 .b8 text[60] = {108, 105, 110, 101, 32, 37, 117, 32, 116, 104, 97, 116, 32,
97, 32, 107, 101, 114, 110, 101, 108, 32, 104, 97, 115, 32, 112, 114, 105, 110, 116, 101, 100,
44, 32, 108, 111, 110, 103, 101, 114, 32, 116, 104, 97, 110, 32, 101, 105, 103, 104, 116, 32,
98, 121, 116, 101, 115, 10, 0};
.visible .entry prints(.param .u32 number)
{
  .local .align 8 .b8 values[8];
  .reg .b32 %r<3>; .reg .b64 %a<4>;
  mov.u64 %a1, values;
  ld.param.u32 %r1, [number];
  st.local.u32 [%a1], %r1;
  cvta.local.u64 %a1, %a1;
  mov.u64 %a2, text;
  cvta.global.u64 %a2, %a2;
  {
  .param .b64 format;
  st.param.b64 [format+0], %a2;
  .param .b64 list;
  st.param.b64 [list+0], %a1;
  .param .b32 printed;
  call.uni (printed), vprintf, (format, list);
  ld.param.b32 %r2, [printed+0];
  }
  ret;
}
)";

struct Gpu {
  CUmodule module = nullptr;
  CUfunction add_one = nullptr, prints = nullptr;
  unsigned *pinned = nullptr, *mapped = nullptr;
  CUdeviceptr device = 0, managed = 0;
  unsigned rounds = 0;
} gpu;
constexpr unsigned kCount = 20000;

const char* failed_call = "";
#define TRY(...)                                                             \
  do {                                                                       \
    failed_call = #__VA_ARGS__;                                              \
    if (const CUresult got = (__VA_ARGS__); got != CUDA_SUCCESS) return got; \
  } while (0)

CUresult prepare() {
  CUdevice ordinal = 0;
  CUcontext context = nullptr;
  TRY(CUDA(cuInit)(0));
  TRY(CUDA(cuDeviceGet)(&ordinal, 0));
  TRY(CUDA(cuDevicePrimaryCtxRetain)(&context, ordinal));
  TRY(CUDA(cuCtxSetCurrent)(context));
  if (gpu.module != nullptr) return CUDA_SUCCESS;
  TRY(CUDA(cuModuleLoadData)(&gpu.module, kKernel));
  TRY(CUDA(cuModuleGetFunction)(&gpu.add_one, gpu.module, "add_one"));
  TRY(CUDA_AS(cuMemAlloc, "cuMemAlloc_v2")(&gpu.device, kCount * 4));
  TRY(CUDA(cuMemAllocManaged)(&gpu.managed, kCount * 4, CU_MEM_ATTACH_GLOBAL));
  TRY(CUDA(cuMemHostAlloc)(reinterpret_cast<void**>(&gpu.pinned), kCount * 4, 0));
  TRY(CUDA(cuMemHostAlloc)(reinterpret_cast<void**>(&gpu.mapped), kCount * 4,
                           CU_MEMHOSTALLOC_DEVICEMAP));
  std::fill_n(gpu.pinned, kCount, 0);
  std::fill_n(gpu.mapped, kCount, 0);
  std::fill_n(reinterpret_cast<unsigned*>(gpu.managed), kCount, 0);
  TRY(CUDA_AS(cuMemsetD8, "cuMemsetD8_v2")(gpu.device, 0, kCount * 4));
  return CUDA_SUCCESS;
}

CUresult launch(CUdeviceptr at) {
  unsigned count = kCount;
  void* parameters[] = {&at, &count};
  TRY(CUDA(cuLaunchKernel)(gpu.add_one, (kCount + 63) / 64, 1, 1, 64, 1, 1, 0, nullptr, parameters,
                           nullptr));
  return CUDA_SUCCESS;
}

// Ten lines, wherever stdout leads.
CUresult print() {
  TRY(prepare());
  if (gpu.prints == nullptr) {
    CUmodule module = nullptr;
    TRY(CUDA(cuModuleLoadData)(&module, kPrinting));
    TRY(CUDA(cuModuleGetFunction)(&gpu.prints, module, "prints"));
  }
  for (unsigned number = 0; number < 10; ++number) {
    void* parameters[] = {&number};
    TRY(CUDA(cuLaunchKernel)(gpu.prints, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr));
  }
  TRY(CUDA(cuCtxSynchronize)());
  std::fflush(stdout);
  return CUDA_SUCCESS;
}

// One more in every word of every kind of memory. `*differs`: what is not so.
CUresult use(const char** differs) {
  TRY(prepare());
  const unsigned expected = ++gpu.rounds;
  CUdeviceptr mapped = 0;
  TRY(CUDA_AS(cuMemHostGetDevicePointer, "cuMemHostGetDevicePointer_v2")(&mapped, gpu.mapped, 0));
  TRY(launch(gpu.device));
  TRY(launch(gpu.managed));
  TRY(launch(mapped));
  TRY(CUDA_AS(cuMemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2")(gpu.pinned, gpu.device, kCount * 4,
                                                         nullptr));
  TRY(CUDA(cuStreamSynchronize)(nullptr));
  const auto all = [&](const unsigned* words, const char* what) {
    for (unsigned i = 0; i < kCount; ++i)
      if (words[i] != expected) *differs = what;
  };
  all(gpu.pinned, "pinned memory");
  all(gpu.mapped, "mapped memory");
  all(reinterpret_cast<unsigned*>(gpu.managed), "managed memory");
  // Also as ordinary memory.
  std::vector<unsigned> there(kCount, expected), back(kCount);
  TRY(CUDA_AS(cuMemcpyHtoD, "cuMemcpyHtoD_v2")(gpu.device, there.data(), kCount * 4));
  TRY(CUDA_AS(cuMemcpyDtoH, "cuMemcpyDtoH_v2")(back.data(), gpu.device, kCount * 4));
  all(back.data(), "device memory");
  return CUDA_SUCCESS;
}

bool work() {
  for (int round = 0; round < 3; ++round) {
    const char* differs = nullptr;
    const CUresult got = use(&differs);
    if (got != CUDA_SUCCESS) return wrong("work: %.60s gave %d", failed_call, got);
    if (differs != nullptr) return wrong("work: %s is not what it should be", differs);
  }
  return true;
}

bool fails() {
  const char* differs = nullptr;
  const CUresult got = use(&differs);
  if (got == CUDA_SUCCESS) return wrong("fails: the calls succeed");
  return got != CUDA_ERROR_INVALID_VALUE || wrong("fails: %.60s gave %d", failed_call, got);
}

// Memory that the GPU has filled with kFilled, and that the host has only seen empty.
constexpr size_t kPageWords = 1024, kPages = 32;
constexpr unsigned kFilled = 0x5a5a5a5a;
volatile unsigned* filled[2] = {};

bool fill() {
  const auto try_all = [&]() -> CUresult {
    CUcontext context = nullptr;
    CUdevice device = 0;
    TRY(CUDA(cuInit)(0));
    TRY(CUDA(cuDeviceGet)(&device, 0));
    TRY(CUDA(cuDevicePrimaryCtxRetain)(&context, device));
    TRY(CUDA(cuCtxSetCurrent)(context));
    constexpr size_t kBytes = kPages * kPageWords * sizeof(unsigned);
    CUdeviceptr managed = 0, mapped = 0;
    void* host = nullptr;
    TRY(CUDA(cuMemAllocManaged)(&managed, kBytes, CU_MEM_ATTACH_GLOBAL));
    TRY(CUDA(cuMemHostAlloc)(&host, kBytes, CU_MEMHOSTALLOC_DEVICEMAP));
    TRY(CUDA_AS(cuMemHostGetDevicePointer, "cuMemHostGetDevicePointer_v2")(&mapped, host, 0));
    std::memset(reinterpret_cast<void*>(managed), 0, kBytes);
    std::memset(host, 0, kBytes);
    for (const CUdeviceptr each : {managed, mapped})
      TRY(CUDA_AS(cuMemsetD32, "cuMemsetD32_v2")(each, kFilled, kBytes / sizeof(unsigned)));
    TRY(CUDA(cuCtxSynchronize)());
    filled[0] = reinterpret_cast<unsigned*>(managed);
    filled[1] = static_cast<unsigned*>(host);
    return CUDA_SUCCESS;
  };
  const CUresult got = try_all();
  return got == CUDA_SUCCESS || wrong("%.60s gave %d", failed_call, got);
}

sigjmp_buf beside_a_fault;

// By a system call, or by an access, which may end in a signal.
bool read_word(const volatile unsigned* word, bool by_system, unsigned* value) {
  if (by_system) {
    int ends[2];
    if (::pipe(ends) != 0) return false;
    const bool read =
        ::write(ends[1], const_cast<unsigned*>(word), sizeof *value) == sizeof *value &&
        ::read(ends[0], value, sizeof *value) == sizeof *value;
    ::close(ends[0]);
    ::close(ends[1]);
    return read;
  }
  if (sigsetjmp(beside_a_fault, 1) != 0) return false;
  *value = *word;
  return true;
}

bool not_old() {
  for (const int number : {SIGSEGV, SIGBUS})
    ::signal(number, [](int) { siglongjmp(beside_a_fault, 1); });
  for (size_t page = 0; page < kPages; ++page) {
    for (const auto* memory : filled) {
      unsigned value = 0;
      if (read_word(memory + page * kPageWords, page % 2 == 0, &value) && value != kFilled)
        return wrong("page %zu of %s memory reads as %x", page,
                     memory == filled[0] ? "managed" : "mapped", value);
    }
  }
  return true;
}

bool write_to(const std::string& digits) {
  static const char kText[] = "some text of the program, longer than eight bytes\n";
  for (int round = 0; round < 40; ++round)
    for (const char digit : digits)
      if (::write(digit - '0', kText, sizeof kText - 1) >= 0)
        return wrong("descriptor %c took text, though it was closed", digit);
  return true;
}

bool no_signals() {
  DIR* const tasks = ::opendir("/proc/self/task");
  bool right = true;
  unsigned others = 0;
  while (const dirent* task = ::readdir(tasks)) {
    const long thread = std::atol(task->d_name);
    if (thread == 0 || thread == ::syscall(SYS_gettid)) continue;
    ++others;
    char text[4096] = {};
    const int file = ::open((std::string("/proc/self/task/") + task->d_name + "/status").c_str(),
                            O_RDONLY | O_CLOEXEC);
    if (::read(file, text, sizeof text - 1) < 0) continue;
    ::close(file);
    const char* const line = std::strstr(text, "SigBlk:");
    const unsigned long long blocked = line == nullptr ? 0 : std::strtoull(line + 7, nullptr, 16);
    for (const int signal : {SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGCHLD, SIGALRM, SIGPROF,
                             SIGPIPE, SIGWINCH, SIGRTMIN + 3})
      if ((blocked >> (signal - 1) & 1) == 0)
        right = wrong("thread %ld takes signal %d", thread, signal);
  }
  ::closedir(tasks);
  return others > 0 ? right : wrong("there is no thread to look at");
}

bool apart() {
  DIR* const open = ::opendir("/proc/self/fd");
  bool right = true;
  while (const dirent* entry = ::readdir(open)) {
    const int number = std::atoi(entry->d_name);
    if (entry->d_name[0] == '.' || number == ::dirfd(open) || number >= 1024) continue;
    char file[256] = {};
    if (::readlinkat(::dirfd(open), entry->d_name, file, sizeof file - 1) < 0) continue;
    if (own_files.count(number) == 0) right = wrong("descriptor %d is %s", number, file);
  }
  ::closedir(open);
  return right;
}

void note_own_files() {
  for (int number = 0; number < 1024; ++number)
    if (::fcntl(number, F_GETFD) >= 0) own_files.insert(number);
}

bool open_files(int count) {
  for (int i = 0; i < count; ++i) {
    char name[] = "/tmp/fargpu-surroundings-XXXXXX";
    const int file = ::mkstemp(name);
    if (file < 0) return wrong("cannot open file %d", i);
    ::unlink(name);
    own_files.insert(file);
    empty_files.push_back(file);
  }
  return true;
}

bool files_are_empty() {
  for (const int file : empty_files) {
    struct stat about {};
    if (::fstat(file, &about) != 0) return wrong("file %d of the program is closed", file);
    if (about.st_size != 0 || ::lseek(file, 0, SEEK_CUR) != 0)
      return wrong("file %d of the program has %ld bytes", file, static_cast<long>(about.st_size));
  }
  return true;
}

bool on_small_stack(size_t kilobytes, const std::function<bool()>& operation) {
  struct Task {
    const std::function<bool()>& operation;
    bool right = false;
  } task{operation};
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  ::pthread_attr_setstacksize(&attributes, kilobytes << 10);
  pthread_t thread;
  const auto body = [](void* argument) -> void* {
    auto* const given = static_cast<Task*>(argument);
    given->right = given->operation();
    return nullptr;
  };
  if (::pthread_create(&thread, &attributes, body, &task) != 0) return wrong("no thread");
  ::pthread_join(thread, nullptr);
  return task.right;
}

bool perform(const std::string& name, const std::string& value) {
  const auto numbers = [&](int& first, int& last) {
    return std::sscanf(value.c_str(), "%d,%d", &first, &last) == 2;
  };
  int first = 0, last = 0;
  if (name == "load") {
    library = ::dlopen("libcuda.so.1", RTLD_NOW);
    return library != nullptr || wrong("%s", ::dlerror());
  }
  if (name == "version") return CUDA(cuDriverGetVersion)(&first) == CUDA_SUCCESS;
  if (name == "init") {
    const CUresult got = CUDA(cuInit)(0);
    return got == std::atoi(value.c_str()) || wrong("cuInit gave %d", got);
  }
  if (name == "devices") {
    CUDA(cuDeviceGetCount)(&first);
    return first == std::atoi(value.c_str()) || wrong("there are %d devices", first);
  }
  if (name == "work") return work();
  if (name == "fails") return fails();
  if (name == "prints") {
    const CUresult got = print();
    return got == CUDA_SUCCESS || wrong("prints: %.60s gave %d", failed_call, got);
  }
  if (name == "written") return fill();
  if (name == "not-old") return not_old();
  if (name == "wait") return ::usleep(static_cast<unsigned>(std::atoi(value.c_str())) * 1000) == 0;
  if (name == "close") {
    for (const char digit : value) ::close(digit - '0'), own_files.erase(digit - '0');
    return true;
  }
  if (name == "write") return write_to(value);
  if (name == "closed") {
    for (const char digit : value)
      if (::fcntl(digit - '0', F_GETFD) >= 0) return wrong("descriptor %c is open", digit);
    return true;
  }
  if (name == "range")
    return numbers(first, last) && ::syscall(SYS_close_range, first, last, 0) == 0;
  if (name == "loop") {
    if (!numbers(first, last)) return false;
    for (int i = first; i <= last; ++i)
      if (i != voice) ::close(i);
    return true;
  }
  if (name == "files") return open_files(std::atoi(value.c_str()));
  if (name == "limit") {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = static_cast<rlim_t>(std::atol(value.c_str()));
    return ::setrlimit(RLIMIT_NOFILE, &limit) == 0;
  }
  if (name == "hard-limit") {
    const rlimit limit{static_cast<rlim_t>(std::atol(value.c_str())),
                       static_cast<rlim_t>(std::atol(value.c_str()))};
    return ::setrlimit(RLIMIT_NOFILE, &limit) == 0;
  }
  if (name == "limit-is") {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    return limit.rlim_cur == static_cast<rlim_t>(std::atol(value.c_str())) ||
           wrong("the limit of open files is %ld", static_cast<long>(limit.rlim_cur));
  }
  if (name == "apart") return apart();
  if (name == "signals") return no_signals();
  if (name == "clearenv") return ::clearenv() == 0;
  if (name == "set") {
    const size_t end = value.find('=');
    return ::setenv(value.substr(0, end).c_str(), value.substr(end + 1).c_str(), 1) == 0;
  }
  if (name == "unset") return ::unsetenv(value.c_str()) == 0;
  if (name == "chdir")
    return ::chdir(value.c_str()) == 0 || wrong("cannot change to %s", value.c_str());
  if (name == "chroot")
    return (::chroot(value.c_str()) == 0 && ::chdir("/") == 0) || wrong("cannot chroot");
  if (name == "user") {
    const auto id = static_cast<unsigned>(std::atoi(value.c_str()));
    return (::setgroups(0, nullptr) == 0 && ::setgid(id) == 0 && ::setuid(id) == 0) ||
           wrong("cannot become user %u", id);
  }
  return wrong("there is no operation '%s'", name.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  ::signal(SIGPIPE, SIG_IGN);
  ::alarm(60);
  // Out of the way of everything that is tried here.
  voice = ::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 900);
  if (voice < 0) voice = ::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 100);
  note_own_files();
  size_t small = 0;
  for (int i = 1; i < argc; ++i) {
    const std::string operation = argv[i];
    const size_t end = std::min(operation.find('='), operation.size());
    const std::string name = operation.substr(0, end);
    const std::string value = end < operation.size() ? operation.substr(end + 1) : "";
    if (name == "small") {
      small = static_cast<size_t>(std::atoi(value.c_str()));
      continue;
    }
    const auto run = [&] { return perform(name, value); };
    const bool right = small != 0 ? on_small_stack(small, run) : run();
    small = 0;
    if (!right) {
      wrong("%s", argv[i]);
      _exit(1);
    }
  }
  _exit(files_are_empty() ? 0 : 1);
}
