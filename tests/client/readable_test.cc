#include <errno.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstddef>

#include "client/memory/reserve.h"
#include "tests/client/apart.h"

namespace fargpu::client {
namespace {

constexpr size_t kPage = 4096;

// Which of the questions has a wrong answer; 0: none.
int wrong_answer() {
  std::byte* const pages = test::map_apart(3 * kPage);
  if (pages == nullptr) return 1;
  ::mprotect(pages + kPage, kPage, PROT_NONE);
  ::munmap(pages + 2 * kPage, kPage);
  const int on_stack = 0;
  static const int constant = 0;
  errno = EXDEV;
  if (!readable(&on_stack) || !readable(&constant)) return 2;
  if (!readable(pages) || !readable(pages + kPage - 1)) return 3;
  if (readable(pages + kPage) || readable(pages + kPage + 7)) return 4;
  if (readable(pages + 2 * kPage)) return 5;
  if (readable(nullptr) || readable(reinterpret_cast<void*>(7))) return 6;
  if (readable(reinterpret_cast<void*>(UINT64_MAX)) ||
      readable(reinterpret_cast<void*>(uint64_t{1} << 63))) {
    return 7;
  }
  if (errno != EXDEV) return 8;
  return 0;
}

// As container runtimes do it: the system call fails, the process goes on.
bool refuse_process_vm_readv() {
  std::array filter{
      sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{filter.size(), filter.data()};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    return false;
  }
  char from = 1, to = 0;
  const iovec source{&from, 1}, destination{&to, 1};
  return ::process_vm_readv(::getpid(), &destination, 1, &source, 1, 0) == -1;
}

TEST(ReadableTest, TellsMemoryFromWhatIsNone) { EXPECT_EQ(wrong_answer(), 0); }

TEST(ReadableTest, TellsItWhereOtherProcessesMemoryMayNotBeRead) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(refuse_process_vm_readv() ? wrong_answer() : 77);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "this system has no seccomp filters";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace fargpu::client
