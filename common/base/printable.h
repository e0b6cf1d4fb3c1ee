// Text of another process, made fit for logs, terminals and messages.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace fargpu {

// `text` with everything that a terminal may act on, or that may hide what stands there, as \xNN:
// control characters (C0, DEL, C1), line ends of Unicode, marks of writing direction (U+061C,
// U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069), U+FEFF, and bytes that are not UTF-8. The
// result has at most `limit` bytes and is cut between characters.
std::string printable_line(std::string_view text, size_t limit);
// The same for a field within quotation marks: those in `text` become apostrophes.
std::string printable(std::string_view text, size_t limit);

}  // namespace fargpu
