// Thread: a thread of ours in a process whose signals, stack limit and defaults may be an
// application's. No other place of the client starts one.
//
// It takes no signal: all signals except those raised by its own instructions are blocked from its
// first instruction on. Its stack does not depend on `ulimit -s`. Like std::thread otherwise:
// throws std::system_error when the system starts none, and must be joined or detached before its
// end.
#pragma once

#include <pthread.h>

#include <exception>
#include <memory>
#include <system_error>
#include <type_traits>
#include <utility>

namespace fargpu {

enum class StackFor {
  kOurCode,     // 1 MiB
  kTheProgram,  // for functions of the application: the size of its own threads, at least 2 MiB
};

class Thread {
 public:
  Thread() = default;
  template <typename Function,
            typename = std::enable_if_t<!std::is_same_v<std::decay_t<Function>, Thread>>>
  explicit Thread(Function&& function, StackFor stack = StackFor::kOurCode) {
    start(std::make_unique<BodyOf<std::decay_t<Function>>>(std::forward<Function>(function)),
          stack);
  }
  Thread(Thread&& other) noexcept
      : thread_(other.thread_), joinable_(std::exchange(other.joinable_, false)) {}
  Thread& operator=(Thread&& other) noexcept;
  ~Thread();

  bool joinable() const { return joinable_; }
  void join();
  void detach();

 private:
  struct Body {
    virtual ~Body() = default;
    virtual void run() = 0;
  };
  template <typename Function>
  struct BodyOf final : Body {
    explicit BodyOf(Function given) : function(std::move(given)) {}
    void run() override { function(); }
    Function function;
  };
  static void* run(void* body) noexcept;
  void start(std::unique_ptr<Body> body, StackFor stack);

  pthread_t thread_{};
  bool joinable_ = false;
};

// Runs `function` on a thread with a stack of fargpu's and returns after it: for work that may need
// more stack than the application's thread has. On the caller's thread if the system starts no
// other. Exceptions are rethrown here.
template <typename Function>
void on_own_stack(Function&& function) {
  std::exception_ptr thrown;
  Thread thread;
  try {
    thread = Thread([&] {
      try {
        function();
      } catch (...) {
        thrown = std::current_exception();
      }
    });
  } catch (const std::system_error&) {
    function();
    return;
  }
  thread.join();
  if (thrown) std::rethrow_exception(thrown);
}

}  // namespace fargpu
