// Every instruction form that real programs are known to contain (forms.txt) is executed or refused
// by its name. Forms that count as executed are also loaded in a kernel with operands of the right
// shapes.
#include <fstream>
#include <set>

#include "tests/ptx/engine_fixture.h"

namespace fargpu::sim {
namespace {

std::vector<std::string> forms() {
  std::ifstream file(FARGPU_PTX_FORMS);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && line[0] != '#') lines.push_back(line);
  }
  return lines;
}

std::vector<std::string> split(const std::string& form) {
  std::vector<std::string> words;
  for (size_t start = 0; start <= form.size();) {
    const size_t end = std::min(form.find('.', start), form.size());
    words.push_back(form.substr(start, end - start));
    start = end + 1;
  }
  return words;
}

bool has(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// A register of a type; each has two names, a and b.
std::string reg(const std::string& type, char which) {
  if (type == "pred") return std::string("%p") + which;
  const std::string bits = type == "f16x2" ? "32" : type.substr(type.find_first_of("0123456789"));
  return "%r" + (bits == "8" ? std::string("16") : bits) + which;
}

std::string join(std::initializer_list<std::string> parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? " " : ", ") + part;
  return text;
}

// A vector of registers. f64 needs wide ones.
std::string fragment(const std::string& type, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    text += i == 0 ? "{" : ", ";
    text += type == "f64" ? "%r64a" : "%r32a";
  }
  return text + "}";
}

// Of wmma, in the shapes that are in the list: 16x16 with K of 16 or 8, and f64's 8x8x4.
std::string wmma_operands(const std::vector<std::string>& words) {
  const std::string& type = words.back() == "rn" ? words[words.size() - 2] : words.back();
  const bool wide = type == "f64";
  const auto operand = [&](const std::string& of) {
    return fragment(of, wide ? 1 : of == "u8" ? 2 : of == "tf32" || of == "bf16" ? 4 : 8);
  };
  const auto accumulator = [&](const std::string& of) {
    return fragment(of, wide ? 2 : of == "f16" ? 4 : 8);
  };
  if (words[1] == "mma") {
    const std::string& a = words.size() > 9 ? words[8] : "f16";
    return join({accumulator(words[7]), operand(a), operand(a), accumulator(type)});
  }
  const std::string address = has(words, "shared") ? "[%r32b]" : "[%r64b]";
  if (words[1] == "store") return join({address, accumulator(type), "%r32c"});
  return join({words[2] == "c" ? accumulator(type) : operand(type), address, "%r32c"});
}

// Operands for a form, by opcode: d destination, then sources of the last type unless the
// instruction says otherwise.
std::string operands(const std::vector<std::string>& words) {
  const std::string& op = words[0];
  std::vector<std::string> types;
  for (const std::string& word : words) {
    static const std::set<std::string> known = {"pred", "b8",  "b16", "b32",  "b64",  "u8",  "u16",
                                                "u32",  "u64", "s8",  "s16",  "s32",  "s64", "f16",
                                                "bf16", "f32", "f64", "tf32", "f16x2"};
    if (known.contains(word)) types.push_back(word == "tf32" ? "b32" : word);
  }
  const std::string last = types.empty() ? "" : types.back();
  const bool shared = has(words, "shared") || has(words, "shared::cta");
  const std::string address = has(words, "param")   ? "[param]"
                              : shared              ? "[%r32a]"
                              : has(words, "local") ? "[buffer]"
                              : has(words, "const") ? "[constant]"
                                                    : "[%r64a]";
  if (op == "ret" || op == "exit" || op == "trap" || op == "membar" || op == "fence" ||
      op == "griddepcontrol")
    return "";
  if (op == "bra") return " TARGET";
  if (op == "call") return " helper";
  if (op == "barrier" || op == "bar") {
    if (has(words, "warp")) return " -1";
    return has(words, "red") ? " %pa, 0, %pb" : " 0";
  }
  if (op == "nanosleep") return " 10";
  if (op == "setmaxnreg") return " 40";
  if (op == "mbarrier") {
    if (words[1] == "init" || words[1] == "expect_tx") return " [%r32a], 16";
    if (words[1] == "inval") return " [%r32a]";
    if (words[1] == "arrive") return " %r64a, [%r32a]";
    return has(words, "parity") ? " %pa, [%r32a], 1" : " %pa, [%r32a], %r64a";
  }
  if (op == "cp")
    return has(words, "commit_group") ? ""
           : has(words, "wait_group") ? " 0"
           : has(words, "mbarrier")   ? " [%r32a]"
           : has(words, "bulk")       ? " [%r32a], [%r64a], 16, [%r32b]"
                                      : " [%r32a], [%r64a], 16";
  if (op == "prefetch") return " [%r64a]";
  if (op == "activemask") return " %r32a";
  if (op == "wmma") return wmma_operands(words);
  if (op == "tex" || op == "suld" || op == "sust") {
    const std::string coordinates = has(words, "1d")   ? "{%r32b}"
                                    : has(words, "2d") ? "{%r32b, %r32c}"
                                                       : "{%r32b, %r32c, %r32d, %r32e}";
    const std::string place = "[%r64a, " + coordinates + "]";
    const std::string type = op == "tex" ? "b32" : last == "b8" ? "b16" : "b32";
    const auto element = [&](char which) { return reg(type, which); };
    const std::string value = has(words, "v4") ? "{" + element('a') + ", " + element('b') + ", " +
                                                     element('c') + ", " + element('d') + "}"
                                               : element('a');
    if (op == "sust") return join({place, value});
    return has(words, "level") ? join({value, place, "%r32e"}) : join({value, place});
  }
  if (op == "ld" || op == "st") {
    const std::string target = has(words, "st") && has(words, "param") ? "[out]" : address;
    std::string value = reg(last, 'b');
    if (has(words, "v2")) value = "{" + value + ", " + reg(last, 'c') + "}";
    if (has(words, "v4"))
      value =
          "{" + value + ", " + reg(last, 'c') + ", " + reg(last, 'd') + ", " + reg(last, 'e') + "}";
    return op == "ld" ? join({value, target}) : join({target, value});
  }
  const std::string d = reg(last, 'a'), a = reg(last, 'b'), b = reg(last, 'c'), c = reg(last, 'd');
  if (op == "atom") return has(words, "cas") ? join({d, address, a, b}) : join({d, address, a});
  if (op == "red") return join({"[%r64a]", a});
  if (op == "mov" || op == "not" || op == "neg" || op == "abs" || op == "rcp" || op == "sqrt" ||
      op == "rsqrt" || op == "ex2" || op == "lg2" || op == "sin" || op == "cos" || op == "brev" ||
      op == "cvta") {
    return join({d, a});
  }
  if (op == "popc" || op == "clz" || op == "bfind") return join({"%r32a", a});
  if (op == "cvt") return join({reg(types[0], 'a'), a});
  if (op == "shl" || op == "shr") return join({d, a, "3"});
  if (op == "setp") return join({"%pa", a, b});
  if (op == "set") return join({reg(types[0], 'a'), a, b});
  if (op == "selp") return join({d, a, b, "%pa"});
  if (op == "fma" || op == "prmt" || op == "shf" || op == "vabsdiff4") return join({d, a, b, c});
  if (op == "bfi") return join({d, a, b, "%r32d", "%r32e"});
  if (op == "mad" || op == "mul") {
    const bool wide = has(words, "wide");
    const std::string result = wide ? reg(last == "u32" || last == "s32" ? "b64" : "b32", 'a') : d;
    return op == "mul" ? join({result, a, b}) : join({result, a, b, wide ? reg("b64", 'd') : c});
  }
  if (op == "shfl") return join({"%r32a|%pa", a, "1", "31", "-1"});
  if (op == "vote") return join({has(words, "ballot") ? "%r32a" : "%pa", "%pb", "-1"});
  if (op == "match") return join({"%r32a", a, "-1"});
  if (op == "redux") return join({d, a, "-1"});
  return join({d, a, b});
}

std::string kernel_with(const std::string& form) {
  const auto words = split(form);
  std::string registers;
  for (const char which : {'a', 'b', 'c', 'd', 'e'}) {
    registers += std::string("  .reg .pred %p") + which + "; .reg .b16 %r16" + which +
                 "; .reg .b32 %r32" + which + "; .reg .b64 %r64" + which + ";\n";
  }
  return module_text(
      ".const .align 16 .b8 constant[64];\n.func helper() { ret; }\n"
      ".visible .entry k(.param .align 16 .b8 param[64]) {\n" +
      registers + "  .local .align 16 .b8 buffer[64];\n  .param .align 16 .b8 out[64];\n  " + form +
      operands(words) + ";\nTARGET:\n  ret;\n}\n");
}

TEST_F(EngineTest, EveryKnownFormIsExecutedOrRefused) {
  const auto all = forms();
  ASSERT_GE(all.size(), 500u);
  size_t executed = 0, refused = 0;
  for (const std::string& form : all) {
    const FormSupport support = form_support(form);
    EXPECT_NE(support, FormSupport::kUnknown) << form;
    if (support == FormSupport::kExecuted) {
      ++executed;
      const LoadResult result = load_ptx(kernel_with(form), memory, options);
      EXPECT_NE(result.program, nullptr) << form << ": " << result.error.message;
    }
    refused += support == FormSupport::kRefused ? 1 : 0;
  }
  // All forms of the list are executed today.
  EXPECT_EQ(refused, 0u);
  EXPECT_EQ(executed, all.size());
  RecordProperty("executed", static_cast<int>(executed));
  RecordProperty("refused", static_cast<int>(refused));
}

TEST_F(EngineTest, UnknownFormsAreUnknown) {
  for (const char* form :
       {"frobnicate.u32", "add", "add.u8", "add.f32.fast", "ld.global", "ld.global.u32.wrong",
        "mul.s32", "cvt.s32.f32", "setp.lt.b32", "shfl.sync.sideways.b32", "atom.add.b32", ""}) {
    EXPECT_EQ(form_support(form), FormSupport::kUnknown) << form;
  }
}

TEST_F(EngineTest, RefusalNamesInstructionAndLine) {
  const LoadError error = load_error(module_text(R"(.visible .entry k() {
  .reg .b32 %r<20>;
  mov.u32 %r1, 1;
  mma.sp.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32
    {%r1,%r2,%r3,%r4}, {%r5,%r6,%r7,%r8}, {%r9,%r10}, {%r1,%r2,%r3,%r4}, %r1, 0;
  ret;
})"));
  EXPECT_EQ(error.kind, LoadError::Kind::kUnsupportedInstruction);
  EXPECT_NE(error.message.find("mma.sp.sync.aligned.m16n8k8"), std::string::npos) << error.message;
  EXPECT_EQ(error.line, 7);
}

}  // namespace
}  // namespace fargpu::sim
