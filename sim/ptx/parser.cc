#include "sim/ptx/parser.h"

#include <fmt/core.h>

#include "sim/ptx/parser_impl.h"

namespace fargpu::sim::ptx {

Parser::Parser(std::string_view text) {
  Lexer lexer(text);
  do {
    tokens_.push_back(lexer.next());
  } while (tokens_.back().kind != TokenKind::kEnd);
}

const Token& Parser::peek(size_t ahead) const {
  return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
}

const Token& Parser::take() {
  const Token& token = tokens_[at_];
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool Parser::accept(char c) {
  if (!peek().is(c)) return false;
  take();
  return true;
}

bool Parser::fail_at(int line, std::string message, Diagnostic::Kind kind) {
  error_ = {kind, std::move(message), line};
  return false;
}

bool Parser::fail(std::string message) {
  const Token& token = peek();
  if (token.kind == TokenKind::kEnd)
    return fail_at(token.line, message + ", found the end of the text");
  return fail_at(token.line, fmt::format("{}, found '{}'", message, token.text.substr(0, 80)));
}

bool Parser::expect(char c) {
  if (accept(c)) return true;
  return fail(fmt::format("expected '{}'", c));
}

bool Parser::expect_integer(uint64_t& value) {
  if (peek().kind != TokenKind::kInteger) return fail("expected an integer");
  value = take().value;
  return true;
}

bool Parser::expect_name(std::string_view& name) {
  if (peek().kind != TokenKind::kIdentifier) return fail("expected a name");
  name = take().text;
  return true;
}

bool Parser::run(Module& module) {
  module_ = &module;
  if (!(peek().kind == TokenKind::kDot && peek().text == "version")) {
    return fail("a PTX module begins with .version");
  }
  while (peek().kind != TokenKind::kEnd) {
    if (!parse_top()) return false;
  }
  if (module.target_arch == 0) return fail("a PTX module needs a .target");
  return true;
}

bool Parser::parse_version() {
  // "9.0" arrives as one decimal number.
  const Token& token = take();
  if (token.kind != TokenKind::kFloat64 && token.kind != TokenKind::kInteger) {
    return fail_at(token.line, "expected a version like 9.0");
  }
  int major = 0, minor = 0;
  size_t i = 0;
  for (; i < token.text.size() && token.text[i] != '.'; ++i) {
    major = std::min(major * 10 + (token.text[i] - '0'), 1000);
  }
  for (++i; i < token.text.size() && token.text[i] >= '0' && token.text[i] <= '9'; ++i) {
    minor = std::min(minor * 10 + (token.text[i] - '0'), 9);
  }
  module_->version = major * 10 + minor;
  return true;
}

bool Parser::parse_target() {
  do {
    std::string_view name;
    const int line = peek().line;
    if (!expect_name(name)) return false;
    const size_t at = name.find('_');
    const std::string_view family = name.substr(0, at);
    if ((family == "sm" || family == "compute") && at != std::string_view::npos) {
      int arch = 0;
      for (const char c : name.substr(at + 1)) {
        if (c < '0' || c > '9') break;  // a suffix: sm_90a, sm_100f
        arch = std::min(arch * 10 + (c - '0'), 100000);
      }
      if (arch == 0) return fail_at(line, fmt::format("unknown target '{}'", name));
      module_->target_arch = arch;
    }
  } while (accept(','));
  return true;
}

bool Parser::parse_top() {
  if (accept(';')) return true;
  if (peek().is('@')) {  // @@DWARF lines of old compilers
    const int line = peek().line;
    while (peek().kind != TokenKind::kEnd && peek().line == line) take();
    return true;
  }
  Linkage linkage = Linkage::kLocal;
  for (;;) {
    if (peek().kind != TokenKind::kDot) return fail("expected a directive");
    const Token& directive = take();
    const std::string_view text = directive.text;
    if (text == "visible")
      linkage = Linkage::kVisible;
    else if (text == "weak")
      linkage = Linkage::kWeak;
    else if (text == "extern")
      linkage = Linkage::kExtern;
    else if (text == "common")
      linkage = Linkage::kCommon;
    else if (text == "version")
      return parse_version();
    else if (text == "target")
      return parse_target();
    else if (text == "address_size") {
      uint64_t size = 0;
      if (!expect_integer(size)) return false;
      if (size != 64) {
        return fail_at(directive.line, fmt::format(".address_size {} (only 64 runs)", size),
                       Diagnostic::Kind::kUnsupportedTarget);
      }
      return true;
    } else if (text == "entry")
      return parse_function(true, linkage);
    else if (text == "func")
      return parse_function(false, linkage);
    else if (text == "global")
      return parse_variable(Space::kGlobal, linkage, module_->variables, false);
    else if (text == "const")
      return parse_variable(Space::kConst, linkage, module_->variables, false);
    else if (text == "shared")
      return parse_variable(Space::kShared, linkage, module_->variables, false);
    else if (text == "local")
      return parse_variable(Space::kLocal, linkage, module_->variables, false);
    else if (text == "file")
      return skip_file();
    else if (text == "loc")
      return skip_location();
    else if (text == "section")
      return skip_block();
    else if (text == "pragma" || text == "tex")
      return skip_to_semicolon();
    else if (text == "alias")
      return parse_alias();
    else
      return fail_at(directive.line, fmt::format("unknown directive .{}", text));
  }
}

bool Parser::parse_alias() {
  Alias alias;
  alias.line = peek().line;
  if (!expect_name(alias.name) || !expect(',') || !expect_name(alias.target)) return false;
  module_->aliases.push_back(alias);
  return expect(';');
}

bool Parser::skip_to_semicolon() {
  while (!peek().is(';')) {
    if (peek().kind == TokenKind::kEnd) return fail("expected ';'");
    take();
  }
  take();
  return true;
}

bool Parser::skip_block() {
  while (!peek().is('{')) {
    if (peek().kind == TokenKind::kEnd) return fail("expected '{'");
    take();
  }
  int depth = 0;
  do {
    if (peek().kind == TokenKind::kEnd) return fail("expected '}'");
    const Token& token = take();
    if (token.is('{')) ++depth;
    if (token.is('}')) --depth;
  } while (depth > 0);
  return true;
}

bool Parser::skip_file() {
  uint64_t ignored = 0;
  if (!expect_integer(ignored)) return false;
  if (peek().kind != TokenKind::kString) return fail("expected a file name");
  take();
  while (accept(',')) {
    if (!expect_integer(ignored)) return false;
  }
  return true;
}

// .loc file line column [, function_name label [+ offset], inlined_at file line column]
bool Parser::skip_location() {
  uint64_t ignored = 0;
  for (int i = 0; i < 3; ++i) {
    if (!expect_integer(ignored)) return false;
  }
  while (accept(',')) {
    std::string_view word;
    if (!expect_name(word)) return false;
    if (word == "function_name") {
      if (!expect_name(word)) return false;
      if (accept('+') && !expect_integer(ignored)) return false;
    } else if (word == "inlined_at") {
      for (int i = 0; i < 3; ++i) {
        if (!expect_integer(ignored)) return false;
      }
    }
  }
  return true;
}

bool Parser::parse_parameters(char close, std::vector<Variable>& variables, bool named) {
  if (accept(close)) return true;
  do {
    const Token& directive = peek();
    if (directive.kind == TokenKind::kDot && directive.text == "reg") {
      return fail_at(directive.line, "parameters in .reg space are not supported",
                     Diagnostic::Kind::kUnsupportedInstruction);
    }
    if (directive.kind != TokenKind::kDot || directive.text != "param") {
      return fail("expected .param");
    }
    take();
    if (!parse_variable(Space::kParam, Linkage::kLocal, variables, true)) return false;
  } while (accept(','));
  return expect(close);
}

bool Parser::parse_function_directives(Function& function) {
  while (peek().kind == TokenKind::kDot) {
    const Token& directive = take();
    const std::string_view text = directive.text;
    if (text == "maxntid" || text == "reqntid" || text == "reqnctapercluster") {
      std::array<uint32_t, 3> sizes = {1, 1, 1};
      for (size_t i = 0; i < 3; ++i) {
        uint64_t size = 0;
        if (!expect_integer(size)) return false;
        if (size == 0 || size > 65536) {
          return fail_at(directive.line, fmt::format(".{} {} is out of range", text, size));
        }
        sizes[i] = static_cast<uint32_t>(size);
        if (!accept(',')) break;
      }
      if (text == "maxntid") function.max_threads = sizes;
      if (text == "reqntid") function.required_threads = sizes;
      if (text == "reqnctapercluster") function.required_cluster = sizes;
    } else if (text == "minnctapersm" || text == "maxnreg" || text == "maxnctapersm" ||
               text == "maxclusterrank" || text == "abi_preserve" ||
               text == "abi_preserve_control") {
      uint64_t ignored = 0;
      if (!expect_integer(ignored)) return false;
    } else if (text == "explicitcluster") {
      function.explicit_cluster = true;
    } else if (text == "noreturn") {
      function.no_return = true;
    } else if (text == "pragma") {
      if (!skip_to_semicolon()) return false;
    } else if (text == "attribute" || text == "blocksareclusters" || text == "unified") {
      if (peek().is('(')) {
        while (!accept(')')) {
          if (peek().kind == TokenKind::kEnd) return fail("expected ')'");
          take();
        }
      }
    } else {
      return fail_at(directive.line, fmt::format("unknown function directive .{}", text));
    }
  }
  return true;
}

bool Parser::parse_function(bool is_entry, Linkage linkage) {
  auto function = std::make_unique<Function>();
  function->is_entry = is_entry;
  function->linkage = linkage;
  function->line = peek().line;
  if (peek().kind == TokenKind::kDot && peek().text == "attribute") {
    if (!parse_function_directives(*function)) return false;
  }
  std::vector<Variable> faces;
  if (!is_entry && accept('(')) {
    if (!parse_parameters(')', faces, true)) return false;
  }
  const size_t returns = faces.size();
  if (!expect_name(function->name)) return false;
  if (accept('(') && !parse_parameters(')', faces, true)) return false;
  for (size_t i = 0; i < faces.size(); ++i) {
    (i < returns ? function->returns : function->params).push_back(static_cast<uint32_t>(i));
  }
  function->variables = std::move(faces);
  if (!parse_function_directives(*function)) return false;
  if (variable_names_.contains(function->name)) {
    return fail_at(function->line, fmt::format("'{}' is already a variable", function->name));
  }
  if (!accept(';')) {
    if (linkage == Linkage::kExtern) {
      return fail_at(function->line,
                     fmt::format(".extern function '{}' with a body", function->name));
    }
    if (!expect('{') || !parse_body(*function)) return false;
    function->has_body = true;
  }
  const auto [place, fresh] =
      function_names_.try_emplace(function->name, module_->functions.size());
  if (fresh) {
    module_->functions.push_back(std::move(function));
    return true;
  }
  auto& known = module_->functions[place->second];
  if (!function->has_body) return true;
  if (known->has_body) {
    return fail_at(function->line, fmt::format("function '{}' is defined twice", function->name));
  }
  known = std::move(function);
  return true;
}

std::optional<Module> parse_module(std::string_view text, Diagnostic& error) {
  Module module;
  Parser parser(text);
  if (!parser.run(module)) {
    error = parser.error();
    return std::nullopt;
  }
  return module;
}

}  // namespace fargpu::sim::ptx
