// Copies and launches as an application sees them: bandwidth of pinned and pageable memory in both
// directions for many sizes, latency of the smallest copy, of a launch, of a launch with its end,
// and a kernel that works on pinned host memory in place.
//
// A plain program of the driver API which loads libcuda.so.1 when it runs, so that one binary
// measures the native driver and fargpu alike:
//   bandwidth --json native.json          fargpu run --server HOST -- bandwidth --json remote.json
// Every figure is the median of repetitions. What was copied is compared at the end of each line; a
// wrong byte makes the exit code 1.
#include <cuda.h>
#include <dlfcn.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

// --- the driver ----------------------------------------------------------------------------------

#define DRIVER_FUNCTIONS(X)                               \
  X(cuInit, "cuInit")                                     \
  X(cuDeviceGet, "cuDeviceGet")                           \
  X(cuDeviceGetName, "cuDeviceGetName")                   \
  X(cuDriverGetVersion, "cuDriverGetVersion")             \
  X(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain") \
  X(cuCtxSetCurrent, "cuCtxSetCurrent")                   \
  X(cuCtxSynchronize, "cuCtxSynchronize")                 \
  X(cuStreamCreate, "cuStreamCreate")                     \
  X(cuStreamSynchronize, "cuStreamSynchronize")           \
  X(cuMemAlloc, "cuMemAlloc_v2")                          \
  X(cuMemFree, "cuMemFree_v2")                            \
  X(cuMemHostAlloc, "cuMemHostAlloc")                     \
  X(cuMemFreeHost, "cuMemFreeHost")                       \
  X(cuMemcpyHtoD, "cuMemcpyHtoD_v2")                      \
  X(cuMemcpyDtoH, "cuMemcpyDtoH_v2")                      \
  X(cuMemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2")            \
  X(cuMemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2")            \
  X(cuModuleLoadData, "cuModuleLoadData")                 \
  X(cuModuleGetFunction, "cuModuleGetFunction")           \
  X(cuLaunchKernel, "cuLaunchKernel")

struct Driver {
#define MEMBER(name, symbol) decltype(&::name) name = nullptr;
  DRIVER_FUNCTIONS(MEMBER)
#undef MEMBER
} driver;

[[noreturn]] void stop(const char* what, int result) {
  std::fprintf(stderr, "bandwidth: %s: error %d\n", what, result);
  std::exit(2);
}
#define NEED(call)                                               \
  do {                                                           \
    const CUresult need_result_ = (call);                        \
    if (need_result_ != CUDA_SUCCESS) stop(#call, need_result_); \
  } while (0)

void load_driver() {
  void* library = ::dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) {
    std::fprintf(stderr, "bandwidth: %s\n", ::dlerror());
    std::exit(2);
  }
#define LOAD(name, symbol)                                                         \
  driver.name = reinterpret_cast<decltype(driver.name)>(::dlsym(library, symbol)); \
  if (driver.name == nullptr) stop("libcuda.so.1 lacks " symbol, CUDA_ERROR_NOT_FOUND);
  DRIVER_FUNCTIONS(LOAD)
#undef LOAD
}

// --- the kernels ---------------------------------------------------------------------------------

const char* const kKernels = R"ptx(
.version 6.0
.target sm_50
.address_size 64
.visible .entry nothing() { ret; }
.visible .entry twice(.param .u64 from, .param .u64 to, .param .u32 n)
{
  .reg .pred %p<2>;
  .reg .b32 %r<8>;
  .reg .b64 %rd<8>;
  ld.param.u64 %rd1, [from];
  ld.param.u64 %rd2, [to];
  ld.param.u32 %r1, [n];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.s32 %r5, %r2, %r3, %r4;
  setp.ge.u32 %p1, %r5, %r1;
  @%p1 bra done;
  cvta.to.global.u64 %rd3, %rd1;
  cvta.to.global.u64 %rd4, %rd2;
  mul.wide.u32 %rd5, %r5, 4;
  add.s64 %rd6, %rd3, %rd5;
  add.s64 %rd7, %rd4, %rd5;
  ld.global.u32 %r6, [%rd6];
  add.s32 %r7, %r6, %r6;
  st.global.u32 [%rd7], %r7;
done:
  ret;
}
)ptx";

// --- results -------------------------------------------------------------------------------------

struct Line {
  std::string name;
  size_t bytes = 0;
  double microseconds = 0;
  bool right = true;
  double gigabytes() const {
    return microseconds > 0 ? static_cast<double>(bytes) / microseconds / 1000 : 0;
  }
};

struct Options {
  size_t largest = size_t{512} << 20;
  double seconds = 0.4;  // per line
  std::string json;      // empty: no file
  std::string only;      // part of the name
};

struct Bench {
  Options options;
  std::vector<Line> lines;
  CUstream stream = nullptr;
  CUfunction nothing = nullptr, twice = nullptr;

  bool wanted(const std::string& name) const {
    return name.find(options.only) != std::string::npos;
  }

  void add(Line line) {
    if (line.bytes >= 1024) {
      std::printf("%-28s %11zu B %12.2f us %8.2f GB/s %s\n", line.name.c_str(), line.bytes,
                  line.microseconds, line.gigabytes(), line.right ? "" : "WRONG BYTES");
    } else {
      std::printf("%-28s %11zu B %12.2f us %13s %s\n", line.name.c_str(), line.bytes,
                  line.microseconds, "", line.right ? "" : "WRONG BYTES");
    }
    std::fflush(stdout);
    lines.push_back(std::move(line));
  }

  // Median time of `body` in microseconds: at least five times, for about options.seconds. Two
  // unmeasured ones first.
  double median(const std::function<void()>& body) const {
    body();
    body();
    std::vector<double> times;
    const auto end = Clock::now() + std::chrono::duration<double>(options.seconds);
    while (times.size() < 5 || (Clock::now() < end && times.size() < 20000)) {
      const auto begin = Clock::now();
      body();
      times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
    }
    std::nth_element(times.begin(), times.begin() + static_cast<long>(times.size() / 2),
                     times.end());
    return times[times.size() / 2];
  }
};

std::string size_name(size_t bytes) {
  if (bytes >= (1u << 20)) return std::to_string(bytes >> 20) + "MiB";
  if (bytes >= 1024) return std::to_string(bytes >> 10) + "KiB";
  return std::to_string(bytes) + "B";
}

void mark(unsigned char* memory, size_t bytes, unsigned seed) {
  for (size_t i = 0; i < bytes; ++i)
    memory[i] = static_cast<unsigned char>((i * 2654435761u >> 13) + seed);
}

enum class Memory { kPinned, kPageable };

// One buffer of each end for all sizes.
struct Buffers {
  Buffers(Memory kind, size_t bytes) : kind(kind) {
    if (kind == Memory::kPinned) {
      void *a = nullptr, *b = nullptr;
      NEED(driver.cuMemHostAlloc(&a, bytes, 0));
      NEED(driver.cuMemHostAlloc(&b, bytes, 0));
      in = static_cast<unsigned char*>(a), out = static_cast<unsigned char*>(b);
    } else {
      in = static_cast<unsigned char*>(std::malloc(bytes)),
      out = static_cast<unsigned char*>(std::malloc(bytes));
      if (in == nullptr || out == nullptr) stop("malloc", CUDA_ERROR_OUT_OF_MEMORY);
    }
    mark(in, bytes, 1);
    std::memset(out, 0, bytes);  // its pages are there
    NEED(driver.cuMemAlloc(&device, bytes));
  }
  ~Buffers() {
    driver.cuMemFree(device);
    if (kind == Memory::kPinned) {
      driver.cuMemFreeHost(in);
      driver.cuMemFreeHost(out);
    } else {
      std::free(in);
      std::free(out);
    }
  }
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;

  const Memory kind;
  unsigned char *in = nullptr, *out = nullptr;
  CUdeviceptr device = 0;
};

void copies(Bench& bench, Memory kind) {
  const std::string kind_name = kind == Memory::kPinned ? "pinned" : "pageable";
  const auto up_name = [&](size_t bytes) { return kind_name + " H2D " + size_name(bytes); };
  const auto down_name = [&](size_t bytes) { return kind_name + " D2H " + size_name(bytes); };
  std::vector<size_t> sizes;
  for (size_t bytes = 4; bytes <= bench.options.largest; bytes *= 4) sizes.push_back(bytes);
  if (sizes.back() != bench.options.largest) sizes.push_back(bench.options.largest);
  std::erase_if(sizes, [&](size_t bytes) {
    return !bench.wanted(up_name(bytes)) && !bench.wanted(down_name(bytes));
  });
  if (sizes.empty()) return;
  Buffers buffers(kind, sizes.back());
  for (const size_t bytes : sizes) {
    const auto right = [&] { return std::memcmp(buffers.in, buffers.out, bytes) == 0; };
    // Complete on the device: what an application has to wait for.
    const auto up = [&] {
      NEED(driver.cuMemcpyHtoDAsync(buffers.device, buffers.in, bytes, bench.stream));
      NEED(driver.cuStreamSynchronize(bench.stream));
    };
    const auto down = [&] {
      NEED(driver.cuMemcpyDtoHAsync(buffers.out, buffers.device, bytes, bench.stream));
      NEED(driver.cuStreamSynchronize(bench.stream));
    };
    std::memset(buffers.out, 0, bytes);
    const double up_time = bench.median(up);
    const double down_time = bench.median(down);
    bench.add({up_name(bytes), bytes, up_time, right()});
    bench.add({down_name(bytes), bytes, down_time, right()});
  }
}

// Median time of an async call in bursts that a queue holds, which are then waited for outside the
// clock.
double burst(const Bench& bench, const std::function<void()>& call) {
  constexpr int kBurst = 64;
  std::vector<double> times;
  const auto end = Clock::now() + std::chrono::duration<double>(bench.options.seconds);
  while (Clock::now() < end || times.size() < 5) {
    const auto begin = Clock::now();
    for (int i = 0; i < kBurst; ++i) call();
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count() /
                    kBurst);
    NEED(driver.cuStreamSynchronize(bench.stream));
  }
  std::nth_element(times.begin(), times.begin() + static_cast<long>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

// The time until the call returns: what the application's thread pays for the smallest copy.
void small_calls(Bench& bench, Memory kind) {
  const std::string kind_name = kind == Memory::kPinned ? "pinned" : "pageable";
  if (!bench.wanted(kind_name + " call")) return;
  Buffers buffers(kind, 4096);
  const auto right = [&] {
    NEED(driver.cuMemcpyDtoH(buffers.out, buffers.device, 4));
    return std::memcmp(buffers.in, buffers.out, 4) == 0;
  };
  bench.add({kind_name + " call cuMemcpyHtoD", 4,
             bench.median([&] { NEED(driver.cuMemcpyHtoD(buffers.device, buffers.in, 4)); }),
             right()});
  bench.add({kind_name + " call cuMemcpyDtoH", 4,
             bench.median([&] { NEED(driver.cuMemcpyDtoH(buffers.out, buffers.device, 4)); }),
             right()});
  bench.add(
      {kind_name + " call HtoDAsync", 4,
       burst(bench,
             [&] { NEED(driver.cuMemcpyHtoDAsync(buffers.device, buffers.in, 4, bench.stream)); }),
       right()});
  bench.add(
      {kind_name + " call DtoHAsync", 4,
       burst(bench,
             [&] { NEED(driver.cuMemcpyDtoHAsync(buffers.out, buffers.device, 4, bench.stream)); }),
       right()});
}

void launches(Bench& bench) {
  if (!bench.wanted("launch + synchronise")) return;
  const auto launch = [&] {
    NEED(
        driver.cuLaunchKernel(bench.nothing, 1, 1, 1, 32, 1, 1, 0, bench.stream, nullptr, nullptr));
  };
  bench.add({"launch", 0, burst(bench, launch)});
  bench.add({"launch + synchronise", 0, bench.median([&] {
               launch();
               NEED(driver.cuStreamSynchronize(bench.stream));
             })});
}

// A kernel reads one pinned buffer and writes another, without a copy anywhere.
void in_place(Bench& bench) {
  for (const size_t bytes : {size_t{4} << 10, size_t{1} << 20, size_t{64} << 20}) {
    if (!bench.wanted("kernel in place " + size_name(bytes)) || bytes > bench.options.largest)
      continue;
    Buffers buffers(Memory::kPinned, bytes);
    auto n = static_cast<unsigned>(bytes / 4);
    CUdeviceptr from = reinterpret_cast<CUdeviceptr>(buffers.in),
                to = reinterpret_cast<CUdeviceptr>(buffers.out);
    void* arguments[] = {&from, &to, &n};
    const double time = bench.median([&] {
      NEED(driver.cuLaunchKernel(bench.twice, (n + 255) / 256, 1, 1, 256, 1, 1, 0, bench.stream,
                                 arguments, nullptr));
      NEED(driver.cuStreamSynchronize(bench.stream));
    });
    bool right = true;
    const auto* in = reinterpret_cast<const uint32_t*>(buffers.in);
    const auto* out = reinterpret_cast<const uint32_t*>(buffers.out);
    for (unsigned i = 0; i < n; ++i) right &= out[i] == 2 * in[i];
    bench.add({"kernel in place " + size_name(bytes), bytes, time, right});
  }
}

void write_json(const Bench& bench, const char* device, int version) {
  std::FILE* file =
      bench.options.json == "-" ? stdout : std::fopen(bench.options.json.c_str(), "w");
  if (file == nullptr) {
    std::perror(bench.options.json.c_str());
    std::exit(2);
  }
  std::fprintf(file, "{\"device\": \"%s\", \"driver\": %d, \"lines\": [\n", device, version);
  for (size_t i = 0; i < bench.lines.size(); ++i) {
    const Line& line = bench.lines[i];
    std::fprintf(
        file,
        "  {\"name\": \"%s\", \"bytes\": %zu, \"us\": %.3f, \"gb_per_s\": %.3f, \"right\": %s}%s\n",
        line.name.c_str(), line.bytes, line.microseconds, line.gigabytes(),
        line.right ? "true" : "false", i + 1 < bench.lines.size() ? "," : "");
  }
  std::fprintf(file, "]}\n");
  if (file != stdout) std::fclose(file);
}

void add_options(CLI::App& app, Options& options) {
  app.add_option_function<size_t>(
         "--largest", [&](const size_t& mebibytes) { options.largest = mebibytes << 20; },
         "largest copy (default: 512)")
      ->check(CLI::Range(size_t{1}, size_t{1} << 20))
      ->type_name("MIB");
  app.add_option("--seconds", options.seconds, "time for each line")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--only", options.only,
                 "lines whose name contains this: pinned, pageable, H2D, D2H, call, launch, in "
                 "place");
  app.add_option("--json", options.json, "file for the figures as JSON, too; - for stdout");
  app.footer(
      "Copies are timed until they are complete; calls until they return. GB is 10^9 bytes. Exit "
      "code 1: a copy was wrong; 2: usage, or an error of the driver.");
}

}  // namespace

int main(int argc, char** argv) {
  Bench bench;
  CLI::App app(
      "Copies and launches as an application sees them, with the libcuda.so.1 that the "
      "loader finds.",
      "bandwidth");
  add_options(app, bench.options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  load_driver();
  NEED(driver.cuInit(0));
  CUdevice device;
  CUcontext context;
  char name[128] = "?";
  int version = 0;
  NEED(driver.cuDeviceGet(&device, 0));
  NEED(driver.cuDeviceGetName(name, sizeof name, device));
  NEED(driver.cuDriverGetVersion(&version));
  NEED(driver.cuDevicePrimaryCtxRetain(&context, device));
  NEED(driver.cuCtxSetCurrent(context));
  NEED(driver.cuStreamCreate(&bench.stream, CU_STREAM_NON_BLOCKING));
  CUmodule module;
  NEED(driver.cuModuleLoadData(&module, kKernels));
  NEED(driver.cuModuleGetFunction(&bench.nothing, module, "nothing"));
  NEED(driver.cuModuleGetFunction(&bench.twice, module, "twice"));
  std::printf("%s, driver %d\n", name, version);

  for (const Memory kind : {Memory::kPinned, Memory::kPageable}) small_calls(bench, kind);
  launches(bench);
  for (const Memory kind : {Memory::kPinned, Memory::kPageable}) copies(bench, kind);
  in_place(bench);
  if (!bench.options.json.empty()) write_json(bench, name, version);
  const bool right = std::all_of(bench.lines.begin(), bench.lines.end(),
                                 [](const Line& line) { return line.right; });
  return right ? 0 : 1;
}
