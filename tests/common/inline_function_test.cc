// A callable that is kept in place: it is called, moved and destroyed once, small or large.
#include "common/base/inline_function.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <utility>

namespace fargpu {
namespace {

using Function = InlineFunction<int(int), 32>;

// Counts those that are alive.
struct Counted {
  explicit Counted(int* alive) : alive_(alive) { ++*alive_; }
  Counted(Counted&& other) noexcept : alive_(other.alive_) { ++*alive_; }
  Counted& operator=(Counted&&) = delete;
  ~Counted() { --*alive_; }
  int* alive_;
};

TEST(InlineFunction, IsEmptyAtFirst) {
  Function function;
  EXPECT_FALSE(function);
  function.reset();
  Function other(std::move(function));
  EXPECT_FALSE(other);
}

template <size_t kBytes>
void lives_once() {
  int alive = 0;
  {
    Function function([counted = Counted(&alive), calls = 0, more = std::array<char, kBytes>()](
                          int n) mutable { return n + ++calls + more[0]; });
    EXPECT_EQ(alive, 1);
    EXPECT_EQ(function(10), 11);
    Function moved(std::move(function));
    EXPECT_FALSE(function) << "what was moved from is empty";  // NOLINT(bugprone-use-after-move)
    EXPECT_EQ(alive, 1);
    EXPECT_EQ(moved(10), 12) << "it is the same one";
    function = std::move(moved);
    EXPECT_EQ(function(10), 13);
    EXPECT_EQ(alive, 1);
    function = Function([](int n) { return -n; });
    EXPECT_EQ(alive, 0);
    EXPECT_EQ(function(3), -3);
  }
  EXPECT_EQ(alive, 0);
}

TEST(InlineFunction, ASmallOneLivesOnce) { lives_once<1>(); }
TEST(InlineFunction, ALargeOneLivesOnce) { lives_once<100>(); }

TEST(InlineFunction, TakesWhatCannotBeCopied) {
  InlineFunction<int(std::unique_ptr<int>), 32> function(
      [held = std::make_unique<int>(1)](std::unique_ptr<int> given) { return *held + *given; });
  EXPECT_EQ(function(std::make_unique<int>(2)), 3);
}

TEST(InlineFunction, ReturnsNothing) {
  int calls = 0;
  InlineFunction<void(), 32> function([&calls] { ++calls; });
  function();
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace fargpu
