// Runs one instruction (or a few) on arrays of inputs: registers %d (result), %a, %b, %c and
// predicates %p, %q are declared with the sizes of the C++ types; thread i works on element i.
#pragma once

#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

#include "tests/ptx/engine_fixture.h"

namespace fargpu::sim {

class OpTest : public EngineTest {
 protected:
  template <typename D, typename A, typename B = A, typename C = A>
  std::vector<D> apply(const std::string& text, const std::vector<A>& a,
                       const std::vector<B>& b = {}, const std::vector<C>& c = {}) {
    const auto bits = [](size_t size) { return std::to_string(size * 8); };
    const auto n = static_cast<uint32_t>(a.size());
    std::string body =
        ".visible .entry k(.param .u64 pd, .param .u64 pa, .param .u64 pb, .param .u64 pc, .param "
        ".u32 n) {\n"
        "  .reg .pred %p, %q, %out; .reg .b32 %i, %n, %t<20>; .reg .b64 %x, %y, %z, %u<10>;\n"
        "  .reg .b" +
        bits(sizeof(D)) + " %d; .reg .b" + bits(sizeof(A)) + " %a; .reg .b" + bits(sizeof(B)) +
        " %b; .reg .b" + bits(sizeof(C)) +
        " %c;\n"
        "  mov.u32 %i, %ctaid.x; mov.u32 %t0, %ntid.x; mov.u32 %n, %tid.x; mad.lo.u32 %i, %i, %t0, "
        "%n;\n"
        "  ld.param.u32 %n, [n]; setp.ge.u32 %out, %i, %n; @%out bra DONE;\n";
    const auto load_one = [&](const char* name, size_t size, const char* to) {
      body += std::string("  ld.param.u64 %x, [") + name + "]; mul.wide.u32 %y, %i, " +
              std::to_string(size) + "; add.u64 %x, %x, %y; ld.global.b" + bits(size) + " " + to +
              ", [%x];\n";
    };
    load_one("pa", sizeof(A), "%a");
    if (!b.empty()) load_one("pb", sizeof(B), "%b");
    if (!c.empty()) load_one("pc", sizeof(C), "%c");
    body += "  " + text + "\n  ld.param.u64 %x, [pd]; mul.wide.u32 %y, %i, " +
            std::to_string(sizeof(D)) + "; add.u64 %x, %x, %y; st.global.b" + bits(sizeof(D)) +
            " [%x], %d;\nDONE:\n  ret;\n}\n";
    load(module_text(body));
    if (!program) return std::vector<D>(n);
    const uint64_t da = buffer(a), db = buffer(b), dc = buffer(c), dd = buffer(std::vector<D>(n));
    run("k", (n + 95) / 96, 96, Parameters().add(dd).add(da).add(db).add(dc).add(n));
    std::vector<D> result = read<D>(dd, n);
    for (const uint64_t address : {da, db, dc, dd}) memory.release(address);
    return result;
  }

  // Numbers of all sizes with the corners of the type.
  template <typename T>
  std::vector<T> integers(size_t count) {
    static_assert(std::is_integral_v<T>);
    std::vector<T> values;
    const T corners[] = {0,
                         1,
                         static_cast<T>(-1),
                         2,
                         std::numeric_limits<T>::max(),
                         std::numeric_limits<T>::min(),
                         static_cast<T>(std::numeric_limits<T>::max() - 1),
                         31,
                         32,
                         33};
    for (size_t i = 0; i < count; ++i) {
      const uint64_t bits = random();
      if (i % 4 == 0)
        values.push_back(corners[bits % std::size(corners)]);
      else
        values.push_back(static_cast<T>(bits >> (random() % (sizeof(T) * 8) + 64 - sizeof(T) * 8)));
    }
    return values;
  }
  // Floats of all exponents with the corners of the format.
  template <typename T>
  std::vector<T> floats(size_t count) {
    using L = std::numeric_limits<T>;
    const T corners[] = {
        T{0},           -T{0},    T{1},        T{-1},    L::infinity(),   -L::infinity(),
        L::quiet_NaN(), L::max(), L::lowest(), L::min(), L::denorm_min(), -L::denorm_min(),
        T{0.5},         T{1.5},   T{2.5},      T{-0.5}};
    std::vector<T> values;
    for (size_t i = 0; i < count; ++i) {
      const uint64_t bits = random();
      if (i % 4 == 0) {
        values.push_back(corners[bits % std::size(corners)]);
      } else if (i % 4 == 1) {  // near one another, so that sums round
        values.push_back(static_cast<T>(static_cast<double>(static_cast<int64_t>(bits)) * 0x1p-60));
      } else if constexpr (sizeof(T) == 4) {
        values.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
      } else {
        values.push_back(std::bit_cast<double>(bits));
      }
    }
    return values;
  }
  template <typename T>
  std::vector<T> below(size_t count, uint64_t limit) {
    std::vector<T> values;
    for (size_t i = 0; i < count; ++i) values.push_back(static_cast<T>(random() % limit));
    return values;
  }
  uint64_t random() { return generator_(); }

  static constexpr size_t kCount = 1000;

 private:
  std::mt19937_64 generator_{12345};
};

// Same bits, or both not a number.
template <typename T>
bool same(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a) && std::isnan(b)) return true;
  }
  // NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): 0 and -0 differ.
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

}  // namespace fargpu::sim
