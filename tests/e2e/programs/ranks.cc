// A program of several processes, one per GPU, as torch.multiprocessing makes them: rank i works on
// device i and says which devices it sees.
//
//   ranks fork N       the parent has not called CUDA; it forks N ranks
//   ranks spawn N      it starts N times itself
//   ranks open spawn N the same, but the parent has initialised CUDA before
//   ranks hold MIB     takes memory on device 0, says so, and keeps it until its stdin ends
#include <cuda.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

extern char** environ;

namespace {

void check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  const char* name = "?";
  cuGetErrorName(result, &name);
  std::printf("%s: %s\n", what, name);
  std::exit(1);
}
#define CHECK(call) check(call, #call)

std::string uuid_of(int ordinal) {
  CUdevice device;
  CUuuid uuid;
  CHECK(cuDeviceGet(&device, ordinal));
  CHECK(cuDeviceGetUuid_v2(&uuid, device));
  std::string text;
  for (const char byte : uuid.bytes) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(byte));
    text += digits;
  }
  return text;
}

void use(int ordinal, CUcontext* context) {
  CUdevice device;
  CHECK(cuDeviceGet(&device, ordinal));
  CHECK(cuDevicePrimaryCtxRetain(context, device));
  CHECK(cuCtxSetCurrent(*context));
}

// One line, written at once.
void say(const std::string& line) {
  if (::write(STDOUT_FILENO, line.data(), line.size()) < 0) std::exit(1);
}

int run_rank(int rank) {
  CHECK(cuInit(0));
  int count = 0;
  CHECK(cuDeviceGetCount(&count));
  std::string line = "rank " + std::to_string(rank) + " sees";
  for (int i = 0; i < count; ++i) line += " " + uuid_of(i);
  CUcontext context;
  use(rank, &context);
  constexpr size_t kWords = 1 << 16;
  const unsigned value = 1000 + static_cast<unsigned>(rank);
  CUdeviceptr memory;
  CHECK(cuMemAlloc(&memory, kWords * sizeof value));
  CHECK(cuMemsetD32(memory, value, kWords));
  std::vector<unsigned> back(kWords);
  CHECK(cuMemcpyDtoH(back.data(), memory, kWords * sizeof value));
  CUdevice used;
  CHECK(cuCtxGetDevice(&used));
  for (const unsigned word : back) {
    if (word != value) return 2;
  }
  say(line + " uses " + uuid_of(used) + "\n");
  return 0;
}

int wait_for(const std::vector<pid_t>& ranks) {
  int worst = 0;
  for (const pid_t rank : ranks) {
    int status = 0;
    if (::waitpid(rank, &status, 0) != rank || status != 0) worst = 1;
  }
  return worst;
}

int fork_ranks(int count) {
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < count; ++rank) {
    const pid_t child = ::fork();
    if (child == 0) std::exit(run_rank(rank));
    ranks.push_back(child);
  }
  return wait_for(ranks);
}

int spawn_ranks(const char* self, int count) {
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < count; ++rank) {
    std::string number = std::to_string(rank);
    const char* arguments[] = {self, "rank", number.c_str(), nullptr};
    pid_t child = -1;
    if (::posix_spawn(&child, self, nullptr, nullptr, const_cast<char**>(arguments), environ) != 0)
      return 1;
    ranks.push_back(child);
  }
  return wait_for(ranks);
}

int hold(size_t mebibytes) {
  CHECK(cuInit(0));
  CUcontext context;
  use(0, &context);
  CUdeviceptr memory = 0;
  const CUresult result = mebibytes == 0 ? CUDA_SUCCESS : cuMemAlloc(&memory, mebibytes << 20);
  const char* name = "?";
  cuGetErrorName(result, &name);
  size_t free_bytes = 0, total = 0;
  CHECK(cuMemGetInfo(&free_bytes, &total));
  say(std::string(name) + " free " + std::to_string(free_bytes >> 20) + " total " +
      std::to_string(total >> 20) + "\n");
  char byte;
  while (::read(STDIN_FILENO, &byte, 1) > 0) {
  }
  return 0;
}

}  // namespace

int main(int count, char** values) {
  std::vector<std::string> words(values + 1, values + count);
  if (!words.empty() && words[0] == "open") {
    CHECK(cuInit(0));
    words.erase(words.begin());
  }
  if (words.size() != 2) return 3;
  const int number = std::atoi(words[1].c_str());
  if (words[0] == "fork") return fork_ranks(number);
  if (words[0] == "spawn") return spawn_ranks(values[0], number);
  if (words[0] == "rank") return run_rank(number);
  if (words[0] == "hold") return hold(static_cast<size_t>(number));
  return 3;
}
