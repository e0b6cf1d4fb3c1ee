// A server of a language model over several GPUs, in the manner of vLLM: a process for each GPU
// holds a part of every layer; steps are captured as graphs for several batch sizes; partial sums
// are added by a kernel that reads the other processes' buffers and waits for their signals (IPC);
// weights and cache lie in a pool of physical memory that can sleep: its memory goes back, and on
// waking it is at the same addresses, so that the captured graphs go on; NVML says what the GPUs
// are. Integers, so that every result is exact. Build: nvcc -o serving_ranks serving_ranks.cu
//
//   serving_ranks [RANKS]   2 unless given; rank i works on device i
#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <new>
#include <string>

#include "library.h"

#define EXPECT(condition)                                                            \
  do {                                                                               \
    if (!(condition)) {                                                              \
      std::fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
      std::exit(1);                                                                  \
    }                                                                                \
  } while (0)

namespace {

constexpr unsigned kMostRanks = 8, kLayers = 3, kWidth = 256, kPositions = 32;
constexpr unsigned kSizes[] = {1, 2, 4, 8};  // batches with a graph; larger ones run without
constexpr unsigned kMostRows = 12, kRequests = 40, kSleepsAt = 20;
constexpr unsigned kBlocks = 2, kThreads = 128;
constexpr size_t kWeights = size_t{kLayers} * kWidth * kWidth;
constexpr size_t kCache = size_t{kLayers} * kMostRows * kPositions * kWidth;
constexpr size_t kPoolBytes = size_t{64} << 20;

// --- kernels ------------------------------------------------------------------------------------

__host__ __device__ unsigned embedded(unsigned token, unsigned i) {
  return token * 2654435761u + i * 40503u;
}
__host__ __device__ unsigned mixed(unsigned value) { return (value >> 7) ^ (value * 31u); }

__global__ void embed(const unsigned* tokens, unsigned* out) {
  for (unsigned i = threadIdx.x; i < kWidth; i += blockDim.x)
    out[blockIdx.x * kWidth + i] = embedded(tokens[blockIdx.x], i);
}

// What the inputs [first, first + count) of a layer contribute to its outputs.
__global__ void layer(const unsigned* weights, const unsigned* in, unsigned* out, unsigned first,
                      unsigned count) {
  for (unsigned o = threadIdx.x; o < kWidth; o += blockDim.x) {
    unsigned sum = 0;
    for (unsigned i = first; i < first + count; ++i)
      sum += in[blockIdx.x * kWidth + i] * weights[o * kWidth + i];
    out[blockIdx.x * kWidth + o] = sum;
  }
}

// In memory of each rank; the others write to `arrived`.
struct Signals {
  unsigned arrived[2][kBlocks][kMostRanks];
  unsigned epoch[kBlocks];
};
struct Peers {
  const unsigned* partial[kMostRanks];
  Signals* signals[kMostRanks];
  unsigned rank, ranks;
};

// This block of every rank has come here.
__device__ void meet(const Peers& peers, unsigned which, unsigned epoch) {
  __syncthreads();
  if (threadIdx.x < peers.ranks) {
    __threadfence_system();
    volatile unsigned* const there =
        &peers.signals[threadIdx.x]->arrived[which][blockIdx.x][peers.rank];
    *there = epoch;
    const volatile unsigned* const here =
        &peers.signals[peers.rank]->arrived[which][blockIdx.x][threadIdx.x];
    while (*here < epoch) {
    }
    __threadfence_system();
  }
  __syncthreads();
}

__global__ void add_partial_sums(Peers peers, unsigned* out, unsigned count) {
  Signals* const mine = peers.signals[peers.rank];
  const unsigned epoch = mine->epoch[blockIdx.x] + 1;
  meet(peers, 0, epoch);  // all sums are there
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += kBlocks * blockDim.x) {
    unsigned sum = 0;
    for (unsigned rank = 0; rank < peers.ranks; ++rank) {
      const volatile unsigned* const partial = peers.partial[rank];
      sum += partial[i];
    }
    out[i] = sum;
  }
  meet(peers, 1, epoch);  // nobody reads them any more
  if (threadIdx.x == 0) mine->epoch[blockIdx.x] = epoch;
}

__global__ void attend(unsigned* cache, const unsigned* in, unsigned* out,
                       const unsigned* position) {
  const unsigned now = *position % kPositions, before = (now + kPositions - 1) % kPositions;
  unsigned* const row = cache + size_t{blockIdx.x} * kPositions * kWidth;
  for (unsigned i = threadIdx.x; i < kWidth; i += blockDim.x) {
    const unsigned value = mixed(in[blockIdx.x * kWidth + i]) + row[before * kWidth + i];
    row[now * kWidth + i] = value;
    out[blockIdx.x * kWidth + i] = value;
  }
}

__global__ void sample(const unsigned* in, unsigned* tokens) {
  __shared__ unsigned total;
  if (threadIdx.x == 0) total = 0;
  __syncthreads();
  unsigned sum = 0;
  for (unsigned i = threadIdx.x; i < kWidth; i += blockDim.x) sum += in[blockIdx.x * kWidth + i];
  atomicAdd(&total, sum);
  __syncthreads();
  if (threadIdx.x == 0) tokens[blockIdx.x] = total;
}

// --- the same on the host -----------------------------------------------------------------------

class Reference {
 public:
  explicit Reference(const std::vector<unsigned>& weights) : weights_(weights), cache_(kCache) {}
  void forget() { std::fill(cache_.begin(), cache_.end(), 0); }
  std::vector<unsigned> step(const std::vector<unsigned>& tokens, unsigned position) {
    std::vector<unsigned> sampled;
    const unsigned now = position % kPositions, before = (now + kPositions - 1) % kPositions;
    for (size_t row = 0; row < tokens.size(); ++row) {
      std::array<unsigned, kWidth> x, y;
      for (unsigned i = 0; i < kWidth; ++i) x[i] = embedded(tokens[row], i);
      for (unsigned l = 0; l < kLayers; ++l) {
        unsigned* const cache = &cache_[(l * kMostRows + row) * kPositions * kWidth];
        for (unsigned o = 0; o < kWidth; ++o) {
          unsigned sum = 0;
          for (unsigned i = 0; i < kWidth; ++i)
            sum += x[i] * weights_[(l * kWidth + o) * kWidth + i];
          y[o] = mixed(sum) + cache[before * kWidth + o];
          cache[now * kWidth + o] = y[o];
        }
        x = y;
      }
      unsigned total = 0;
      for (const unsigned value : x) total += value;
      sampled.push_back(total);
    }
    return sampled;
  }

 private:
  const std::vector<unsigned>& weights_;
  std::vector<unsigned> cache_;
};

// --- a pool that sleeps -------------------------------------------------------------------------

template <typename Function>
Function* driver_function(const char* name) {
  void* found = nullptr;
#if CUDART_VERSION >= 12000
  cudaDriverEntryPointQueryResult result;
#endif
#if CUDART_VERSION >= 12050
  CHECK(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result));
#elif CUDART_VERSION >= 12000
  CHECK(cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &result));
#else
  CHECK(cudaGetDriverEntryPoint(name, &found, cudaEnableDefault));
#endif
  EXPECT(found != nullptr);
  return reinterpret_cast<Function*>(found);
}
#define DRIVER(name) driver_function<decltype(name)>(#name)

class Pool {
 public:
  explicit Pool(int device) : device_(device) {
    CHECK(DRIVER(cuMemAddressReserve)(&address_, kPoolBytes, 0, 0, 0));
  }
  unsigned* at(size_t offset) const { return reinterpret_cast<unsigned*>(address_ + offset); }
  void wake() {
    CUmemAllocationProp wanted{};
    wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    wanted.location.id = device_;
    size_t granularity = 0;
    CHECK(DRIVER(cuMemGetAllocationGranularity)(&granularity, &wanted,
                                                CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    EXPECT(granularity != 0 && kPoolBytes % granularity == 0);
    CHECK(DRIVER(cuMemCreate)(&memory_, kPoolBytes, &wanted, 0));
    CHECK(DRIVER(cuMemMap)(address_, kPoolBytes, 0, memory_, 0));
    const CUmemAccessDesc access{wanted.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CHECK(DRIVER(cuMemSetAccess)(address_, kPoolBytes, &access, 1));
  }
  void sleep() {
    CHECK(cudaDeviceSynchronize());
    CHECK(DRIVER(cuMemUnmap)(address_, kPoolBytes));
    CHECK(DRIVER(cuMemRelease)(memory_));
  }

 private:
  const int device_;
  CUdeviceptr address_ = 0;
  CUmemGenericAllocationHandle memory_ = 0;
};

// --- what NVML says -----------------------------------------------------------------------------

class Nvml {
 public:
  Nvml() : library_(::dlopen("libnvidia-ml.so.1", RTLD_NOW)) {
    EXPECT(library_ != nullptr);
    EXPECT(find<int()>("nvmlInit_v2")() == 0);
  }
  void* device(int ordinal) const {
    cudaDeviceProp properties;
    CHECK(cudaGetDeviceProperties(&properties, ordinal));
    std::string text = "GPU-";
    for (size_t i = 0; i < sizeof properties.uuid.bytes; ++i) {
      char digits[3];
      std::snprintf(digits, sizeof digits, "%02x",
                    static_cast<unsigned char>(properties.uuid.bytes[i]));
      text += digits;
      if (i == 3 || i == 5 || i == 7 || i == 9) text += '-';
    }
    void* found = nullptr;
    EXPECT(find<int(const char*, void**)>("nvmlDeviceGetHandleByUUID")(text.c_str(), &found) == 0);
    return found;
  }
  bool can_read(void* device, void* peer) const {
    int status = -1;  // 0: it can
    EXPECT(find<int(void*, void*, int, int*)>("nvmlDeviceGetP2PStatus")(device, peer, 0, &status) ==
           0);
    return status == 0;
  }
  unsigned long long used(void* device) const {
    unsigned long long total_free_used[3] = {};
    EXPECT(find<int(void*, void*)>("nvmlDeviceGetMemoryInfo")(device, total_free_used) == 0);
    return total_free_used[2];
  }

 private:
  template <typename Function>
  Function* find(const char* name) const {
    void* const found = ::dlsym(library_, name);
    EXPECT(found != nullptr);
    return reinterpret_cast<Function*>(found);
  }
  void* const library_;
};

// --- a rank -------------------------------------------------------------------------------------

// Memory that all processes have from the beginning.
struct Board {
  pthread_barrier_t barrier;
  struct {
    cudaIpcMemHandle_t memory;
    size_t offset;  // of what it is about in the allocation
  } ranks[kMostRanks];
  double seconds;
  unsigned total;
};

class Rank {
 public:
  Rank(Board& board, unsigned rank, unsigned ranks)
      : board_(board), rank_(rank), ranks_(ranks), pool_(static_cast<int>(rank)) {
    pool_.wake();
    weights_ = pool_.at(0);
    cache_ = pool_.at(kPoolBytes / 2);
    CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    CHECK(cudaEventCreateWithFlags(&done_, cudaEventDisableTiming));
    for (unsigned** const buffer : {&in_, &out_})
      CHECK(cudaMalloc(buffer, kMostRows * kWidth * sizeof(unsigned)));
    CHECK(cudaMalloc(&tokens_, (kMostRows + 1) * sizeof(unsigned)));
    CHECK(cudaMallocHost(&host_tokens_, (kMostRows + 1) * sizeof(unsigned)));
    connect();
  }

  void load(const std::vector<unsigned>& weights) {
    CHECK(cudaMemcpyAsync(weights_, weights.data(), kWeights * sizeof(unsigned),
                          cudaMemcpyHostToDevice, stream_));
    forget();
  }
  void forget() { CHECK(cudaMemsetAsync(cache_, 0, kCache * sizeof(unsigned), stream_)); }

  void capture() {
    for (const unsigned rows : kSizes) {
      cudaGraph_t graph;
      CHECK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
      work(rows);
      CHECK(cudaStreamEndCapture(stream_, &graph));
      CHECK(cudaGraphInstantiateWithFlags(&graphs_[rows], graph, 0));
      CHECK(cudaGraphDestroy(graph));
    }
  }

  // As many rows come back as the batch has in the end.
  std::vector<unsigned> step(std::vector<unsigned> tokens, unsigned position) {
    const auto fitting = graphs_.lower_bound(static_cast<unsigned>(tokens.size()));
    const auto rows =
        fitting == graphs_.end() ? static_cast<unsigned>(tokens.size()) : fitting->first;
    tokens.resize(rows);
    std::copy(tokens.begin(), tokens.end(), host_tokens_);
    host_tokens_[kMostRows] = position;
    CHECK(cudaMemcpyAsync(tokens_, host_tokens_, (kMostRows + 1) * sizeof(unsigned),
                          cudaMemcpyHostToDevice, stream_));
    if (fitting == graphs_.end()) {
      work(rows);
    } else {
      CHECK(cudaGraphLaunch(fitting->second, stream_));
    }
    CHECK(cudaMemcpyAsync(host_tokens_, tokens_, rows * sizeof(unsigned), cudaMemcpyDeviceToHost,
                          stream_));
    CHECK(cudaEventRecord(done_, stream_));
    CHECK(cudaEventSynchronize(done_));
    return {host_tokens_, host_tokens_ + rows};
  }

  // The weights are kept in pinned memory meanwhile; what was cached is gone.
  void sleep(const Nvml& nvml) {
    CHECK(cudaMallocHost(&kept_, kWeights * sizeof(unsigned)));
    CHECK(cudaMemcpyAsync(kept_, weights_, kWeights * sizeof(unsigned), cudaMemcpyDeviceToHost,
                          stream_));
    CHECK(cudaStreamSynchronize(stream_));
    void* const device = nvml.device(static_cast<int>(rank_));
    size_t free_before = 0, free_after = 0, total = 0;
    const unsigned long long used_before = nvml.used(device);
    CHECK(cudaMemGetInfo(&free_before, &total));
    pool_.sleep();
    CHECK(cudaMemGetInfo(&free_after, &total));
    EXPECT(free_after >= free_before + kPoolBytes);
    EXPECT(used_before >= nvml.used(device) + kPoolBytes);
  }
  void wake() {
    pool_.wake();
    CHECK(cudaMemcpyAsync(weights_, kept_, kWeights * sizeof(unsigned), cudaMemcpyHostToDevice,
                          stream_));
    forget();
    CHECK(cudaStreamSynchronize(stream_));
    CHECK(cudaFreeHost(kept_));
  }

  void end() {
    for (const auto& [rows, graph] : graphs_) CHECK(cudaGraphExecDestroy(graph));
    ::pthread_barrier_wait(&board_.barrier);  // nobody uses this one's memory any more
    for (unsigned other = 0; other < ranks_; ++other)
      if (other != rank_) CHECK(cudaIpcCloseMemHandle(opened_[other]));
    ::pthread_barrier_wait(&board_.barrier);
    CHECK(cudaFree(shared_));
    pool_.sleep();
  }

 private:
  static constexpr size_t kPartialBytes = size_t{kMostRows} * kWidth * sizeof(unsigned);

  // Each rank shows its partial sums and signals to the others: somewhere in an allocation, of
  // which the handle says the begin.
  void connect() {
    constexpr size_t kOffset = 4096;
    CHECK(cudaMalloc(&shared_, 1 << 20));
    CHECK(cudaMemset(shared_, 0, 1 << 20));
    CHECK(cudaDeviceSynchronize());
    std::byte* const mine = static_cast<std::byte*>(shared_) + kOffset;
    CUdeviceptr begin = 0;
    CHECK(DRIVER(cuPointerGetAttribute)(&begin, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                        reinterpret_cast<CUdeviceptr>(mine)));
    EXPECT(begin == reinterpret_cast<CUdeviceptr>(shared_));
    CHECK(cudaIpcGetMemHandle(&board_.ranks[rank_].memory, reinterpret_cast<void*>(begin)));
    board_.ranks[rank_].offset = reinterpret_cast<CUdeviceptr>(mine) - begin;
    ::pthread_barrier_wait(&board_.barrier);
    peers_.rank = rank_;
    peers_.ranks = ranks_;
    for (unsigned other = 0; other < ranks_; ++other) {
      std::byte* memory = mine;
      if (other != rank_) {
        CHECK(cudaIpcOpenMemHandle(&opened_[other], board_.ranks[other].memory,
                                   cudaIpcMemLazyEnablePeerAccess));
        memory = static_cast<std::byte*>(opened_[other]) + board_.ranks[other].offset;
      }
      peers_.partial[other] = reinterpret_cast<unsigned*>(memory);
      peers_.signals[other] = reinterpret_cast<Signals*>(memory + kPartialBytes);
    }
  }

  void work(unsigned rows) {
    const unsigned count = kWidth / ranks_;
    auto* const partial = const_cast<unsigned*>(peers_.partial[rank_]);
    embed<<<rows, kThreads, 0, stream_>>>(tokens_, in_);
    for (unsigned l = 0; l < kLayers; ++l) {
      layer<<<rows, kThreads, 0, stream_>>>(weights_ + size_t{l} * kWidth * kWidth, in_, partial,
                                            rank_ * count, count);
      add_partial_sums<<<kBlocks, kThreads, 0, stream_>>>(peers_, out_, rows * kWidth);
      attend<<<rows, kThreads, 0, stream_>>>(cache_ + size_t{l} * kMostRows * kPositions * kWidth,
                                             out_, in_, tokens_ + kMostRows);
    }
    sample<<<rows, kThreads, 0, stream_>>>(in_, tokens_);
    CHECK(cudaGetLastError());
  }

  Board& board_;
  const unsigned rank_, ranks_;
  Pool pool_;
  unsigned *weights_ = nullptr, *cache_ = nullptr, *in_ = nullptr, *out_ = nullptr;
  unsigned *tokens_ = nullptr, *host_tokens_ = nullptr, *kept_ = nullptr;
  void* shared_ = nullptr;
  std::array<void*, kMostRanks> opened_{};
  Peers peers_{};
  cudaStream_t stream_ = nullptr;
  cudaEvent_t done_ = nullptr;
  std::map<unsigned, cudaGraphExec_t> graphs_;
};

int run_rank(Board& board, unsigned rank, unsigned ranks) {
  CHECK(cudaSetDevice(static_cast<int>(rank)));
  const Nvml nvml;
  for (unsigned other = 0; other < ranks; ++other) {
    if (other == rank) continue;
    int can = 0;
    CHECK(cudaDeviceCanAccessPeer(&can, static_cast<int>(rank), static_cast<int>(other)));
    EXPECT(can == 1);
    EXPECT(
        nvml.can_read(nvml.device(static_cast<int>(rank)), nvml.device(static_cast<int>(other))));
  }
  std::vector<unsigned> weights(kWeights);
  unsigned state = 1;
  for (unsigned& weight : weights) weight = state = state * 1664525u + 1013904223u;
  Reference reference(weights);
  Rank server(board, rank, ranks);
  server.load(weights);
  server.capture();
  unsigned total = 0;
  ::pthread_barrier_wait(&board.barrier);
  const double seconds = timed([&] {
    for (unsigned request = 0; request < kRequests; ++request) {
      if (request == kSleepsAt) {
        ::pthread_barrier_wait(&board.barrier);
        server.sleep(nvml);
        ::pthread_barrier_wait(&board.barrier);
        server.wake();
        reference.forget();
      }
      std::vector<unsigned> tokens(1 + request * 7 % kMostRows);
      for (unsigned& token : tokens) token = state = state * 1664525u + 1013904223u;
      const std::vector<unsigned> sampled = server.step(tokens, request);
      tokens.resize(sampled.size());
      EXPECT(sampled == reference.step(tokens, request));
      for (const unsigned token : sampled) total += token;
    }
  });
  server.end();
  if (rank == 0) {
    board.seconds = seconds;
    board.total = total;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const auto ranks = static_cast<unsigned>(argc > 1 ? std::atoi(argv[1]) : 2);
  EXPECT(ranks >= 1 && ranks <= kMostRanks && kWidth % ranks == 0);
  void* const memory =
      ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  EXPECT(memory != MAP_FAILED);
  Board& board = *new (memory) Board{};
  pthread_barrierattr_t shared;
  ::pthread_barrierattr_init(&shared);
  ::pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
  ::pthread_barrier_init(&board.barrier, &shared, ranks);
  std::vector<pid_t> processes;
  for (unsigned rank = 0; rank < ranks; ++rank) {
    processes.push_back(::fork());
    if (processes.back() == 0) return run_rank(board, rank, ranks);
  }
  bool right = true;
  for (size_t left = processes.size(); left > 0; --left) {
    int status = 0;
    const pid_t ended = ::wait(&status);
    processes.erase(std::find(processes.begin(), processes.end(), ended));
    if (status == 0) continue;
    right = false;  // the others would wait for it
    for (const pid_t other : processes) ::kill(other, SIGKILL);
  }
  return report(right, {static_cast<double>(board.total)}, board.seconds);
}
