// A child process that computes one Answer, or says why it could not.
#pragma once

#include <sys/types.h>

#include <functional>

#include "client/bench/figures/exchange.h"
#include "common/base/fd.h"

namespace fargpu::bench {

class Child final {
 public:
  // Forks. Throws Failed. An exception of `work` becomes the child's failure.
  explicit Child(const std::function<Answer()>& work);
  Child(Child&& other) noexcept;
  Child& operator=(Child&&) = delete;
  ~Child();  // kills it if it still runs

  // Waits, at most `seconds`. Throws Failed: the child's message, or that it was too late.
  Answer wait(double seconds);

 private:
  pid_t pid_ = -1;
  Fd pipe_;
};

}  // namespace fargpu::bench
