// Matrix instructions of a warp against plain matrix products, with the fragment layouts that the
// PTX ISA gives.
#include "sim/image/half_math.h"
#include "tests/ptx/engine_fixture.h"

namespace fargpu::sim {
namespace {

// A small whole number as an element of the type; exact in all of them.
uint64_t encoded(const std::string& type, int value) {
  static const uint64_t e4m3[] = {0, 0x38, 0x40, 0x44, 0x48}, e5m2[] = {0, 0x3c, 0x40, 0x42, 0x44};
  const auto index = static_cast<size_t>(std::abs(value));
  if (type == "e4m3") return e4m3[index] | (value < 0 ? 0x80 : 0);
  if (type == "e5m2") return e5m2[index] | (value < 0 ? 0x80 : 0);
  if (type == "f16") return double_to_half<F16>(value, HalfRounding::kNearest);
  if (type == "bf16") return double_to_half<Bf16>(value, HalfRounding::kNearest);
  if (type == "tf32" || type == "f32") return std::bit_cast<uint32_t>(static_cast<float>(value));
  if (type == "f64") return std::bit_cast<uint64_t>(static_cast<double>(value));
  return static_cast<uint64_t>(value);
}

unsigned bits_of(const std::string& type) {
  if (type[0] == 'e') return 8;
  return static_cast<unsigned>(std::stoi(type.substr(type.find_first_of("123468"), 2)));
}

struct Form {
  std::string name;  // "m16n8k16.row.col.f32.f16.f16.f32"
  unsigned m, n, k;
  std::string d, a, b, c;
};

// Where lane l's element i of A, B and C belongs: {row, column}.
struct Place {
  unsigned row, column;
};
Place place_a(const Form& f, unsigned lane, unsigned i) {
  const unsigned per = f.a == "f64" ? 1 : 32 / bits_of(f.a), reg = i / per;
  if (f.m == 8) return {lane / 4, lane % 4 * per + i % per};
  return {lane / 4 + (reg % 2 != 0 ? 8 : 0), lane % 4 * per + i % per + reg / 2 * 4 * per};
}
Place place_b(const Form& f, unsigned lane, unsigned i) {
  const unsigned per = f.b == "f64" ? 1 : 32 / bits_of(f.b);
  return {lane % 4 * per + i % per + i / per * 4 * per, lane / 4};
}
Place place_c(unsigned lane, unsigned i) {
  return {lane / 4 + (i >= 2 ? 8 : 0), lane % 4 * 2 + i % 2};
}

class Words {
 public:
  Words(const std::string& type, size_t elements)
      : bits_(bits_of(type)),
        wide_(type == "f64"),
        registers_(elements * bits_ / 32 / (wide_ ? 64 : 32)),
        words_(elements * bits_ / 32) {}
  size_t registers() const { return registers_; }
  bool wide() const { return wide_; }
  const std::vector<uint32_t>& words() const { return words_; }
  size_t per_lane() const { return registers_ * (wide_ ? 64 : 32) / bits_; }
  void set(unsigned lane, size_t i, uint64_t value) {
    for (unsigned bit = 0; bit < bits_; ++bit) {
      const size_t at = position(lane, i) + bit;
      words_[at / 32] |= static_cast<uint32_t>(value >> bit & 1) << at % 32;
    }
  }
  uint64_t get(const std::vector<uint32_t>& words, unsigned lane, size_t i) const {
    uint64_t value = 0;
    for (unsigned bit = 0; bit < bits_; ++bit) {
      const size_t at = position(lane, i) + bit;
      value |= uint64_t{words[at / 32] >> at % 32 & 1u} << bit;
    }
    return value;
  }

 private:
  // In memory: for each lane its registers, one after the other.
  size_t position(unsigned lane, size_t i) const { return (lane * per_lane() + i) * bits_; }
  unsigned bits_;
  bool wide_;
  size_t registers_;
  std::vector<uint32_t> words_;
};

class MatrixTest : public EngineTest {
 protected:
  // A kernel that loads the fragments, runs `instruction` on {d}, {a}, {b}, {c} and stores {d}.
  static std::string kernel(const std::string& instruction, const Words& a, const Words& b,
                            const Words& c, const Words& d) {
    std::string body =
        ".visible .entry k(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u64 pd) {\n"
        "  .reg .b32 %ra<9>, %rb<9>, %rc<9>, %rd<9>, %lane; .reg .f64 %wa<9>, %wb<9>, %wc<9>, "
        "%wd<9>; .reg .b64 %p, %o;\n  mov.u32 %lane, %laneid;\n";
    const auto part = [&](char name, const Words& w, bool store) {
      const std::string bytes = std::to_string(w.registers() * (w.wide() ? 8 : 4));
      body += std::string("  ld.param.u64 %p, [p") + name + "]; mul.wide.u32 %o, %lane, " + bytes +
              "; add.u64 %p, %p, %o;\n";
      for (size_t i = 0; i < w.registers(); ++i) {
        const std::string reg = std::string(w.wide() ? "%w" : "%r") + name + std::to_string(i);
        const std::string place = "[%p+" + std::to_string(i * (w.wide() ? 8 : 4)) + "]";
        const std::string type = w.wide() ? "f64" : "b32";
        body += store ? "  st.global." + type + " " + place + ", " + reg + ";\n"
                      : "  ld.global." + type + " " + reg + ", " + place + ";\n";
      }
    };
    const auto list = [](char name, const Words& w) {
      std::string text = "{";
      for (size_t i = 0; i < w.registers(); ++i) {
        text += i == 0 ? "" : ", ";
        text += w.wide() ? "%w" : "%r";
        text += name + std::to_string(i);
      }
      return text + "}";
    };
    part('a', a, false), part('b', b, false), part('c', c, false);
    body += "  " + instruction + " " + list('d', d) + ", " + list('a', a) + ", " + list('b', b) +
            ", " + list('c', c) + ";\n";
    part('d', d, true);
    return module_text(body + "  ret;\n}\n");
  }

  static int small(const std::string& type, size_t i) {
    const auto value = static_cast<int>(i * 2654435761u >> 7 & 0xffff);
    if (type == "b1") return value % 2;
    if (type[0] == 'u') return value % 8;
    return value % 7 - 3;
  }

  void check(const Form& f, const std::string& logic = "") {
    const std::string suffix = logic.empty() ? "" : "." + logic + ".popc";
    Words a(f.a, f.m * f.k), b(f.b, f.k * f.n), c(f.c, f.m * f.n);
    const Words d(f.d, f.m * f.n);
    const auto at_a = [&](unsigned row, unsigned k) { return small(f.a, row * 512 + k); };
    const auto at_b = [&](unsigned k, unsigned column) { return small(f.b, k * 16 + column + 77); };
    const auto at_c = [&](Place p) { return small(f.c, p.row * 8 + p.column + 5); };
    for (unsigned l = 0; l < 32; ++l) {
      for (unsigned i = 0; i < a.per_lane(); ++i) {
        const Place p = place_a(f, l, i);
        a.set(l, i, encoded(f.a, at_a(p.row, p.column)));
      }
      for (unsigned i = 0; i < b.per_lane(); ++i) {
        const Place p = place_b(f, l, i);
        b.set(l, i, encoded(f.b, at_b(p.row, p.column)));
      }
      for (unsigned i = 0; i < c.per_lane(); ++i) c.set(l, i, encoded(f.c, at_c(place_c(l, i))));
    }
    load(kernel("mma.sync.aligned." + f.name + suffix, a, b, c, d));
    ASSERT_TRUE(program) << f.name;
    const uint64_t out = buffer(std::vector<uint32_t>(d.words().size()));
    run("k", 1, 32,
        Parameters().add(buffer(a.words())).add(buffer(b.words())).add(buffer(c.words())).add(out));
    const auto result = read<uint32_t>(out, d.words().size());
    for (unsigned l = 0; l < 32; ++l) {
      for (unsigned i = 0; i < d.per_lane(); ++i) {
        const Place p = place_c(l, i);
        int sum = at_c(p);
        for (unsigned k = 0; k < f.k; ++k) {
          const int x = at_a(p.row, k), y = at_b(k, p.column);
          sum += logic == "xor" ? x ^ y : logic == "and" ? x & y : x * y;
        }
        const uint64_t mask = f.d == "f64" ? ~uint64_t{0} : (uint64_t{1} << bits_of(f.d)) - 1;
        ASSERT_EQ(d.get(result, l, i), encoded(f.d, sum) & mask)
            << f.name << " lane " << l << " element " << i;
      }
    }
  }
};

Form form(const std::string& shape, const std::string& d, const std::string& a,
          const std::string& b, const std::string& c, const std::string& more = "") {
  Form f{shape + ".row.col" + more + "." + d + "." + a + "." + b + "." + c, 0, 0, 0, d, a, b, c};
  EXPECT_EQ(std::sscanf(shape.c_str(), "m%un%uk%u", &f.m, &f.n, &f.k), 3);
  return f;
}

TEST_F(MatrixTest, FloatingPoint) {
  for (const char* shape : {"m16n8k8", "m16n8k16"}) {
    check(form(shape, "f32", "f16", "f16", "f32"));
    check(form(shape, "f16", "f16", "f16", "f16"));
    check(form(shape, "f32", "bf16", "bf16", "f32"));
  }
  check(form("m16n8k4", "f32", "tf32", "tf32", "f32"));
  check(form("m16n8k8", "f32", "tf32", "tf32", "f32"));
  check(form("m16n8k32", "f32", "e4m3", "e5m2", "f32"));
  check(form("m16n8k16", "f16", "e5m2", "e5m2", "f16"));
  for (const char* shape : {"m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16"})
    check(form(shape, "f64", "f64", "f64", "f64"));
}

TEST_F(MatrixTest, Integers) {
  for (const char* shape : {"m8n8k16", "m16n8k16", "m16n8k32"}) {
    check(form(shape, "s32", "s8", "s8", "s32"));
    check(form(shape, "s32", "u8", "s8", "s32", ".satfinite"));
  }
  for (const char* shape : {"m8n8k32", "m16n8k32", "m16n8k64"}) {
    check(form(shape, "s32", "s4", "u4", "s32"));
    check(form(shape, "s32", "s4", "s4", "s32"));
  }
  for (const char* shape : {"m8n8k128", "m16n8k128", "m16n8k256"}) {
    check(form(shape, "s32", "b1", "b1", "s32"), "xor");
    check(form(shape, "s32", "b1", "b1", "s32"), "and");
  }
}

TEST_F(MatrixTest, SaturationAndWrapping) {
  for (const bool saturate : {false, true}) {
    Words a("s8", 8 * 16), b("s8", 16 * 8), c("s32", 64);
    for (unsigned l = 0; l < 32; ++l) {
      for (unsigned i = 0; i < 4; ++i) a.set(l, i, 127), b.set(l, i, 127);
      c.set(l, 0, 0x7fffffff), c.set(l, 1, 0x80000000);
    }
    load(kernel(std::string("mma.sync.aligned.m8n8k16.row.col") + (saturate ? ".satfinite" : "") +
                    ".s32.s8.s8.s32",
                a, b, c, c));
    const uint64_t out = buffer(std::vector<uint32_t>(64));
    run("k", 1, 32,
        Parameters().add(buffer(a.words())).add(buffer(b.words())).add(buffer(c.words())).add(out));
    const auto r = read<uint32_t>(out, 64);
    EXPECT_EQ(r[0], saturate ? 0x7fffffffu : 0x7fffffffu + 16 * 127 * 127);
    EXPECT_EQ(r[1], 0x80000000u + 16 * 127 * 127);
  }
}

// Four products, each of eight lanes (l % 16 / 4 says of which).
TEST_F(MatrixTest, QuadPairs) {
  for (const char* layouts : {"row.row", "row.col", "col.row", "col.col"}) {
    for (const std::string d_type : {"f16", "f32"}) {
      Words a("f16", 4 * 32), b("f16", 4 * 32), c("f32", 4 * 64);
      const Words d(d_type, 4 * 64);
      const auto at_a = [](unsigned q, unsigned row, unsigned k) {
        return small("f16", q * 100 + row * 4 + k);
      };
      const auto at_b = [](unsigned q, unsigned k, unsigned n) {
        return small("f16", q * 211 + k * 8 + n);
      };
      const bool a_row = layouts[0] == 'r', b_row = layouts[4] == 'r';
      for (unsigned l = 0; l < 32; ++l) {
        const unsigned q = l % 16 / 4, high = l < 16 ? 0 : 4;
        for (unsigned i = 0; i < 4; ++i) {
          a.set(l, i, encoded("f16", a_row ? at_a(q, l % 4 + high, i) : at_a(q, i + high, l % 4)));
          b.set(l, i, encoded("f16", b_row ? at_b(q, l % 4, i + high) : at_b(q, i, l % 4 + high)));
        }
        for (unsigned i = 0; i < 8; ++i) c.set(l, i, encoded("f32", 2));
      }
      load(kernel(std::string("mma.sync.aligned.m8n8k4.") + layouts + "." + d_type + ".f16.f16.f32",
                  a, b, c, d));
      const uint64_t out = buffer(std::vector<uint32_t>(d.words().size()));
      run("k", 1, 32,
          Parameters()
              .add(buffer(a.words()))
              .add(buffer(b.words()))
              .add(buffer(c.words()))
              .add(out));
      const auto r = read<uint32_t>(out, d.words().size());
      for (unsigned l = 0; l < 32; ++l) {
        const unsigned q = l % 16 / 4, high = l < 16 ? 0 : 4;
        for (unsigned i = 0; i < 8; ++i) {
          const bool half = d_type == "f16";
          const unsigned row = half ? l % 4 + high : (l & 1) + (i & 2) + high;
          const unsigned column = half ? i : (i & 4) + (l & 2) + (i & 1);
          int sum = 2;
          for (unsigned k = 0; k < 4; ++k) sum += at_a(q, row, k) * at_b(q, k, column);
          ASSERT_EQ(d.get(r, l, i), encoded(d_type, sum)) << layouts << " " << l << " " << i;
        }
      }
    }
  }
}

// The usual way of a product in shared memory: A row by row, B row by row by way of .trans.
constexpr const char* kTiles = R"(
.visible .entry k(.param .u64 pa, .param .u64 pb, .param .u64 pd) {
  .shared .align 16 .b8 a[512]; .shared .align 16 .b8 b[256]; .shared .align 16 .b8 d[256];
  .reg .b32 %r<30>; .reg .b64 %rd<10>; .reg .b128 %v; .reg .pred %p;
  mov.u32 %r1, %laneid; mul.wide.u32 %rd1, %r1, 16; mul.lo.u32 %r2, %r1, 16;
  ld.param.u64 %rd2, [pa]; add.u64 %rd2, %rd2, %rd1; ld.global.v4.u32 {%r3,%r4,%r5,%r6}, [%rd2];
  mov.u32 %r7, a; add.u32 %r7, %r7, %r2; st.shared.v4.u32 [%r7], {%r3,%r4,%r5,%r6};
  setp.lt.u32 %p, %r1, 16;
  ld.param.u64 %rd2, [pb]; add.u64 %rd2, %rd2, %rd1;
  @%p ld.global.v4.u32 {%r3,%r4,%r5,%r6}, [%rd2];
  mov.u32 %r7, b; add.u32 %r7, %r7, %r2; @%p st.shared.v4.u32 [%r7], {%r3,%r4,%r5,%r6};
  bar.warp.sync -1;
  and.b32 %r8, %r1, 15; shr.u32 %r9, %r1, 4; mul.lo.u32 %r8, %r8, 32; mad.lo.u32 %r8, %r9, 16, %r8;
  mov.u32 %r7, a; add.u32 %r8, %r8, %r7;
  ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10,%r11,%r12,%r13}, [%r8];
  and.b32 %r8, %r1, 15; mul.lo.u32 %r8, %r8, 16; mov.u32 %r7, b; add.u32 %r8, %r8, %r7;
  ldmatrix.sync.aligned.m8n8.x2.trans.shared::cta.b16 {%r14,%r15}, [%r8];
  mov.u32 %r16, 0;
  mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%r17,%r18}, {%r10,%r11,%r12,%r13},
    {%r14,%r15}, {%r16,%r16};
  movmatrix.sync.aligned.m8n8.trans.b16 %r17, %r17;
  movmatrix.sync.aligned.m8n8.trans.b16 %r18, %r18;
  and.b32 %r8, %r1, 15; mul.lo.u32 %r8, %r8, 16; mov.u32 %r7, d; add.u32 %r8, %r8, %r7;
  stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%r8], {%r17,%r18};
  bar.warp.sync -1;
  mov.u32 %r7, d; add.u32 %r7, %r7, %r2; @%p ld.shared.v4.u32 {%r3,%r4,%r5,%r6}, [%r7];
  ld.param.u64 %rd2, [pd]; add.u64 %rd2, %rd2, %rd1; @%p st.global.v4.u32 [%rd2], {%r3,%r4,%r5,%r6};
  ret;
})";

TEST_F(MatrixTest, TilesOfSharedMemory) {
  load(module_text(kTiles));
  std::vector<uint16_t> a(16 * 16), b(16 * 8);
  for (size_t i = 0; i < a.size(); ++i)
    a[i] = static_cast<uint16_t>(encoded("f16", small("f16", i)));
  for (size_t i = 0; i < b.size(); ++i)
    b[i] = static_cast<uint16_t>(encoded("f16", small("f16", i + 999)));
  const uint64_t out = buffer(std::vector<uint16_t>(16 * 8));
  run("k", 1, 32, Parameters().add(buffer(a)).add(buffer(b)).add(out));
  const auto r = read<uint16_t>(out, 16 * 8);
  for (size_t row = 0; row < 16; ++row) {
    for (size_t column = 0; column < 8; ++column) {
      int sum = 0;
      for (size_t k = 0; k < 16; ++k)
        sum += small("f16", row * 16 + k) * small("f16", k * 8 + column + 999);
      ASSERT_EQ(r[row * 8 + column], encoded("f16", sum)) << row << " " << column;
    }
  }
}

// Lanes that took different ways meet at the product; it sees what all of them brought.
TEST_F(MatrixTest, DivergedLanesMeet) {
  load(module_text(R"(
.visible .entry k(.param .u64 out) {
  .reg .b32 %r<10>; .reg .f64 %f<6>; .reg .b64 %rd<4>; .reg .pred %p;
  mov.u32 %r1, %laneid; setp.lt.u32 %p, %r1, 7; @%p bra LOW;
  mov.f64 %f1, 0d3FF0000000000000; bra NEXT;
LOW: mov.f64 %f1, 0d4000000000000000;
NEXT:
  @%p bra AGAIN;
AGAIN:
  mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%f2,%f3}, {%f1}, {%f1}, {%f1,%f1};
  ld.param.u64 %rd1, [out]; mul.wide.u32 %rd2, %r1, 8; add.u64 %rd1, %rd1, %rd2;
  st.global.f64 [%rd1], %f2;
  ret;
})"));
  const uint64_t out = buffer(std::vector<double>(32));
  run("k", 1, 32, Parameters().add(out));
  const auto r = read<double>(out, 32);
  EXPECT_EQ(r[0], 2 + 16);  // row 0 and column 0: lanes 0 to 3
  EXPECT_EQ(r[31], 1 + 4);
}

TEST_F(MatrixTest, WhatDoesNotExistIsRefused) {
  const auto kind_of = [&](const std::string& instruction) {
    const LoadError error = load_error(
        module_text(".visible .entry k() { .reg .b32 %r<9>; .reg .b64 %rd<3>; .reg .f64 %f<3>;\n" +
                    instruction + ";\n ret; }"));
    EXPECT_EQ(error.line, 5) << error.message;
    return error.kind;
  };
  using Kind = LoadError::Kind;
  for (const char* text :
       {"mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r1,%r2,%r3,%r4}, {%r5,%r6}, "
        "{%r7,%r8}, {%r1,%r2,%r3,%r4}, %r1, 0",
        "mma.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {%r1,%r2,%r3,%r4}, {%r5,%r6}, {%r7}, "
        "{%r1,%r2,%r3,%r4}",
        "mma.sync.aligned.m16n8k8.col.col.f32.f16.f16.f32 {%r1,%r2,%r3,%r4}, {%r5,%r6}, {%r7}, "
        "{%r1,%r2,%r3,%r4}",
        "wgmma.fence.sync.aligned", "tcgen05.fence::before_thread_sync",
        "ldmatrix.sync.aligned.m8n16.x1.shared.b8 {%r1}, [%rd1]"}) {
    EXPECT_EQ(kind_of(text), Kind::kUnsupportedInstruction) << text;
  }
  EXPECT_EQ(kind_of("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%r1,%r2,%r3}, {%r5,%r6}, "
                    "{%r7}, {%r1,%r2,%r3,%r4}"),
            Kind::kInvalidPtx);
}

}  // namespace
}  // namespace fargpu::sim
