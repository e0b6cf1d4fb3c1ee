// How long cuLibraryLoadData takes for an image: cold (nobody has seen it), cached (in another new
// process: a server knows it), again (in the same process, median of five). For a small text of
// PTX, and for the largest fat binaries in the given files: libraries, or fat binaries themselves.
//   image_load --largest 2 libcurand.so.10            natively
//   fargpu run --sim -- image_load libcurand.so.10    on a daemon of its own
// Each fat binary gets one more entry, PTX that is new in each run: so it is cold, and the
// simulated GPU, which cannot run machine code, loads it too. A driver takes the machine code for
// its GPU.
// Loads libcuda.so.1 when it runs. A load that the driver refuses is timed too.
#include <cuda.h>
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

namespace {

constexpr size_t kAgain = 5;
constexpr char kMagic[] = "\x50\xed\x55\xba";
constexpr size_t kHeaderBytes = 16, kEntryHeaderBytes = 64;

struct Times {
  double first = 0, again = 0;  // milliseconds
  int result = 0;               // a CUresult
};

void* libcuda() {
  static void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) {
    std::fprintf(stderr, "image_load: libcuda.so.1 is not found\n");
    std::exit(2);
  }
  return library;
}

template <typename Function>
Function* find(const char* name) {
  void* found = dlsym(libcuda(), name);
  if (found == nullptr) {
    std::fprintf(stderr, "image_load: libcuda.so.1 has no %s\n", name);
    std::exit(2);
  }
  return reinterpret_cast<Function*>(found);
}

void require(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "image_load: %s: error %d\n", what, static_cast<int>(result));
  std::exit(1);
}

template <typename Value>
Value read(const std::string& bytes, size_t at) {
  Value value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

template <typename Value>
void put(std::string& bytes, size_t at, Value value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

std::string new_ptx() {
  return "// " + std::to_string(std::chrono::steady_clock::now().time_since_epoch().count()) +
         "\n.version 7.0\n.target sm_75\n.address_size 64\n.visible .entry nothing() { ret; }\n";
}

// `container` with one more entry of PTX for compute capability 7.5.
std::string with_ptx(std::string container) {
  std::string text = new_ptx();
  text.resize((text.size() + 8) / 8 * 8);  // with its NUL
  std::string entry(kEntryHeaderBytes, '\0');
  put(entry, 0, uint16_t{1});
  put(entry, 2, uint16_t{0x0101});
  put(entry, 4, static_cast<uint32_t>(kEntryHeaderBytes));
  put(entry, 8, static_cast<uint64_t>(text.size()));
  put(entry, 28, uint32_t{75});
  put(entry, 40, uint64_t{0x11});  // 64 bits, Linux
  container += entry + text;
  put(container, 8, static_cast<uint64_t>(container.size() - kHeaderBytes));
  return container;
}

std::vector<std::string> largest_containers(const char* path, size_t count) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(file), {});
  std::vector<std::string> found;
  for (size_t at = bytes.find(kMagic); at != std::string::npos; at = bytes.find(kMagic, at + 4)) {
    if (bytes.size() - at < kHeaderBytes || read<uint16_t>(bytes, at + 6) != kHeaderBytes) continue;
    const uint64_t body = read<uint64_t>(bytes, at + 8);
    if (body != 0 && body <= bytes.size() - at - kHeaderBytes)
      found.push_back(bytes.substr(at, kHeaderBytes + body));
  }
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return a.size() > b.size(); });
  found.resize(std::min(found.size(), count));
  return found;
}

double load(const std::string& image, int* result) {
  static auto* const load = find<decltype(cuLibraryLoadData)>("cuLibraryLoadData");
  static auto* const unload = find<decltype(cuLibraryUnload)>("cuLibraryUnload");
  CUlibrary library = nullptr;
  const auto begin = std::chrono::steady_clock::now();
  *result = load(&library, image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  if (*result == CUDA_SUCCESS) unload(library);
  return took.count();
}

Times measure(const std::string& image) {
  CUdevice device = 0;
  CUcontext context = nullptr;
  require(find<decltype(cuInit)>("cuInit")(0), "cuInit");
  require(find<decltype(cuDeviceGet)>("cuDeviceGet")(&device, 0), "cuDeviceGet");
  require(find<decltype(cuDevicePrimaryCtxRetain)>("cuDevicePrimaryCtxRetain")(&context, device),
          "cuDevicePrimaryCtxRetain");
  require(find<decltype(cuCtxSetCurrent)>("cuCtxSetCurrent")(context), "cuCtxSetCurrent");
  Times times;
  times.first = load(image, &times.result);
  std::array<double, kAgain> again{};
  for (double& one : again) one = load(image, &times.result);
  std::sort(again.begin(), again.end());
  times.again = again[kAgain / 2];
  return times;
}

Times in_a_new_process(const std::string& image) {
  int ends[2];
  if (::pipe(ends) != 0) std::exit(2);
  const pid_t child = ::fork();
  if (child == 0) {
    const Times times = measure(image);
    std::exit(::write(ends[1], &times, sizeof times) == sizeof times ? 0 : 2);
  }
  ::close(ends[1]);
  Times times;
  if (::read(ends[0], &times, sizeof times) != sizeof times) std::exit(1);
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  return times;
}

void tell(const std::string& name, const std::string& image) {
  const Times cold = in_a_new_process(image), cached = in_a_new_process(image);
  std::printf("%-24s %10zu %9.2f %9.2f %9.2f  %d\n", name.c_str(), image.size(), cold.first,
              cached.first, cached.again, cached.result);
  std::fflush(stdout);  // a child would write it once more
}

}  // namespace

int main(int count, char** arguments) {
  size_t largest = 1;
  int at = 1;
  if (count > 2 && std::strcmp(arguments[1], "--largest") == 0) {
    largest = std::strtoul(arguments[2], nullptr, 10);
    at = 3;
  }
  std::printf("%-24s %10s %9s %9s %9s  result\n", "image", "bytes", "cold ms", "cached ms",
              "again ms");
  std::fflush(stdout);
  tell("PTX", new_ptx());
  for (; at < count; ++at) {
    const std::string path = arguments[at];
    for (const std::string& container : largest_containers(arguments[at], largest))
      tell(path.substr(path.rfind('/') + 1), with_ptx(container));
  }
  return 0;
}
