// InlineFunction: a callable that can be moved but not copied, kept in place when it is small: no
// allocation up to `kBytes` of captures. Larger ones go to the heap.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

namespace fargpu {

template <typename Signature, size_t kBytes>
class InlineFunction;

template <typename Result, typename... Arguments, size_t kBytes>
class InlineFunction<Result(Arguments...), kBytes> {
 public:
  InlineFunction() = default;
  template <typename F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, InlineFunction> &&
           std::is_invocable_r_v<Result, std::remove_cvref_t<F>&, Arguments...>)
      InlineFunction(F&& function) {  // NOLINT: implicit as std::function's; hides no constructor
    using Target = std::remove_cvref_t<F>;
    if constexpr (fits<Target>()) {
      new (storage_) Target(std::forward<F>(function));
      operations_ = &kInPlace<Target>;
    } else {
      new (storage_) Target*(new Target(std::forward<F>(function)));
      operations_ = &kOnHeap<Target>;
    }
  }
  InlineFunction(InlineFunction&& other) noexcept { take(other); }
  InlineFunction& operator=(InlineFunction&& other) noexcept {
    if (this != &other) {
      reset();
      take(other);
    }
    return *this;
  }
  ~InlineFunction() { reset(); }

  explicit operator bool() const { return operations_ != nullptr; }
  // There is one.
  Result operator()(Arguments... arguments) {
    return operations_->call(storage_, std::forward<Arguments>(arguments)...);
  }
  void reset() {
    if (const Operations* const operations = std::exchange(operations_, nullptr))
      operations->destroy(storage_);
  }

 private:
  struct Operations {
    Result (*call)(void* target, Arguments&&... arguments);
    void (*move)(void* from, void* to) noexcept;  // `from` is empty afterwards
    void (*destroy)(void* target) noexcept;
  };
  template <typename Target>
  static constexpr bool fits() {
    return sizeof(Target) <= kBytes && alignof(Target) <= alignof(void*) &&
           std::is_nothrow_move_constructible_v<Target>;
  }
  template <typename Target>
  static Target& in_place(void* target) {
    return *std::launder(static_cast<Target*>(target));
  }
  template <typename Target>
  static constexpr Operations kInPlace{
      [](void* target, Arguments&&... arguments) -> Result {
        return in_place<Target>(target)(std::forward<Arguments>(arguments)...);
      },
      [](void* from, void* to) noexcept {
        new (to) Target(std::move(in_place<Target>(from)));
        std::destroy_at(&in_place<Target>(from));
      },
      [](void* target) noexcept { std::destroy_at(&in_place<Target>(target)); }};
  template <typename Target>
  static constexpr Operations kOnHeap{
      [](void* target, Arguments&&... arguments) -> Result {
        return (*in_place<Target*>(target))(std::forward<Arguments>(arguments)...);
      },
      [](void* from, void* to) noexcept { new (to) Target*(in_place<Target*>(from)); },
      [](void* target) noexcept { delete in_place<Target*>(target); }};

  void take(InlineFunction& other) {
    operations_ = std::exchange(other.operations_, nullptr);
    if (operations_ != nullptr) operations_->move(other.storage_, storage_);
  }

  const Operations* operations_ = nullptr;
  alignas(void*) std::byte storage_[kBytes];
};

}  // namespace fargpu
