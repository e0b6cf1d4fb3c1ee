// sim: FARGPU_SIM_LOCKED_WAITS=1
// Memory, of the device and of the host, is freed or unregistered, and contexts are destroyed,
// while copies that use it wait in a stream: behind a function of the application, behind a value,
// behind each other. The copies are done before the memory goes, nothing is written to it
// afterwards, and a process that was forked meanwhile has its own bytes.
#include <sys/mman.h>
#include <sys/wait.h>

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "tests/orderings/check.h"

namespace {

constexpr size_t kPage = 4096;
constexpr size_t kSizes[] = {kPage, 200 << 10, 5 << 20};
constexpr size_t kMost = 5 << 20;
constexpr auto kBehindAFunction = "behind a function", kBehindAValue = "behind a value";

std::atomic<bool> released;
CUstream stream, other;
CUdeviceptr word;

void CUDA_CB wait_for_release(void*) {
  while (!released) usleep(200);
}
void CUDA_CB pause_100_us(void*) { usleep(100); }

unsigned char* new_pages(size_t bytes, void* at = nullptr) {
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | (at == nullptr ? 0 : MAP_FIXED_NOREPLACE);
  void* const memory = mmap(at, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<unsigned char*>(memory);
}

bool holds(const unsigned char* bytes, size_t count, int value) {
  for (size_t i = 0; i < count; ++i) {
    if (bytes[i] != value) return false;
  }
  return true;
}

bool device_holds(CUdeviceptr memory, size_t bytes, int value) {
  std::vector<unsigned char> there(bytes);
  CU(cuMemcpyDtoH(there.data(), memory, bytes));
  return holds(there.data(), bytes, value);
}

// Holds the stream, orders copies behind that, and makes a call that has to wait for them; the
// stream goes on 100 ms later.
void while_held(const char* behind, const std::function<void()>& copies,
                const std::function<void()>& call) {
  const bool by_value = behind == kBehindAValue;
  released = false;
  CU(cuMemsetD32(word, 0, 1));
  CU(cuCtxSynchronize());
  if (by_value) {
    CU(cuStreamWaitValue32(stream, word, 1, CU_STREAM_WAIT_VALUE_GEQ));
  } else {
    CU(cuLaunchHostFunc(stream, wait_for_release, nullptr));
  }
  copies();
  // A value is written before the call: a driver that waits may let no other call in.
  std::thread helper([&] {
    usleep(100'000);
    released = true;
  });
  if (by_value) CU(cuStreamWriteValue32(other, word, 1, 0));
  call();
  helper.join();
  CU(cuStreamSynchronize(stream));
}

// Pinned or registered memory.
struct Host {
  const char* name;
  bool registered;
  unsigned char* memory = nullptr;

  void make(size_t bytes) {
    if (registered) {
      memory = new_pages(bytes);
      CU(cuMemHostRegister(memory, bytes, 0));
    } else {
      CU(cuMemHostAlloc(reinterpret_cast<void**>(&memory), bytes, 0));
    }
  }
  void end() { CU(registered ? cuMemHostUnregister(memory) : cuMemFreeHost(memory)); }
};

void host_memory_goes(Host host, const char* behind) {
  const CUdeviceptr device = device_memory(kMost);
  for (const size_t bytes : kSizes) {
    step("host memory goes while a copy to it waits");
    host.make(bytes);
    std::memset(host.memory, 1, bytes);
    CU(cuMemsetD8(device, 2, kMost));
    unsigned char *after = nullptr, *again = nullptr;
    while_held(
        behind, [&] { CU(cuMemcpyDtoHAsync(host.memory, device, bytes, stream)); },
        [&] {
          host.end();
          if (host.registered) return;
          // Whoever gets the memory or its addresses next has them alone.
          CU(cuMemHostAlloc(reinterpret_cast<void**>(&again), bytes, 0));
          std::memset(again, 7, bytes);
          if ((after = new_pages(bytes, host.memory)) != nullptr) std::memset(after, 7, bytes);
        });
    if (host.registered) {
      if (!holds(host.memory, bytes, 2))
        wrong("%s, %zu bytes: a copy to memory that was unregistered is missing", behind, bytes);
      munmap(host.memory, bytes);
    } else {
      if (!holds(again, bytes, 7) || (after != nullptr && !holds(after, bytes, 7)))
        wrong("%s, %zu bytes: a copy came to memory that was freed", behind, bytes);
      CU(cuMemFreeHost(again));
      if (after != nullptr) munmap(after, bytes);
    }

    step("host memory goes while a copy from it waits");
    host.make(bytes);
    std::memset(host.memory, 3, bytes);
    while_held(
        behind, [&] { CU(cuMemcpyHtoDAsync(device, host.memory, bytes, stream)); },
        [&] {
          host.end();
          if (host.registered) munmap(host.memory, bytes);
        });
    if (!device_holds(device, bytes, 3))
      wrong("%s memory, %s, %zu bytes: not what was in it before it went", host.name, behind,
            bytes);
  }
  CU(cuMemFree(device));
}

void device_memory_goes(Host host, const char* behind) {
  for (const size_t bytes : kSizes) {
    host.make(bytes);
    std::memset(host.memory, 1, bytes);
    step("device memory goes while copies from and to it wait");
    const CUdeviceptr from = device_memory(bytes), through = device_memory(bytes);
    CU(cuMemsetD8(from, 4, bytes));
    CU(cuMemsetD8(through, 5, bytes));
    unsigned char* const second = host.memory;
    while_held(
        behind,
        [&] {
          CU(cuMemcpyDtoHAsync(host.memory, from, bytes, stream));
          CU(cuMemcpyHtoDAsync(through, host.memory, bytes, stream));
          CU(cuMemsetD8Async(from, 6, bytes, stream));
          CU(cuMemcpyDtoHAsync(second, through, bytes, stream));
        },
        [&] {
          CU(cuMemFree(from));
          CU(cuMemFree(through));
        });
    if (!holds(host.memory, bytes, 4))
      wrong("%s memory, %s, %zu bytes: %d, not 4", host.name, behind, bytes, host.memory[0]);
    host.end();
    if (host.registered) munmap(host.memory, bytes);
  }
}

// The child shares what it would share natively, makes no CUDA calls, and disturbs nobody.
void a_process_is_forked(Host host) {
  step("a process is forked while copies wait");
  const CUdeviceptr device = device_memory(kMost);
  CU(cuMemsetD8(device, 8, kMost));
  host.make(2 * kMost);
  unsigned char* const second = host.memory + kMost;
  std::memset(host.memory, 1, kMost);
  std::memset(second, 9, kMost);
  unsigned char* const own = new_pages(kPage);
  own[0] = 1;
  while_held(
      kBehindAFunction,
      [&] {
        CU(cuMemcpyDtoHAsync(host.memory, device, kMost, stream));
        CU(cuMemcpyHtoDAsync(device, second, kMost, stream));
      },
      [&] {
        const pid_t child = fork();
        HOLDS(child >= 0);
        if (child == 0) {
          alarm(20);
          usleep(200'000);  // the copies end meanwhile
          // Registered memory is its own.
          _exit(own[0] == 1 && (!host.registered || holds(host.memory, kMost, 1)) ? 0 : 3);
        }
        own[0] = 2;
        CU(cuStreamSynchronize(stream));
        HOLDS(holds(host.memory, kMost, 8) && device_holds(device, kMost, 9));
        int status = 0;
        HOLDS(waitpid(child, &status, 0) == child);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
          wrong("%s memory: the child ended with status 0x%x", host.name, status);
      });
  host.end();
  if (host.registered) munmap(host.memory, 2 * kMost);
  CU(cuMemFree(device));
}

// Rounds of copies behind a short function of the application, with memory that is new each time.
void copy_and_free(Host host, size_t bytes, int value, bool wait) {
  const CUstream mine = make_stream();
  const CUdeviceptr device = device_memory(bytes);
  host.make(bytes);
  std::memset(host.memory, value, bytes);
  CU(cuLaunchHostFunc(mine, pause_100_us, nullptr));
  CU(cuMemcpyHtoDAsync(device, host.memory, bytes, mine));
  CU(cuMemsetD8Async(device, static_cast<unsigned char>(value + 1), 1, mine));
  CU(cuLaunchHostFunc(mine, pause_100_us, nullptr));
  CU(cuMemcpyDtoHAsync(host.memory, device, bytes, mine));
  if (wait) {
    CU(cuStreamSynchronize(mine));
    HOLDS(host.memory[0] == value + 1 && holds(host.memory + 1, bytes - 1, value));
    CU(cuMemFree(device));
    host.end();
  } else {
    CU(cuMemFree(device));
    host.end();
    CU(cuStreamSynchronize(mine));
    if (host.registered)
      HOLDS(host.memory[0] == value + 1 && holds(host.memory + 1, bytes - 1, value));
  }
  if (host.registered) munmap(host.memory, bytes);
  CU(cuStreamDestroy(mine));
}

void all_at_once(CUcontext context) {
  step("copies behind functions, and frees, in several threads and contexts");
  const double end = now_seconds() + 5;
  std::atomic<int> rounds[4] = {};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] {
      CU(cuCtxSetCurrent(context));
      while (now_seconds() < end) {
        const int round = rounds[i]++;
        const Host host{"", (round + i) % 2 == 0};
        copy_and_free(host, kSizes[round % 2], 10 + round % 200, round % 3 != 0);
      }
    });
  }
  threads.emplace_back([&] {
    while (now_seconds() < end) {
      const int round = rounds[3]++;
      const CUcontext mine = new_context();
      copy_and_free({"", round % 2 == 0}, kSizes[0], 10 + round % 200, round % 3 != 0);
      CU(cuCtxDestroy(mine));
    }
  });
  for (std::thread& thread : threads) thread.join();
  for (const auto& made : rounds) {
    if (made == 0) wrong("a thread came to nothing");
  }
}

}  // namespace

int main() {
  begin(60);
  const CUcontext context = use_primary();
  stream = make_stream(), other = make_stream();
  word = device_memory(64);
  const Host both[] = {{"registered", true}, {"pinned", false}};
  for (const Host& host : both) {
    for (const char* const behind : {kBehindAFunction, kBehindAValue}) {
      host_memory_goes(host, behind);
      device_memory_goes(host, behind);
    }
    a_process_is_forked(host);
  }
  all_at_once(context);
  right();
}
