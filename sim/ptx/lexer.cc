#include "sim/ptx/lexer.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <string>

namespace fargpu::sim::ptx {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$' || c == '%';
}
bool is_word(char c) { return is_word_start(c) || is_digit(c); }

int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

bool Lexer::skip_space() {
  const size_t start = at_;
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (c == '\n') {
      ++line_;
      ++at_;
    } else if (c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v') {
      ++at_;
    } else if (c == '/' && text_.substr(at_, 2) == "//") {
      while (at_ < text_.size() && text_[at_] != '\n') ++at_;
    } else if (c == '/' && text_.substr(at_, 2) == "/*") {
      size_t end = text_.find("*/", at_ + 2);
      end = end == std::string_view::npos ? text_.size() : end + 2;
      for (; at_ < end; ++at_) line_ += text_[at_] == '\n';
    } else {
      break;
    }
  }
  return at_ != start;
}

Token Lexer::make(TokenKind kind, size_t start) const {
  Token token;
  token.kind = kind;
  token.text = text_.substr(start, at_ - start);
  token.line = line_;
  return token;
}

Token Lexer::number(size_t start) {
  const auto radix = [&](int base) {
    uint64_t value = 0;
    bool bad = false;
    const size_t first = at_;
    while (at_ < text_.size()) {
      const int digit = hex_digit(text_[at_]);
      if (digit < 0 || digit >= base) break;
      bad |= value > (~uint64_t{0} - static_cast<uint64_t>(digit)) / static_cast<uint64_t>(base);
      value = value * static_cast<uint64_t>(base) + static_cast<uint64_t>(digit);
      ++at_;
    }
    bad |= at_ == first;
    const bool is_unsigned = at_ < text_.size() && text_[at_] == 'U';
    if (is_unsigned) ++at_;
    bad |= at_ < text_.size() && is_word(text_[at_]);
    Token token = make(bad ? TokenKind::kBad : TokenKind::kInteger, start);
    token.value = value;
    token.is_unsigned = is_unsigned;
    return token;
  };
  const auto float_bits = [&](size_t digits, TokenKind kind) {
    uint64_t value = 0;
    size_t n = 0;
    for (; n < digits && at_ < text_.size() && hex_digit(text_[at_]) >= 0; ++n, ++at_) {
      value = value << 4 | static_cast<uint64_t>(hex_digit(text_[at_]));
    }
    Token token = make(n == digits ? kind : TokenKind::kBad, start);
    token.value = value;
    return token;
  };
  if (text_[at_] == '0' && at_ + 1 < text_.size()) {
    const char c = text_[at_ + 1];
    if (c == 'x' || c == 'X') return at_ += 2, radix(16);
    if (c == 'b' || c == 'B') return at_ += 2, radix(2);
    if (c == 'f' || c == 'F') return at_ += 2, float_bits(8, TokenKind::kFloat32);
    if (c == 'd' || c == 'D') return at_ += 2, float_bits(16, TokenKind::kFloat64);
  }
  size_t end = at_;
  while (end < text_.size() && is_digit(text_[end])) ++end;
  bool decimal = false;
  if (end < text_.size() && text_[end] == '.' && end + 1 < text_.size() &&
      is_digit(text_[end + 1])) {
    decimal = true;
    ++end;
    while (end < text_.size() && is_digit(text_[end])) ++end;
  } else if (end < text_.size() && text_[end] == '.' &&
             (end + 1 == text_.size() || !is_word(text_[end + 1]))) {
    decimal = true;
    ++end;
  }
  if (end < text_.size() && (text_[end] == 'e' || text_[end] == 'E')) {
    size_t exponent = end + 1;
    if (exponent < text_.size() && (text_[exponent] == '+' || text_[exponent] == '-')) ++exponent;
    if (exponent < text_.size() && is_digit(text_[exponent])) {
      decimal = true;
      end = exponent;
      while (end < text_.size() && is_digit(text_[end])) ++end;
    }
  }
  if (!decimal) {
    const bool octal = text_[at_] == '0' && end - at_ > 1;
    return radix(octal ? 8 : 10);
  }
  const std::string digits(text_.substr(at_, end - at_));
  at_ = end;
  Token token = make(TokenKind::kFloat64, start);
  token.value = std::bit_cast<uint64_t>(std::strtod(digits.c_str(), nullptr));
  return token;
}

Token Lexer::next() {
  const bool glued = !skip_space() && at_ != 0;
  const size_t start = at_;
  Token token;
  if (at_ >= text_.size()) {
    token = make(TokenKind::kEnd, start);
  } else if (const char c = text_[at_];
             is_word_start(c) &&
             (c != '%' || (at_ + 1 < text_.size() && is_word_start(text_[at_ + 1])))) {
    ++at_;
    while (at_ < text_.size() && is_word(text_[at_]) && text_[at_] != '%') ++at_;
    token = make(TokenKind::kIdentifier, start);
  } else if (is_digit(c)) {
    token = number(start);
  } else if (c == '.' && at_ + 1 < text_.size() && is_word(text_[at_ + 1])) {
    ++at_;
    const auto word = [&] {
      while (at_ < text_.size() && is_word(text_[at_]) && text_[at_] != '%') ++at_;
    };
    word();
    while (text_.substr(at_, 2) == "::" && at_ + 2 < text_.size() && is_word(text_[at_ + 2])) {
      at_ += 2;
      word();
    }
    token = make(TokenKind::kDot, start);
    token.text.remove_prefix(1);
  } else if (c == '"') {
    size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != '"' && text_[end] != '\n') {
      end += text_[end] == '\\' && end + 1 < text_.size() && text_[end + 1] != '\n' ? 2 : 1;
    }
    const bool closed = end < text_.size() && text_[end] == '"';
    at_ = closed ? end + 1 : std::min(end, text_.size());
    token = make(closed ? TokenKind::kString : TokenKind::kBad, start);
    if (closed) token.text = token.text.substr(1, token.text.size() - 2);
  } else {
    constexpr std::string_view kPairs[] = {"<<", ">>", "<=", ">=", "==", "!=", "&&", "||"};
    ++at_;
    for (const std::string_view pair : kPairs) {
      if (text_.substr(start, 2) == pair) at_ = start + 2;
    }
    constexpr std::string_view kSingle = "(){}[]<>,;:+-*/%!~&|^?=@.";
    const bool known = at_ == start + 2 || kSingle.find(c) != std::string_view::npos;
    token = make(known ? TokenKind::kPunctuation : TokenKind::kBad, start);
  }
  token.glued = glued;
  return token;
}

}  // namespace fargpu::sim::ptx
