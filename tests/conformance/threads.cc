// Many threads at once: each with its own stack of contexts; what one submits after another's call
// returned sees its effects.
#include <atomic>
#include <thread>

#include "tests/conformance/conformance.h"
#include "tests/conformance/kernels.h"

int main() {
  CUcontext context = make_context();
  CUmodule module;
  CUfunction fill, bump;
  NEED(cuModuleLoadData(&module, kKernels));
  NEED(cuModuleGetFunction(&fill, module, "fill"));
  NEED(cuModuleGetFunction(&bump, module, "bump"));

  // A thread starts without a current context.
  CUresult fresh = CUDA_SUCCESS, after = CUDA_SUCCESS;
  std::thread([&] {
    fresh = cuCtxSynchronize();
    cuCtxSetCurrent(context);
    after = cuCtxSynchronize();
  }).join();
  std::printf("fresh thread: %s, then %s\n", error_name(fresh), error_name(after));

  // Each thread works in its own stream and memory.
  const int threads = 8, rounds = 40, n = 512;
  std::atomic<long> wrong{0};
  std::vector<std::thread> workers;
  for (int t = 0; t < threads; ++t) {
    workers.emplace_back([&, t] {
      NEED(cuCtxSetCurrent(context));
      CUstream stream;
      CUdeviceptr p;
      NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
      NEED(cuMemAlloc(&p, n * 4));
      std::vector<unsigned> out(n);
      for (unsigned r = 0; r < rounds; ++r) {
        unsigned value = 1000u * static_cast<unsigned>(t) + r, size = n;
        void* arguments[] = {&p, &value, &size};
        NEED(cuLaunchKernel(fill, 4, 1, 1, 128, 1, 1, 0, stream, arguments, nullptr));
        NEED(cuLaunchKernel(bump, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr));
        NEED(cuMemcpyDtoHAsync(out.data(), p, n * 4, stream));
        NEED(cuStreamSynchronize(stream));
        for (unsigned got : out) wrong += got != value;
      }
      NEED(cuMemFree(p));
      NEED(cuStreamDestroy(stream));
    });
  }
  for (std::thread& worker : workers) worker.join();
  VALUE(wrong.load());
  CUdeviceptr counter;
  unsigned value = 0;
  NEED(cuModuleGetGlobal(&counter, nullptr, module, "counter"));
  NEED(cuMemcpyDtoH(&value, counter, 4));
  VALUE(value);

  // A baton goes round: each thread submits to one stream after the one before has returned;
  // nothing waits for the device in between.
  CUdeviceptr p;
  NEED(cuMemAlloc(&p, 4));
  CUstream shared;
  NEED(cuStreamCreate(&shared, CU_STREAM_NON_BLOCKING));
  std::atomic<int> turn{0};
  std::atomic<long> out_of_order{0};
  workers.clear();
  for (int t = 0; t < 4; ++t) {
    workers.emplace_back([&, t] {
      NEED(cuCtxSetCurrent(context));
      for (int r = 0; r < 25; ++r) {
        const int mine = r * 4 + t;
        while (turn.load() != mine) std::this_thread::yield();
        if (mine % 10 == 9) {  // read back what the thread before wrote
          unsigned seen = 0;
          NEED(cuMemcpyDtoHAsync(&seen, p, 4, shared));
          NEED(cuStreamSynchronize(shared));
          out_of_order += seen != static_cast<unsigned>(mine);
        }
        unsigned next = static_cast<unsigned>(mine) + 1, one = 1;
        void* arguments[] = {&p, &next, &one};
        NEED(cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, shared, arguments, nullptr));
        turn.store(mine + 1);
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  NEED(cuStreamSynchronize(shared));
  NEED(cuMemcpyDtoH(&value, p, 4));
  VALUE(value);
  VALUE(out_of_order.load());
  return 0;
}
