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
    using Held = std::remove_cvref_t<F>;
    if constexpr (fits<Held>()) {
      new (storage_) Held(std::forward<F>(function));
      operations_ = &kInPlace<Held>;
    } else {
      new (storage_) Held*(new Held(std::forward<F>(function)));
      operations_ = &kOnHeap<Held>;
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
    if (const Operations* const held = std::exchange(operations_, nullptr)) held->destroy(storage_);
  }

 private:
  struct Operations {
    Result (*call)(void* held, Arguments&&... arguments);
    void (*move)(void* from, void* to) noexcept;  // `from` holds nothing afterwards
    void (*destroy)(void* held) noexcept;
  };
  template <typename Held>
  static constexpr bool fits() {
    return sizeof(Held) <= kBytes && alignof(Held) <= alignof(void*) &&
           std::is_nothrow_move_constructible_v<Held>;
  }
  template <typename Held>
  static Held& in_place(void* held) {
    return *std::launder(static_cast<Held*>(held));
  }
  template <typename Held>
  static constexpr Operations kInPlace{
      [](void* held, Arguments&&... arguments) -> Result {
        return in_place<Held>(held)(std::forward<Arguments>(arguments)...);
      },
      [](void* from, void* to) noexcept {
        new (to) Held(std::move(in_place<Held>(from)));
        std::destroy_at(&in_place<Held>(from));
      },
      [](void* held) noexcept { std::destroy_at(&in_place<Held>(held)); }};
  template <typename Held>
  static constexpr Operations kOnHeap{
      [](void* held, Arguments&&... arguments) -> Result {
        return (*in_place<Held*>(held))(std::forward<Arguments>(arguments)...);
      },
      [](void* from, void* to) noexcept { new (to) Held*(in_place<Held*>(from)); },
      [](void* held) noexcept { delete in_place<Held*>(held); }};

  void take(InlineFunction& other) {
    operations_ = std::exchange(other.operations_, nullptr);
    if (operations_ != nullptr) operations_->move(other.storage_, storage_);
  }

  const Operations* operations_ = nullptr;
  alignas(void*) std::byte storage_[kBytes];
};

}  // namespace fargpu
