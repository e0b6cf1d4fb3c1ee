#include "common/base/descriptors.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>

#include "common/base/env.h"
#include "common/base/kept_environment.h"
#include "common/host/thread.h"

namespace fargpu {
namespace {

// In a process of its own, which is foreign from then on. The line of the first failed check, or 0.
int in_child(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    descriptors::in_foreign_process();
    ::_exit(body());
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}
#define NEED(...) \
  if (!(__VA_ARGS__)) return __LINE__ % 256

bool limit(rlim_t soft, rlim_t hard) {
  const rlimit wanted{soft, hard};
  return ::setrlimit(RLIMIT_NOFILE, &wanted) == 0;
}
Fd make_event() {
  return descriptors::make([] { return ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); });
}

TEST(DescriptorsTest, AreAboveTheLimitWhichStays) {
  EXPECT_EQ(in_child([] {
              NEED(limit(256, 2048));
              const Fd one = make_event(), two = make_event();
              NEED(one.get() >= 1024 && two.get() > one.get());
              NEED(::fcntl(one.get(), F_GETFD) == FD_CLOEXEC);
              rlimit now{};
              NEED(::getrlimit(RLIMIT_NOFILE, &now) == 0);
              NEED(now.rlim_cur == 256 && now.rlim_max == 2048);
              return 0;
            }),
            0);
}

TEST(DescriptorsTest, AreHighWhereTheLimitIsHard) {
  for (const rlim_t hard : {20u, 64u, 256u, 600u}) {
    EXPECT_EQ(in_child([hard] {
                NEED(limit(hard, hard));
                const Fd one = make_event();
                NEED(one.get() >= 16);
                return 0;
              }),
              0);
  }
}

TEST(DescriptorsTest, AreNeverStandardOnes) {
  EXPECT_EQ(in_child([] {
              NEED(limit(8, 8));
              ::close(0), ::close(1), ::close(2);
              int seen = -1;
              {
                const Fd one = descriptors::make([&] { return seen = ::eventfd(0, EFD_CLOEXEC); });
                NEED(seen > 2 && one.get() > 2);
                const descriptors::StandardTaken outer;
                const descriptors::StandardTaken inner;
                NEED(::fcntl(1, F_GETFD) >= 0);
                NEED(::write(1, "text", 4) < 0);
              }
              for (const int standard : {0, 1, 2}) NEED(::fcntl(standard, F_GETFD) < 0);
              return 0;
            }),
            0);
}

TEST(DescriptorsTest, ANumberThatTheProgramTookIsNotTouched) {
  EXPECT_EQ(in_child([] {
              NEED(limit(600, 600));
              Result<EventFd> event = EventFd::create();
              NEED(event.ok());
              int ends[2];
              NEED(::pipe(ends) == 0);
              const int number = event->get();
              NEED(descriptors::own(number) == number);
              ::close(number);
              NEED(descriptors::own(number) < 0);
              NEED(::dup2(ends[1], number) == number);
              event->signal();
              event->reset();
              NEED(::fcntl(number, F_GETFD) >= 0);
              ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
              char byte;
              NEED(::read(ends[0], &byte, 1) < 0);
              return 0;
            }),
            0);
}

TEST(ThreadTest, TakesNoSignalAndHasAStackOfItsOwn) {
  sigset_t mask;
  size_t stack = 0;
  Thread([&] {
    ::pthread_sigmask(SIG_BLOCK, nullptr, &mask);
    pthread_attr_t attributes;
    ::pthread_getattr_np(::pthread_self(), &attributes);
    ::pthread_attr_getstacksize(&attributes, &stack);
    ::pthread_attr_destroy(&attributes);
  }).join();
  for (const int signal : {SIGTERM, SIGUSR1, SIGCHLD, SIGPIPE, SIGRTMIN})
    EXPECT_EQ(sigismember(&mask, signal), 1) << signal;
  EXPECT_EQ(sigismember(&mask, SIGSEGV), 0);
  EXPECT_GE(stack, size_t{1} << 20);
  EXPECT_LT(stack, size_t{2} << 20);
  EXPECT_THROW(on_own_stack([] { throw std::runtime_error("through"); }), std::runtime_error);
}

TEST(KeptEnvironmentTest, OwnVariablesAreThoseOfTheMoment) {
  EXPECT_EQ(in_child([] {
              ::setenv("FARGPU_SPIN", "1us", 1);
              ::setenv("CUDA_LAUNCH_BLOCKING", "0", 1);
              keep_own_variables(own_variables_now());
              ::clearenv();
              ::setenv("FARGPU_TRACE", "1", 1);
              ::setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
              NEED(env_text("FARGPU_SPIN") == "1us");
              NEED(!env_text("FARGPU_TRACE") && env_text_now("FARGPU_TRACE") == "1");
              NEED(env_text("CUDA_LAUNCH_BLOCKING") == "1");
              return 0;
            }),
            0);
}

}  // namespace
}  // namespace fargpu
