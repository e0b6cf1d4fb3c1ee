// Constant expressions: 64-bit integers with C's operators, and float constants with a sign.
#include <fmt/core.h>

#include <bit>

#include "sim/ptx/parser_impl.h"

namespace fargpu::sim::ptx {
namespace {

int precedence_of(const Token& token) {
  if (token.kind != TokenKind::kPunctuation) return 0;
  const std::string_view t = token.text;
  if (t == "*" || t == "/" || t == "%") return 10;
  if (t == "+" || t == "-") return 9;
  if (t == "<<" || t == ">>") return 8;
  if (t == "<" || t == ">" || t == "<=" || t == ">=") return 7;
  if (t == "==" || t == "!=") return 6;
  if (t == "&") return 5;
  if (t == "^") return 4;
  if (t == "|") return 3;
  if (t == "&&") return 2;
  if (t == "||") return 1;
  return 0;
}

double as_double(const Constant& c) {
  switch (c.kind) {
    case Constant::Kind::kFloat:
      return std::bit_cast<double>(c.value);
    case Constant::Kind::kSingle:
      return std::bit_cast<float>(static_cast<uint32_t>(c.value));
    case Constant::Kind::kInteger:
      break;
  }
  return c.is_unsigned ? static_cast<double>(c.value)
                       : static_cast<double>(static_cast<int64_t>(c.value));
}

}  // namespace

bool Parser::parse_constant(Constant& value) { return parse_ternary(value, 0); }

bool Parser::parse_ternary(Constant& value, int depth) {
  if (depth > kMaxNesting) return fail("an expression is nested too deeply");
  if (!parse_binary(value, 1, depth)) return false;
  if (!accept('?')) return true;
  Constant yes, no;
  if (!parse_ternary(yes, depth + 1) || !expect(':') || !parse_ternary(no, depth + 1)) return false;
  value = value.value != 0 ? yes : no;
  return true;
}

bool Parser::parse_binary(Constant& value, int precedence, int depth) {
  if (!parse_unary(value, depth)) return false;
  for (int found = precedence_of(peek()); found >= precedence; found = precedence_of(peek())) {
    const std::string_view op = take().text;
    Constant right;
    if (depth > kMaxNesting) return fail("an expression is nested too deeply");
    if (!parse_binary(right, found + 1, depth + 1)) return false;
    if (!apply(op, value, right)) return false;
  }
  return true;
}

bool Parser::parse_unary(Constant& value, int depth) {
  if (depth > kMaxNesting) return fail("an expression is nested too deeply");
  const Token& token = peek();
  if (token.is('(')) {
    take();
    if (peek().kind == TokenKind::kDot && (peek().text == "s64" || peek().text == "u64")) {
      const bool is_unsigned = take().text == "u64";
      if (!expect(')') || !parse_unary(value, depth + 1)) return false;
      value.is_unsigned = is_unsigned;
      return true;
    }
    return parse_ternary(value, depth + 1) && expect(')');
  }
  if (token.is('-') || token.is('+') || token.is('!') || token.is('~')) {
    take();
    if (!parse_unary(value, depth + 1)) return false;
    const bool integer = value.kind == Constant::Kind::kInteger;
    if (token.is('-')) {
      if (value.kind == Constant::Kind::kFloat) value.value ^= uint64_t{1} << 63;
      if (value.kind == Constant::Kind::kSingle) value.value ^= uint64_t{1} << 31;
      if (integer) value.value = 0 - value.value;
    } else if (!token.is('+')) {
      if (!integer) return fail_at(token.line, "! and ~ need an integer");
      value.value = token.is('!') ? value.value == 0 : ~value.value;
    }
    return true;
  }
  switch (token.kind) {
    case TokenKind::kInteger:
      value = {Constant::Kind::kInteger, token.value, token.is_unsigned};
      break;
    case TokenKind::kFloat64:
      value = {Constant::Kind::kFloat, token.value, false};
      break;
    case TokenKind::kFloat32:
      value = {Constant::Kind::kSingle, token.value, false};
      break;
    default:
      return fail("expected a number");
  }
  take();
  return true;
}

bool Parser::apply(std::string_view op, Constant& left, const Constant& right) {
  if (left.kind != Constant::Kind::kInteger || right.kind != Constant::Kind::kInteger) {
    const double a = as_double(left), b = as_double(right);
    double result = 0;
    if (op == "+")
      result = a + b;
    else if (op == "-")
      result = a - b;
    else if (op == "*")
      result = a * b;
    else if (op == "/" && b != 0)
      result = a / b;
    else
      return fail(fmt::format("operator {} on floating-point constants", op));
    left = {Constant::Kind::kFloat, std::bit_cast<uint64_t>(result), false};
    return true;
  }
  const bool is_unsigned = left.is_unsigned || right.is_unsigned;
  const uint64_t a = left.value, b = right.value;
  const auto sa = static_cast<int64_t>(a), sb = static_cast<int64_t>(b);
  uint64_t result = 0;
  const auto less = [&](uint64_t x, uint64_t y) {
    return is_unsigned ? x < y : static_cast<int64_t>(x) < static_cast<int64_t>(y);
  };
  if (op == "/" || op == "%") {
    if (b == 0) return fail("division by zero in an expression");
    const bool divide = op == "/";
    if (is_unsigned)
      result = divide ? a / b : a % b;
    else if (sb == -1)
      result = divide ? 0 - a : 0;
    else
      result = static_cast<uint64_t>(divide ? sa / sb : sa % sb);
  } else if (op == "*")
    result = a * b;
  else if (op == "+")
    result = a + b;
  else if (op == "-")
    result = a - b;
  else if (op == "<<")
    result = b < 64 ? a << b : 0;
  else if (op == ">>") {
    const unsigned by = b < 64 ? static_cast<unsigned>(b) : 63;
    result = left.is_unsigned ? (b < 64 ? a >> by : 0) : static_cast<uint64_t>(sa >> by);
  } else if (op == "<")
    result = less(a, b);
  else if (op == ">")
    result = less(b, a);
  else if (op == "<=")
    result = !less(b, a);
  else if (op == ">=")
    result = !less(a, b);
  else if (op == "==")
    result = a == b;
  else if (op == "!=")
    result = a != b;
  else if (op == "&")
    result = a & b;
  else if (op == "^")
    result = a ^ b;
  else if (op == "|")
    result = a | b;
  else if (op == "&&")
    result = a != 0 && b != 0;
  else if (op == "||")
    result = a != 0 || b != 0;
  left.value = result;
  left.is_unsigned = is_unsigned;
  return true;
}

}  // namespace fargpu::sim::ptx
