// Splits PTX text into tokens. The text must outlive the tokens; bytes that PTX does not know
// become kBad tokens, so the lexer itself never fails. Comments and white space are dropped. One
// lexer per thread.
#pragma once

#include <cstdint>
#include <string_view>

namespace fargpu::sim::ptx {

enum class TokenKind : uint8_t {
  kEnd,
  kIdentifier,   // name, %register, $label, _
  kDot,          // .word, with the following ::word parts; text is without the dot
  kInteger,      // value; is_unsigned for a U suffix
  kFloat32,      // 0fXXXXXXXX: bits
  kFloat64,      // 0dXXXXXXXXXXXXXXXX or decimal: bits of the double
  kString,       // text between the quotes
  kPunctuation,  // one character, or two for << >> <= >= == != && ||
  kBad,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string_view text;
  uint64_t value = 0;  // integer value or float bits
  bool is_unsigned = false;
  bool glued = false;  // no white space between this token and the one before
  int line = 0;

  bool is(char c) const {
    return kind == TokenKind::kPunctuation && text.size() == 1 && text[0] == c;
  }
  bool is(std::string_view s) const { return kind == TokenKind::kPunctuation && text == s; }
};

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}
  Token next();

 private:
  bool skip_space();  // true when anything was skipped
  Token number(size_t start);
  Token make(TokenKind kind, size_t start) const;

  std::string_view text_;
  size_t at_ = 0;
  int line_ = 1;
};

}  // namespace fargpu::sim::ptx
