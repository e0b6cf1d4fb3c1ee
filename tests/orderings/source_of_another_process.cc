// A copy to the device reads registered memory that another process writes: behind an event of that
// process, in the order of the streams of both. Asynchronous copies, and synchronous ones.
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <string>

#include "tests/orderings/check.h"

namespace {

constexpr size_t kWords = 64u << 10, kBytes = kWords * sizeof(unsigned);

// What both processes have.
struct Common {
  CUipcEventHandle event;
  volatile unsigned recorded, ordered, done;
  alignas(4096) unsigned words[kWords];
};
Common* common;

void await(const volatile unsigned& word, unsigned value) {
  while (__atomic_load_n(&word, __ATOMIC_ACQUIRE) != value) usleep(100);
}
void set(volatile unsigned& word, unsigned value) {
  __atomic_store_n(&word, value, __ATOMIC_RELEASE);
}

constexpr unsigned kRounds = 4;

void CUDA_CB fill(void* round) {
  const auto value = static_cast<unsigned>(reinterpret_cast<uintptr_t>(round));
  // Of a synchronous copy nobody can tell when it has been ordered.
  if (value % 2 != 0) await(common->ordered, value);
  usleep(100'000);
  for (unsigned& word : common->words) word = value;
}

void write() {
  use_primary();
  CUevent event;
  CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS));
  CU(cuIpcGetEventHandle(&common->event, event));
  const CUstream stream = make_stream();
  for (unsigned round = 1; round <= kRounds; ++round) {
    CU(cuLaunchHostFunc(stream, fill, reinterpret_cast<void*>(uintptr_t{round})));
    CU(cuEventRecord(event, stream));
    set(common->recorded, round);
    await(common->done, round);
  }
  CU(cuStreamSynchronize(stream));
}

void read() {
  use_primary();
  const CUstream stream = make_stream();
  const CUdeviceptr device = device_memory(kBytes);
  CU(cuMemHostRegister(common->words, kBytes, 0));
  await(common->recorded, 1);
  CUevent event;
  CU(cuIpcOpenEventHandle(&event, common->event));
  for (unsigned round = 1; round <= kRounds; ++round) {
    await(common->recorded, round);
    if (round % 2 != 0) {
      step("an asynchronous copy");
      CU(cuStreamWaitEvent(stream, event, 0));
      CU(cuMemcpyHtoDAsync(device, common->words, kBytes, stream));
      set(common->ordered, round);
      CU(cuStreamSynchronize(stream));
    } else {
      step("a synchronous copy");
      CU(cuStreamWaitEvent(nullptr, event, 0));
      CU(cuMemcpyHtoD(device, common->words, kBytes));
    }
    unsigned last = 0;
    CU(cuMemcpyDtoH(&last, device + kBytes - sizeof last, sizeof last));
    HOLDS(last == round);
    set(common->done, round);
  }
}

}  // namespace

int main(int argc, char** argv) {
  begin();
  const int file = argc > 1 ? std::atoi(argv[1]) : memfd_create("common", 0);
  if (argc == 1) HOLDS(ftruncate(file, sizeof(Common)) == 0);
  void* const memory = mmap(nullptr, sizeof(Common), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  HOLDS(memory != MAP_FAILED);
  common = static_cast<Common*>(memory);
  if (argc > 1) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    write();
    _exit(0);
  }
  const pid_t other = fork();
  if (other == 0) {
    const std::string name = std::to_string(file);
    execl("/proc/self/exe", "writer", name.c_str(), static_cast<char*>(nullptr));
    _exit(1);
  }
  read();
  int status = 1;
  HOLDS(waitpid(other, &status, 0) == other && status == 0);
  right();
}
