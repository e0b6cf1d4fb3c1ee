// Captures whose stream goes away: with its thread, with its context, in a forked child. Nothing of
// them stands in the way of what comes later.
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "tests/conformance/conformance.h"

namespace {

CUdeviceptr memory;

// What a capture that still stands would refuse.
void show_that_nothing_is_captured() {
  CUdeviceptr more = 0;
  SHOW(cuMemAlloc(&more, 256));
  SHOW(cuMemsetD32(memory, 1, 16));
  SHOW(cuCtxSynchronize());
  SHOW(cuMemFree(more));
}

void with_a_thread(CUcontext context) {
  std::printf("-- with its thread\n");
  std::thread([context] {
    NEED(cuCtxSetCurrent(context));
    SHOW(cuStreamBeginCapture(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_GLOBAL));
    SHOW(cuMemsetD32Async(memory, 2, 16, CU_STREAM_PER_THREAD));
  }).join();
}

void with_a_context(CUcontext first) {
  std::printf("-- with its context\n");
  make_context();
  CUstream stream = nullptr;
  CUdeviceptr other = 0;
  NEED(cuMemAlloc(&other, 256));
  NEED(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
  CUcontext second = nullptr;
  NEED(cuCtxGetCurrent(&second));
  SHOW(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  SHOW(cuMemsetD32Async(other, 2, 16, stream));
  SHOW(cuCtxDestroy(second));
  NEED(cuCtxSetCurrent(first));
  show_that_nothing_is_captured();
}

void in_a_child() {
  std::printf("-- in a forked child\n");
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  SHOW(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  SHOW(cuMemsetD32Async(memory, 3, 16, stream));
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    // What a driver answers in such a child is its own affair.
    (void)cuMemsetD32Async(memory, 4, 16, stream);
    (void)cuStreamEndCapture(stream, &graph);
    _exit(0);
  }
  int ended = 0;
  waitpid(child, &ended, 0);
  SHOW(cuMemsetD32Async(memory, 5, 16, stream));
  SHOW(cuStreamEndCapture(stream, &graph));
  size_t nodes = 0;
  SHOW(cuGraphGetNodes(graph, nullptr, &nodes));
  VALUE(nodes);
  show_that_nothing_is_captured();
}

}  // namespace

int main() {
  const CUcontext context = make_context();
  NEED(cuMemAlloc(&memory, 256));
  with_a_context(context);
  in_a_child();
  with_a_thread(context);
  return 0;
}
