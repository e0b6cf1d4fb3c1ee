// fork: a child of a process that uses the GPU cannot use it (an error, at once, no hang), the
// parent goes on; a child made before the first call can use it by itself.
#include <sys/wait.h>
#include <unistd.h>

#include "expect.h"

__global__ void set(int* p, int v) { *p = v; }

static int use_gpu() {
  int* p;
  int got = 0;
  if (cudaMalloc(&p, sizeof(int)) != cudaSuccess) return 10;
  set<<<1, 1>>>(p, 42);
  if (cudaMemcpy(&got, p, sizeof(int), cudaMemcpyDeviceToHost) != cudaSuccess) return 11;
  if (cudaFree(p) != cudaSuccess) return 12;
  return got == 42 ? 0 : 13;
}

static int code_of(pid_t child) {
  int state = 0;
  EXPECT(waitpid(child, &state, 0) == child);
  EXPECT(WIFEXITED(state));
  return WEXITSTATUS(state);
}

int main() {
  pid_t early = fork();
  if (early == 0) _exit(use_gpu());
  EXPECT(code_of(early) == 0);
  EXPECT(use_gpu() == 0);
  pid_t late = fork();
  if (late == 0) _exit(use_gpu());  // the parent's GPU is not the child's
  const int late_code = code_of(late);
  EXPECT(late_code == 10 || late_code == 11);
  EXPECT(use_gpu() == 0);
  pid_t silent = fork();
  if (silent == 0) std::exit(5);  // runs destructors and atexit handlers of a GPU process
  EXPECT(code_of(silent) == 5);
  EXPECT(use_gpu() == 0);
  std::printf("fork_child: right\n");
  return 0;
}
