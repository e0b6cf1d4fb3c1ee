// The element types of warp matrices, by PTX's names. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace fargpu::sim {

enum class Element : uint8_t {
  kB1,
  kU4,
  kS4,
  kU8,
  kS8,
  kE4m3,
  kE5m2,
  kF16,
  kBf16,
  kTf32,
  kF32,
  kS32,
  kF64,
};

struct ElementRow {
  std::string_view name;
  uint8_t bits;
};
inline constexpr ElementRow kElements[] = {
    {"b1", 1},   {"u4", 4},    {"s4", 4},    {"u8", 8},   {"s8", 8},   {"e4m3", 8}, {"e5m2", 8},
    {"f16", 16}, {"bf16", 16}, {"tf32", 32}, {"f32", 32}, {"s32", 32}, {"f64", 64}};
inline constexpr std::string_view kElementNames =
    "b1 u4 s4 u8 s8 e4m3 e5m2 f16 bf16 tf32 f32 s32 f64";

inline unsigned element_bits(Element element) {
  return kElements[static_cast<size_t>(element)].bits;
}
inline bool is_whole_number(Element element) {
  return element <= Element::kS8 || element == Element::kS32;
}
inline std::optional<Element> element_from_name(std::string_view name) {
  for (size_t i = 0; i < sizeof kElements / sizeof kElements[0]; ++i) {
    if (kElements[i].name == name) return static_cast<Element>(i);
  }
  return std::nullopt;
}

}  // namespace fargpu::sim
