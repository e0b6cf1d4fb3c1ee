// For conformance programs whose parts may end their process: each runs in a child of its own, and
// the parent never calls CUDA.
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/conformance/conformance.h"

// `body` does not leave memory behind that others see: it prints what it finds.
template <typename Body>
void in_child(const char* name, Body&& body) {
  std::printf("--- %s\n", name);
  std::fflush(stdout);
  const pid_t child = ::fork();
  if (child == 0) {
    // Of a sanitizer, maybe.
    for (const int number : {SIGSEGV, SIGBUS, SIGILL}) ::signal(number, SIG_DFL);
    ::alarm(60);
    body();
    std::exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  std::printf("%s %d\n", WIFSIGNALED(status) ? "ended by signal" : "exit code",
              WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}
