// Asynchronous copies of pinned and registered memory happen in the order of their stream: what a
// host function, another copy or a released stream did before is seen, what comes behind sees the
// copy. Nobody waits in between but for the end of it all.
#include <atomic>
#include <thread>

#include "tests/orderings/check.h"

namespace {

constexpr size_t kWords = 300 << 10;  // more than one frame's worth for small copies
constexpr size_t kBytes = kWords * sizeof(unsigned);

std::atomic<bool> released;
std::atomic<unsigned> failures;

void CUDA_CB wait_for_release(void*) {
  while (!released) usleep(200);
}

bool holds(const unsigned* words, unsigned value, size_t count = kWords) {
  for (size_t i = 0; i < count; ++i) {
    if (words[i] != value) return false;
  }
  return true;
}

void fill(unsigned* words, unsigned value) {
  for (size_t i = 0; i < kWords; ++i) words[i] = value;
}

struct Expectation {
  unsigned* words;
  unsigned value;
};

void CUDA_CB expect_words(void* data) {
  const auto* expected = static_cast<const Expectation*>(data);
  if (!holds(expected->words, expected->value)) ++failures;
}

void CUDA_CB fill_words(void* data) {
  const auto* wanted = static_cast<const Expectation*>(data);
  fill(wanted->words, wanted->value);
}

struct Memory {
  unsigned *a, *b;
  CUdeviceptr x, y;
};

CUstream first, second;

void to_host(unsigned* host, CUdeviceptr device, CUstream stream) {
  CU(cuMemcpyDtoHAsync(host, device, kBytes, stream));
}
void to_device(CUdeviceptr device, const unsigned* host, CUstream stream) {
  CU(cuMemcpyHtoDAsync(device, host, kBytes, stream));
}

void host_functions_see_and_are_seen(const Memory& m) {
  step("a host function behind a copy to the host sees its bytes");
  fill(m.a, 0);
  CU(cuMemsetD32Async(m.x, 11, kWords, first));
  Expectation seen{m.a, 11};
  to_host(m.a, m.x, first);
  CU(cuLaunchHostFunc(first, expect_words, &seen));
  CU(cuStreamSynchronize(first));
  HOLDS(failures == 0);
  step("a copy behind a host function takes what the function wrote");
  Expectation wanted{m.a, 12};
  CU(cuLaunchHostFunc(first, fill_words, &wanted));
  to_device(m.x, m.a, first);
  to_host(m.b, m.x, first);
  CU(cuStreamSynchronize(first));
  HOLDS(holds(m.b, 12));
}

void copies_follow_each_other(const Memory& m) {
  step("a copy to the device takes what the copy to the host before it brought");
  fill(m.a, 1);
  fill(m.b, 2);
  CU(cuMemsetD32Async(m.x, 21, kWords, first));
  CU(cuMemsetD32Async(m.y, 22, kWords, first));
  released = false;
  CU(cuLaunchHostFunc(first, wait_for_release, nullptr));
  to_host(m.a, m.x, first);
  to_device(m.y, m.a, first);
  to_host(m.b, m.y, first);
  HOLDS(m.a[0] == 1 && m.b[kWords - 1] == 2);  // the stream is held
  released = true;
  CU(cuStreamSynchronize(first));
  HOLDS(holds(m.a, 21) && holds(m.b, 21));
  step("without anything that holds the stream");
  for (unsigned round = 0; round < 20; ++round) {
    CU(cuMemsetD32Async(m.x, 100 + round, kWords, first));
    to_host(m.a, m.x, first);
    to_device(m.y, m.a, first);
    to_host(m.b, m.y, first);
    CU(cuStreamSynchronize(first));
    HOLDS(holds(m.b, 100 + round));
  }
  step("a copy to the host does not change what an earlier copy takes");
  fill(m.a, 31);
  CU(cuMemsetD32Async(m.x, 32, kWords, first));
  released = false;
  CU(cuLaunchHostFunc(first, wait_for_release, nullptr));
  to_device(m.y, m.a, first);
  to_host(m.a, m.x, first);
  released = true;
  to_host(m.b, m.y, first);
  CU(cuStreamSynchronize(first));
  HOLDS(holds(m.a, 32) && holds(m.b, 31));
}

void events_order_streams(const Memory& m) {
  step("an event behind a copy orders another stream's host function behind it");
  for (unsigned round = 0; round < 10; ++round) {
    Expectation seen{m.a, 200 + round};
    const CUevent event = make_event();
    CU(cuMemsetD32Async(m.x, 200 + round, kWords, first));
    to_host(m.a, m.x, first);
    CU(cuEventRecord(event, first));
    CU(cuStreamWaitEvent(second, event, 0));
    CU(cuLaunchHostFunc(second, expect_words, &seen));
    CU(cuStreamSynchronize(second));
    HOLDS(failures == 0);
    CU(cuEventDestroy(event));
  }
  step("who asks for an event until it is done sees the bytes");
  for (unsigned round = 0; round < 10; ++round) {
    const CUevent event = make_event();
    CU(cuMemsetD32Async(m.x, 300 + round, kWords, first));
    to_host(m.a, m.x, first);
    CU(cuEventRecord(event, first));
    CUresult result = CUDA_ERROR_NOT_READY;
    while (result == CUDA_ERROR_NOT_READY) result = cuEventQuery(event);
    CU(result);
    HOLDS(holds(m.a, 300 + round));
    CU(cuEventDestroy(event));
  }
  step("who asks for the stream until it is done sees the bytes");
  for (unsigned round = 0; round < 10; ++round) {
    CU(cuMemsetD32Async(m.x, 400 + round, kWords, first));
    to_host(m.a, m.x, first);
    CUresult result = CUDA_ERROR_NOT_READY;
    while (result == CUDA_ERROR_NOT_READY) result = cuStreamQuery(first);
    CU(result);
    HOLDS(holds(m.a, 400 + round));
  }
  step("a synchronous copy behind an event sees the bytes of another stream's copy");
  for (unsigned round = 0; round < 10; ++round) {
    unsigned word = 0;
    const CUevent event = make_event();
    CU(cuMemsetD32Async(m.x, 500 + round, kWords, first));
    to_host(m.a, m.x, first);
    CU(cuEventRecord(event, first));
    CU(cuStreamWaitEvent(second, event, 0));
    CU(cuMemcpyDtoHAsync(&word, m.x, sizeof word, second));  // pageable: returns with the word
    HOLDS(word == 500 + round);
    HOLDS(holds(m.a, 500 + round));
    CU(cuEventDestroy(event));
  }
}

// A thread that makes no calls sees the bytes arrive, in stream order.
void memory_is_watched(const Memory& m) {
  step("who only looks at memory sees copies arrive in their order");
  volatile unsigned* flag = nullptr;
  void* pinned = nullptr;
  CU(cuMemHostAlloc(&pinned, 4096, 0));
  flag = static_cast<volatile unsigned*>(pinned);
  for (unsigned round = 0; round < 20; ++round) {
    *flag = 0;
    CU(cuMemsetD32Async(m.x, 600 + round, kWords, first));
    CU(cuMemsetD32Async(m.y, 600 + round, 1, first));
    to_host(m.a, m.x, first);
    CU(cuMemcpyDtoHAsync(pinned, m.y, sizeof(unsigned), first));
    while (*flag != 600 + round) std::this_thread::yield();
    std::atomic_thread_fence(std::memory_order_acquire);
    HOLDS(holds(m.a, 600 + round));
  }
  CU(cuMemFreeHost(pinned));
}

// Streams that wait for each other's copies, and one that is held all the time.
void streams_cross(const Memory& m) {
  step("a stream that is held holds up no other");
  const CUstream held = make_stream();
  released = false;
  CU(cuLaunchHostFunc(held, wait_for_release, nullptr));
  CU(cuMemcpyDtoHAsync(m.b, m.y, kBytes, held));
  for (unsigned round = 0; round < 5; ++round) {
    CU(cuMemsetD32Async(m.x, 700 + round, kWords, first));
    to_host(m.a, m.x, first);
    to_device(m.x, m.a, first);
    const CUevent event = make_event();
    CU(cuEventRecord(event, first));
    CU(cuStreamWaitEvent(second, event, 0));
    CU(cuMemsetD32Async(m.x, 800 + round, kWords, second));
    to_host(m.a, m.x, second);
    CU(cuEventRecord(event, second));
    CU(cuStreamWaitEvent(first, event, 0));
    CU(cuStreamSynchronize(first));
    HOLDS(holds(m.a, 800 + round));
    CU(cuEventDestroy(event));
  }
  released = true;
  CU(cuStreamSynchronize(held));
  step("copies of a stream that is destroyed happen all the same");
  released = false;
  CU(cuMemsetD32Async(m.x, 900, kWords, first));
  CU(cuStreamSynchronize(first));
  CU(cuLaunchHostFunc(held, wait_for_release, nullptr));
  to_host(m.a, m.x, held);
  CU(cuStreamDestroy(held));
  const CUstream another = make_stream();
  to_host(m.b, m.x, another);
  CU(cuStreamSynchronize(another));
  HOLDS(holds(m.b, 900));
  released = true;
  while (!holds(m.a, 900)) usleep(200);
  CU(cuStreamDestroy(another));
}

}  // namespace

int main() {
  begin(120);
  use_primary();
  first = make_stream();
  second = make_stream();
  Memory pinned{}, own{};
  for (Memory* memory : {&pinned, &own}) {
    memory->x = device_memory(kBytes);
    memory->y = device_memory(kBytes);
  }
  CU(cuMemHostAlloc(reinterpret_cast<void**>(&pinned.a), kBytes, 0));
  CU(cuMemHostAlloc(reinterpret_cast<void**>(&pinned.b), kBytes, 0));
  own.a = static_cast<unsigned*>(std::aligned_alloc(4096, 2 * kBytes));
  own.b = own.a + kWords;
  CU(cuMemHostRegister(own.a, 2 * kBytes, 0));
  for (const Memory& memory : {pinned, own}) {
    host_functions_see_and_are_seen(memory);
    copies_follow_each_other(memory);
    events_order_streams(memory);
    memory_is_watched(memory);
    streams_cross(memory);
  }
  right();
}
