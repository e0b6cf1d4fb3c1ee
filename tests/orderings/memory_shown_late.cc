// Device code gets pinned or registered memory for the first time while a copy to that memory waits
// in a stream, for the very thread that launches. The launch returns, work in other streams goes
// on, and what is behind the copy, by its stream, an event or the legacy stream, sees its bytes.
#include <atomic>
#include <functional>
#include <thread>

#include "tests/orderings/check.h"

namespace {

constexpr unsigned kWords = 300 << 10;  // more than one frame's worth for small copies
constexpr size_t kBytes = kWords * sizeof(unsigned);
constexpr unsigned kOld = 1, kNew = 2;

std::atomic<bool> released;
CUstream held, other, blocking;
CUfunction store, copy_words, load_when_told;
CUdeviceptr source, seen, word;
const char* memory_name = "";

void CUDA_CB wait_for_release(void*) {
  while (!released) usleep(200);
}

// Device memory, host memory of the application, and one word more that no copy writes.
struct Host {
  bool registered = false;
  unsigned* words = nullptr;
  unsigned* beside() const { return words + kWords; }
  CUdeviceptr address() const { return reinterpret_cast<CUdeviceptr>(words); }
};

Host new_memory(bool registered) {
  Host host{registered};
  if (registered) {
    host.words = static_cast<unsigned*>(std::aligned_alloc(4096, kBytes + 4096));
    CU(cuMemHostRegister(host.words, kBytes + 4096, 0));
  } else {
    CU(cuMemHostAlloc(reinterpret_cast<void**>(&host.words), kBytes + 4096, 0));
  }
  for (unsigned i = 0; i <= kWords; ++i) host.words[i] = kOld;
  return host;
}

// Memory that device code has not had yet; a copy of kNew to it that waits in the stream; `work`,
// which must end although the copy does not; then the copy's end, and what is true after that.
void beside_a_copy(const char* name, bool registered, CUstream stream,
                   const std::function<void(const Host&)>& work,
                   const std::function<void(const Host&)>& after = {}) {
  step(name);
  const Host host = new_memory(registered);
  CU(cuMemsetD32(source, kNew, kWords));
  CU(cuMemsetD32(seen, 0, kWords));
  CU(cuMemsetD32(word, 0, 1));
  CU(cuCtxSynchronize());
  released = false;
  std::atomic<bool> done{false}, helped{false};
  CU(cuLaunchHostFunc(stream, wait_for_release, nullptr));
  CU(cuMemcpyDtoHAsync(host.words, source, kBytes, stream));
  std::thread helper([&] {
    for (int i = 0; i < 5000 && !done; ++i) usleep(1000);
    helped = !done;
    released = true;
  });
  work(host);
  done = true;
  helper.join();
  if (helped) wrong("%s memory: a call waited for the copy: %s", memory_name, name);
  CU(cuCtxSynchronize());
  for (unsigned i = 0; i < kWords; ++i) {
    if (host.words[i] != kNew)
      wrong("%s memory: %s: word %u is %u", memory_name, name, i, host.words[i]);
  }
  if (after) after(host);
  if (registered) {
    CU(cuMemHostUnregister(host.words));
    std::free(host.words);
  } else {
    CU(cuMemFreeHost(host.words));
  }
}

void copy_to_seen(CUstream stream, const Host& host) {
  CU(launch(copy_words, stream, seen, host.address(), kWords));
}

void all_was_seen(const Host&) {
  static unsigned there[kWords];
  CU(cuMemcpyDtoH(there, seen, kBytes));
  for (unsigned i = 0; i < kWords; ++i) {
    if (there[i] != kNew)
      wrong("%s memory: %s: device code read %u as word %u", memory_name, current_step, there[i],
            i);
  }
}

void store_beside(CUstream stream, const Host& host, int value) {
  CU(launch(store, stream, host.beside(), value));
}

void each_way(bool registered) {
  beside_a_copy(
      "a kernel in another stream, which ends before the copy", registered, held,
      [](const Host& host) {
        for (int value = 5; value < 8; ++value) {
          store_beside(other, host, value);
          CU(cuStreamSynchronize(other));
          HOLDS(*host.beside() == static_cast<unsigned>(value) && host.words[0] == kOld);
        }
      },
      [](const Host& host) { HOLDS(*host.beside() == 7); });
  beside_a_copy(
      "a kernel in the copy's stream", registered, held,
      [](const Host& host) { copy_to_seen(held, host); }, all_was_seen);
  beside_a_copy(
      "a kernel behind an event behind the copy", registered, held,
      [](const Host& host) {
        const CUevent copied = make_event();
        CU(cuEventRecord(copied, held));
        store_beside(other, host, 5);  // before it waits for the event
        CU(cuStreamSynchronize(other));
        CU(cuStreamWaitEvent(other, copied, 0));
        copy_to_seen(other, host);
        CU(cuEventDestroy(copied));
      },
      all_was_seen);
  beside_a_copy(
      "a kernel in the legacy stream", registered, blocking,
      [](const Host& host) {
        store_beside(other, host, 5);
        CU(cuStreamSynchronize(other));
        copy_to_seen(nullptr, host);
      },
      all_was_seen);
  beside_a_copy(
      "a kernel that finds the memory's address in device memory", registered, held,
      [](const Host& host) {
        const CUdeviceptr address = host.address();
        CU(cuMemcpyHtoDAsync(word, &address, sizeof address, other));
        CU(cuStreamSynchronize(other));
        copy_to_seen(held, host);
      },
      all_was_seen);
  beside_a_copy(
      "a copy on the device behind the copy", registered, held,
      [](const Host& host) { CU(cuMemcpyDtoDAsync(seen, host.address(), kBytes, held)); },
      all_was_seen);
  beside_a_copy(
      "rows that the driver copies as device memory", registered, held,
      [](const Host& host) {
        CUDA_MEMCPY2D rows = {};
        rows.srcMemoryType = rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
        rows.srcDevice = host.address(), rows.dstDevice = seen;
        rows.srcPitch = rows.dstPitch = rows.WidthInBytes = kBytes / 100;
        rows.Height = 100;
        CU(cuMemcpy2DAsync(&rows, held));
      },
      all_was_seen);
  beside_a_copy("a fill in another stream", registered, held, [](const Host& host) {
    CU(cuMemsetD32Async(reinterpret_cast<CUdeviceptr>(host.beside()), 9, 1, other));
    CU(cuStreamSynchronize(other));
    HOLDS(*host.beside() == 9);
  });
  beside_a_copy("a value that is written in another stream", registered, held,
                [](const Host& host) {
                  const auto at = reinterpret_cast<CUdeviceptr>(host.beside());
                  CU(cuStreamWriteValue32(other, at, 10, 0));
                  CU(cuStreamSynchronize(other));
                  HOLDS(*host.beside() == 10);
                });
  beside_a_copy("its device pointer", registered, held, [](const Host& host) {
    CUdeviceptr pointer = 0;
    CU(cuMemHostGetDevicePointer(&pointer, host.words, 0));
  });
  beside_a_copy("a stream that waits for the value that the copy brings", registered, held,
                [](const Host& host) {
                  CU(cuStreamWaitValue32(other, host.address(), kNew, CU_STREAM_WAIT_VALUE_EQ));
                  CU(cuMemsetD32Async(word, 3, 1, other));
                });
  beside_a_copy("a kernel that looks for what the copy brings", registered, held,
                [](const Host& host) {
                  host.words[0] = 0;
                  CU(launch(load_when_told, other, host.address(), word, seen));
                });
  beside_a_copy(
      "another copy to the memory, and a kernel behind both", registered, held,
      [](const Host& host) {
        store_beside(other, host, 5);
        CU(cuStreamSynchronize(other));
        CU(cuMemcpyDtoHAsync(host.words, source, kBytes / 2, held));
        copy_to_seen(held, host);
      },
      all_was_seen);
}

}  // namespace

int main() {
  begin(120);
  use_primary();
  const CUmodule module = load_kernels();
  store = kernel_of(module, "store"), copy_words = kernel_of(module, "copy_words");
  load_when_told = kernel_of(module, "load_when_told");
  held = make_stream(), other = make_stream();
  CU(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
  source = device_memory(kBytes), seen = device_memory(kBytes), word = device_memory(64);
  CU(cuMemsetD32(word, 1, 1));
  // Everything is loaded before a stream is held.
  CU(launch(store, other, word + 8, 1));
  CU(launch(copy_words, other, seen, source, 1u));
  CU(launch(load_when_told, other, word, word + 8, word));
  CU(cuCtxSynchronize());
  memory_name = "pinned";
  each_way(false);
  memory_name = "registered";
  each_way(true);
  right();
}
