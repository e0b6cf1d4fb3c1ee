// The recursive-descent parser behind parse_module: one class, split over parser.cc (module and
// function level), parser_declarations.cc (variables and initialisers) and parser_statements.cc
// (instructions and operands). Methods return false after they have put the cause into error_.
// Private to this folder.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "sim/ptx/constant.h"
#include "sim/ptx/diagnostic.h"
#include "sim/ptx/lexer.h"
#include "sim/ptx/module.h"

namespace fargpu::sim::ptx {

class Parser {
 public:
  explicit Parser(std::string_view text);
  bool run(Module& module);
  const Diagnostic& error() const { return error_; }

 private:
  static constexpr int kMaxNesting = 64;
  static constexpr uint64_t kMaxVariableBytes = uint64_t{1} << 40;
  static constexpr size_t kMaxRegisters = size_t{1} << 20;

  struct RegisterRange {
    Type type;
    uint64_t count;
  };
  struct LabelUse {
    std::string_view name;
    bool in_targets;  // of Label::targets, else of an instruction's operand
    uint32_t owner, position;
    int line;
  };
  struct Scope {
    std::unordered_map<std::string_view, uint32_t> registers, variables, labels;
    std::unordered_map<std::string_view, RegisterRange> ranges;
    std::vector<LabelUse> uses;
  };

  // Tokens.
  const Token& peek(size_t ahead = 0) const;
  const Token& take();
  bool accept(char c);
  bool expect(char c);
  bool fail(std::string message);
  bool fail_at(int line, std::string message, Diagnostic::Kind kind = Diagnostic::Kind::kInvalid);
  bool expect_integer(uint64_t& value);
  bool expect_name(std::string_view& name);

  // Module level.
  bool parse_top();
  bool parse_version();
  bool parse_target();
  bool parse_function(bool is_entry, Linkage linkage);
  bool parse_function_directives(Function& function);
  bool parse_parameters(char close, std::vector<Variable>& variables, bool named);
  bool parse_alias();
  bool skip_block();
  bool skip_file();
  bool skip_location();
  bool skip_to_semicolon();

  // Declarations.
  bool parse_variable(Space space, Linkage linkage, std::vector<Variable>& out, bool parameter);
  bool parse_dimensions(Variable& variable, unsigned vector);
  bool parse_initializer(Variable& variable, uint64_t element_bytes);
  bool parse_initial_values(Variable& variable, unsigned element, uint64_t& offset, int depth);
  bool parse_initial_value(Variable& variable, unsigned element, uint64_t offset);
  bool parse_registers();

  // Statements.
  bool parse_body(Function& function);
  bool parse_statement();
  bool parse_body_directive();
  bool parse_labelled(std::string_view name, int line);
  bool parse_instruction();
  bool parse_guard(Instruction& instruction);
  bool parse_operand(Operand& operand, int depth, bool in_call);
  bool parse_address(Operand& operand, int depth);
  bool parse_list(Operand& operand, char close, int depth, bool in_call);
  bool parse_name(Operand& operand);
  bool parse_offset(uint64_t& value);
  void note_labels(Instruction& instruction);
  void open_scope();
  bool close_scope();
  bool declare_variables(size_t first);
  bool find_register(std::string_view name, uint32_t& index);
  bool find_variable(std::string_view name, uint32_t& index) const;

  // Constant expressions.
  bool parse_constant(Constant& value);
  bool parse_ternary(Constant& value, int depth);
  bool parse_binary(Constant& value, int precedence, int depth);
  bool parse_unary(Constant& value, int depth);
  bool apply(std::string_view op, Constant& left, const Constant& right);

  std::vector<Token> tokens_;
  size_t at_ = 0;
  Diagnostic error_;
  Module* module_ = nullptr;
  std::unordered_map<std::string_view, size_t> function_names_, variable_names_;
  Function* function_ = nullptr;
  std::vector<Scope> scopes_;
};

}  // namespace fargpu::sim::ptx
