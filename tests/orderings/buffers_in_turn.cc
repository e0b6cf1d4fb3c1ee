// Two buffers in turn, as programs stream data: a host function fills one, a copy takes it to the
// device, a kernel works on it in a second stream, a copy brings the result back in a third, and a
// host function checks it. Events order the streams; the program waits once, at the end. Every
// submission returns although thousands of microseconds of work are ahead of it, or waits for
// nothing but that work.
#include <atomic>
#include <vector>

#include "tests/orderings/check.h"

namespace {

constexpr int kChunks = 60;

struct Pipeline;
struct Chunk {
  Pipeline* pipeline;
  unsigned number;
};

struct Pipeline {
  unsigned* sources[2];
  unsigned* results[2];
  unsigned words;
  std::vector<Chunk> chunks;
  std::atomic<unsigned> wrong{0}, checked{0};
};

void CUDA_CB fill(void* given) {
  const Chunk& chunk = *static_cast<Chunk*>(given);
  unsigned* const source = chunk.pipeline->sources[chunk.number % 2];
  for (unsigned i = 0; i < chunk.pipeline->words; ++i) source[i] = i * 7 + chunk.number;
}

void CUDA_CB check(void* given) {
  const Chunk& chunk = *static_cast<Chunk*>(given);
  Pipeline& pipeline = *chunk.pipeline;
  unsigned* const result = pipeline.results[chunk.number % 2];
  unsigned wrong = pipeline.checked++ == chunk.number ? 0 : 1;
  for (unsigned i = 0; i < pipeline.words; ++i) {
    wrong += result[i] == (i * 7 + chunk.number) * 3 + 5 ? 0 : 1;
    result[i] = 0;
  }
  pipeline.wrong += wrong;
}

void run(const char* name, Pipeline& pipeline, CUfunction scale) {
  step(name);
  const size_t bytes = pipeline.words * sizeof(unsigned);
  pipeline.chunks.clear();
  pipeline.checked = 0;
  for (unsigned k = 0; k < kChunks; ++k) pipeline.chunks.push_back({&pipeline, k});
  const CUstream up = make_stream(), work = make_stream(), down = make_stream();
  CUevent uploaded[2], worked[2], downloaded[2];
  CUdeviceptr in[2], out[2];
  for (int i = 0; i < 2; ++i) {
    uploaded[i] = make_event(), worked[i] = make_event(), downloaded[i] = make_event();
    in[i] = device_memory(bytes), out[i] = device_memory(bytes);
  }
  for (int k = 0; k < kChunks; ++k) {
    const int b = k % 2;
    if (k >= 2) CU(cuStreamWaitEvent(up, worked[b], 0));
    CU(cuLaunchHostFunc(up, fill, &pipeline.chunks[k]));
    CU(cuMemcpyHtoDAsync(in[b], pipeline.sources[b], bytes, up));
    CU(cuEventRecord(uploaded[b], up));
    CU(cuStreamWaitEvent(work, uploaded[b], 0));
    if (k >= 2) CU(cuStreamWaitEvent(work, downloaded[b], 0));
    unsigned factor = 3, add = 5;
    void* values[] = {&out[b], &in[b], &pipeline.words, &factor, &add};
    CU(cuLaunchKernel(scale, 1, 1, 1, 256, 1, 1, 0, work, values, nullptr));
    CU(cuEventRecord(worked[b], work));
    CU(cuStreamWaitEvent(down, worked[b], 0));
    CU(cuMemcpyDtoHAsync(pipeline.results[b], out[b], bytes, down));
    CU(cuEventRecord(downloaded[b], down));
    CU(cuLaunchHostFunc(down, check, &pipeline.chunks[k]));
  }
  CU(cuStreamSynchronize(down));
  if (pipeline.wrong != 0 || pipeline.checked != kChunks) {
    wrong("%s memory, %u words: %u wrong in %u chunks", name, pipeline.words, pipeline.wrong.load(),
          pipeline.checked.load());
  }
  for (int i = 0; i < 2; ++i) {
    for (const CUevent event : {uploaded[i], worked[i], downloaded[i]}) CU(cuEventDestroy(event));
    CU(cuMemFree(in[i]));
    CU(cuMemFree(out[i]));
  }
  for (const CUstream stream : {up, work, down}) CU(cuStreamDestroy(stream));
}

}  // namespace

int main() {
  begin();
  use_primary();
  const CUfunction scale = kernel_of(load_kernels(), "scale_words");
  for (const unsigned words : {100u, 30'000u, 300'000u}) {
    Pipeline pinned{}, registered{};
    pinned.words = registered.words = words;
    std::vector<unsigned> memory(4 * words);
    CU(cuMemHostRegister(memory.data(), memory.size() * sizeof(unsigned), 0));
    for (int i = 0; i < 2; ++i) {
      void *source, *result;
      CU(cuMemHostAlloc(&source, words * sizeof(unsigned), 0));
      CU(cuMemHostAlloc(&result, words * sizeof(unsigned), CU_MEMHOSTALLOC_PORTABLE));
      pinned.sources[i] = static_cast<unsigned*>(source);
      pinned.results[i] = static_cast<unsigned*>(result);
      registered.sources[i] = memory.data() + i * words;
      registered.results[i] = memory.data() + (2 + i) * words;
    }
    run("pinned", pinned, scale);
    run("registered", registered, scale);
    CU(cuMemHostUnregister(memory.data()));
  }
  right();
}
