// What another process gives to a world: handles of its memory and of one of its events.
#include <fcntl.h>
#include <spawn.h>
#include <unistd.h>

#include <cstdio>

#include "tests/conformance/answers/answers.h"

extern char** environ;

namespace answers {
namespace {

struct Given {
  CUipcMemHandle memory;
  CUipcEventHandle event;
};

// This program again, which gives and ends when its input does. Zeros when it cannot.
Given start_other() {
  Given given{};
  int in[2], out[2];
  if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0) return given;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  char name[] = "answers", give[] = "--give";
  char* const arguments[] = {name, give, nullptr};
  pid_t other = 0;
  if (posix_spawn(&other, "/proc/self/exe", &actions, nullptr, arguments, environ) != 0)
    std::fprintf(stderr, "answers: no other process\n");
  posix_spawn_file_actions_destroy(&actions);
  close(in[0]);
  close(out[1]);
  if (read(out[0], &given, sizeof given) != sizeof given) given = {};
  close(out[0]);
  return given;  // in[1] stays open as long as this process lives
}

const Given& other() {
  static const Given given = start_other();
  return given;
}

}  // namespace

int give_handles() {
  Given given{};
  CUcontext context = nullptr;
  CUdeviceptr memory = 0;
  CUevent event = nullptr;
  need("cuInit", 0u);
  need("cuCtxCreate_v2", &context, 0u, 0);
  need("cuMemAlloc_v2", &memory, size_t{1} << 20);
  need("cuIpcGetMemHandle", &given.memory, memory);
  need("cuEventCreate", &event,
       static_cast<unsigned>(CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
  need("cuIpcGetEventHandle", &given.event, event);
  if (write(STDOUT_FILENO, &given, sizeof given) != sizeof given) return 1;
  char end;
  while (read(STDIN_FILENO, &end, 1) > 0) {
  }
  return 0;
}

CUipcMemHandle World::foreign_memory() { return can() ? other().memory : CUipcMemHandle{}; }
CUipcEventHandle World::foreign_event() { return can() ? other().event : CUipcEventHandle{}; }

CUdeviceptr World::opened_memory() {
  if (!can()) return 0;
  CUdeviceptr address = slot("opened memory");
  if (address == 0)
    need("cuIpcOpenMemHandle_v2", &address, foreign_memory(),
         static_cast<unsigned>(CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  return slot("opened memory") = address;
}

}  // namespace answers
