#include "common/host/thread.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <system_error>

#include "common/base/check.h"
#include "common/host/signals_blocked.h"

namespace fargpu {
namespace {

constexpr size_t kOurStack = size_t{1} << 20;
constexpr size_t kLeastOfProgram = size_t{2} << 20, kMostOfProgram = size_t{256} << 20;

size_t stack_bytes(StackFor stack) {
  if (stack == StackFor::kOurCode) return kOurStack;
  size_t usual = 0;
  pthread_attr_t attributes;
  if (::pthread_getattr_default_np(&attributes) == 0) {
    ::pthread_attr_getstacksize(&attributes, &usual);
    ::pthread_attr_destroy(&attributes);
  }
  return std::clamp(usual, kLeastOfProgram, kMostOfProgram);
}

}  // namespace

Thread& Thread::operator=(Thread&& other) noexcept {
  FARGPU_CHECK(!joinable_);
  thread_ = other.thread_;
  joinable_ = std::exchange(other.joinable_, false);
  return *this;
}

Thread::~Thread() { FARGPU_CHECK(!joinable_); }

void Thread::join() {
  FARGPU_CHECK(std::exchange(joinable_, false));
  ::pthread_join(thread_, nullptr);
}

void Thread::detach() {
  FARGPU_CHECK(std::exchange(joinable_, false));
  ::pthread_detach(thread_);
}

void* Thread::run(void* body) noexcept {
  const std::unique_ptr<Body> own(static_cast<Body*>(body));
  own->run();
  return nullptr;
}

void Thread::start(std::unique_ptr<Body> body, StackFor stack) {
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  ::pthread_attr_setstacksize(&attributes, stack_bytes(stack));
  int error = 0;
  {
    const SignalsBlocked blocked;
    error = ::pthread_create(&thread_, &attributes, &run, body.get());
  }
  ::pthread_attr_destroy(&attributes);
  if (error != 0) throw std::system_error(error, std::generic_category(), "pthread_create");
  (void)body.release();
  joinable_ = true;
}

}  // namespace fargpu
