// The bodies of fmt 9, once: what the library libfmt would bring, without a dependency of the
// client library on it. With FMT_HEADER_ONLY every file that formats a line would compile them
// again, which took most of a build under sanitizers.
#include <fmt/format-inl.h>

#include <locale>

namespace fmt {
inline namespace v9 {
namespace detail {
template auto dragonbox::to_decimal(float) noexcept -> dragonbox::decimal_fp<float>;
template auto dragonbox::to_decimal(double) noexcept -> dragonbox::decimal_fp<double>;
template locale_ref::locale_ref(const std::locale&);
template auto locale_ref::get<std::locale>() const -> std::locale;
template auto thousands_sep_impl(locale_ref) -> thousands_sep_result<char>;
template auto decimal_point_impl(locale_ref) -> char;
}  // namespace detail
}  // namespace v9
}  // namespace fmt
