// steady_work DESCRIPTOR: fills, copies and reads back, with several rounds under way at once,
// until the other end of the descriptor (a pipe) is closed. Every round has its own value, and the
// host looks at all of them: one that is lost or comes twice is noticed.
#include <cuda.h>
#include <poll.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

void must(CUresult result) {
  if (result == CUDA_SUCCESS) return;
  std::printf("error %d\n", result);
  std::exit(1);
}

bool open_yet(int descriptor) {
  pollfd entry{descriptor, POLLIN, 0};
  return ::poll(&entry, 1, 0) == 0;
}

}  // namespace

int main(int count, char** values) {
  if (count != 2) return 2;
  constexpr unsigned kRounds = 16, kWords = 1024;
  CUcontext context;
  CUstream stream;
  must(cuInit(0));
  must(cuDevicePrimaryCtxRetain(&context, 0));
  must(cuCtxSetCurrent(context));
  must(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUdeviceptr from, to;
  must(cuMemAlloc(&from, kRounds * kWords * 4));
  must(cuMemAlloc(&to, kRounds * kWords * 4));
  std::vector<unsigned> host(kRounds * kWords);
  unsigned value = 0;
  do {
    const unsigned first = value;
    for (unsigned round = 0; round < kRounds; ++round) {
      const size_t offset = size_t{round} * kWords * 4;
      must(cuMemsetD32Async(from + offset, ++value, kWords, stream));
      must(cuMemcpyDtoDAsync(to + offset, from + offset, kWords * 4, stream));
      must(
          cuMemcpyDtoHAsync(host.data() + size_t{round} * kWords, to + offset, kWords * 4, stream));
    }
    must(cuStreamSynchronize(stream));
    for (unsigned i = 0; i < kRounds * kWords; ++i) {
      if (host[i] == first + 1 + i / kWords) continue;
      std::printf("word %u is %u after %u\n", i, host[i], first);
      return 1;
    }
  } while (open_yet(std::atoi(values[1])));
  std::printf("steady_work: right\n");
  return 0;
}
