// Texture fetches and surface accesses against formulas of the CUDA programming guide, written out
// here once more in the plainest way.
#include <bit>
#include <cmath>
#include <functional>

#include "tests/ptx/engine_fixture.h"

namespace fargpu::sim {
namespace {

constexpr uint64_t kTexture = 0x1234000, kSurface = 0x5678000;

// Memory in which one texture and one surface exist.
class ImageMemory : public MemoryMap {
 public:
  std::optional<Range> find(uint64_t address, size_t bytes) const override {
    return plain.find(address, bytes);
  }
  uint64_t allocate(size_t bytes) override { return plain.allocate(bytes); }
  void release(uint64_t address) override { plain.release(address); }
  std::shared_ptr<const Texture> texture(uint64_t value) const override {
    return value == kTexture ? made_texture : nullptr;
  }
  std::shared_ptr<const Surface> surface(uint64_t value) const override {
    return value == kSurface ? made_surface : nullptr;
  }

  TestMemory plain;
  std::shared_ptr<const Texture> made_texture;
  std::shared_ptr<const Surface> made_surface;
};

struct Four {
  uint32_t x = 0, y = 0, z = 0, w = 0;
  bool operator==(const Four&) const = default;
};
uint32_t bits(float value) { return std::bit_cast<uint32_t>(value); }
float number(uint32_t word) { return std::bit_cast<float>(word); }

class TextureTest : public testing::Test {
 protected:
  // What `body` makes of four words per thread.
  std::optional<Fault> run(const std::string& body, uint64_t object, const std::vector<Four>& in,
                           std::vector<Four>* out) {
    const std::string text = R"(.version 8.6
.target sm_90
.address_size 64
.visible .entry k(.param .u64 object, .param .u64 in, .param .u64 out) {
  .reg .b16 %h<5>; .reg .b32 %i, %c<5>, %o<5>; .reg .b64 %x, %in, %out, %at, %l<3>;
  mov.u32 %i, %tid.x;
  ld.param.u64 %x, [object]; ld.param.u64 %in, [in]; ld.param.u64 %out, [out];
  mul.wide.u32 %at, %i, 16; add.u64 %in, %in, %at; add.u64 %out, %out, %at;
  ld.global.v4.u32 {%c1, %c2, %c3, %c4}, [%in];
  mov.u32 %o1, 0; mov.u32 %o2, 0; mov.u32 %o3, 0; mov.u32 %o4, 0;
  )" + body + R"(
  st.global.v4.u32 [%out], {%o1, %o2, %o3, %o4};
  ret;
}
)";
    LoadResult loaded = load_ptx(text, memory_, {});
    EXPECT_NE(loaded.program, nullptr) << loaded.error.message;
    if (loaded.program == nullptr) return std::nullopt;
    const size_t bytes = in.size() * sizeof(Four);
    const uint64_t from = memory_.allocate(bytes), to = memory_.allocate(bytes);
    EXPECT_TRUE(from != 0 && to != 0);
    if (from == 0 || to == 0) return std::nullopt;
    std::memcpy(reinterpret_cast<void*>(from), in.data(), bytes);
    GridConfig config;
    config.block = {static_cast<uint32_t>(in.size()), 1, 1};
    auto fault = loaded.program->run(
        "k", config, Parameters().add(object).add(from).add(to).bytes(), [](std::string_view) {});
    out->resize(in.size());
    std::memcpy(out->data(), reinterpret_cast<const void*>(to), bytes);
    memory_.release(from);
    memory_.release(to);
    return fault;
  }
  std::vector<Four> fetch(const std::string& body, const std::vector<Four>& in) {
    std::vector<Four> out;
    const auto fault = run(body, kTexture, in, &out);
    EXPECT_FALSE(fault.has_value()) << fault->text;
    return out;
  }

  // Levels of one-channel floats that value(level, x, y, z) gives.
  void make(Image::Shape shape, uint32_t width, uint32_t height, uint32_t depth,
            const Sampler& sampler, unsigned levels = 1) {
    Image image;
    image.shape = shape;
    image.format = {PixelFormat::Kind::kFloat, 1, 4};
    data_.clear();
    for (unsigned level = 0; level < levels; ++level) {
      const uint32_t w = std::max(width >> level, 1u), h = std::max(height >> level, 1u);
      auto& values = data_.emplace_back(size_t{w} * h * depth);
      for (uint32_t z = 0; z < depth; ++z)
        for (uint32_t y = 0; y < h; ++y)
          for (uint32_t x = 0; x < w; ++x) values[(z * h + y) * w + x] = value(level, x, y, z);
      image.levels.push_back({reinterpret_cast<uint64_t>(values.data()), w, h, depth,
                              uint64_t{4} * w, uint64_t{4} * w * h});
    }
    memory_.made_texture = std::make_shared<Texture>(Texture{std::move(image), sampler});
  }
  static float value(unsigned level, uint32_t x, uint32_t y, uint32_t z) {
    return static_cast<float>(level * 1000 + z * 100 + y * 10 + x * x % 7);
  }

  ImageMemory memory_;
  std::vector<std::vector<float>> data_;
};

// The guide's formulas, for one axis of n elements; -1: the border.
int64_t guide_index(AddressMode mode, int64_t i, int64_t n) {
  if (mode == AddressMode::kClamp) return i < 0 ? 0 : i >= n ? n - 1 : i;
  if (mode == AddressMode::kBorder) return i < 0 || i >= n ? -1 : i;
  if (mode == AddressMode::kWrap) {
    while (i < 0) i += n;
    return i % n;
  }
  while (i < 0 || i >= n) i = i < 0 ? -1 - i : 2 * n - 1 - i;
  return i;
}

constexpr float kBorder = 77;

// T(x, y) by point or linear filtering. `at` are unnormalised places.
double guide_value(const std::function<double(int64_t, int64_t)>& texel, double x, double y,
                   bool linear) {
  if (!linear)
    return texel(static_cast<int64_t>(std::floor(x)), static_cast<int64_t>(std::floor(y)));
  const double bx = x - 0.5, by = y - 0.5;
  const auto i = static_cast<int64_t>(std::floor(bx)), j = static_cast<int64_t>(std::floor(by));
  // 9 bits, 8 of them behind the point.
  const double a = std::floor((bx - std::floor(bx)) * 256 + 0.5) / 256;
  const double b = std::floor((by - std::floor(by)) * 256 + 0.5) / 256;
  return (1 - a) * (1 - b) * texel(i, j) + a * (1 - b) * texel(i + 1, j) +
         (1 - a) * b * texel(i, j + 1) + a * b * texel(i + 1, j + 1);
}

TEST_F(TextureTest, FiltersAsTheGuideSays) {
  constexpr uint32_t kWidth = 7, kHeight = 5;
  for (const AddressMode mode :
       {AddressMode::kWrap, AddressMode::kClamp, AddressMode::kMirror, AddressMode::kBorder}) {
    for (const bool linear : {false, true}) {
      for (const bool normalized : {false, true}) {
        Sampler sampler;
        sampler.address = {mode, mode, mode};
        sampler.linear = linear;
        sampler.normalized = normalized;
        sampler.border = {kBorder, 0, 0, 0};
        make(Image::Shape::k2D, kWidth, kHeight, 1, sampler);
        std::vector<Four> in;
        // Sixteenths are exact in every representation that takes part.
        for (int y = -40; y <= 100; y += 20)
          for (int x = -70; x <= 190; x += 13)
            in.push_back({bits(static_cast<float>(x) / 16), bits(static_cast<float>(y) / 16)});
        std::vector<Four> given = in;
        if (normalized) {
          for (Four& each : given)
            each = {bits(number(each.x) / kWidth), bits(number(each.y) / kHeight)};
        }
        const auto out = fetch("tex.2d.v4.f32.f32 {%o1, %o2, %o3, %o4}, [%x, {%c1, %c2}];", given);
        // Wrapping and mirroring are for normalized coordinates only.
        const bool folds = mode == AddressMode::kWrap || mode == AddressMode::kMirror;
        const AddressMode used = folds && !normalized ? AddressMode::kClamp : mode;
        const auto texel = [&](int64_t i, int64_t j) -> double {
          i = guide_index(used, i, kWidth);
          j = guide_index(used, j, kHeight);
          if (i < 0 || j < 0) return kBorder;
          return value(0, static_cast<uint32_t>(i), static_cast<uint32_t>(j), 0);
        };
        for (size_t n = 0; n < in.size(); ++n) {
          const double x = number(in[n].x), y = number(in[n].y);
          // A coordinate that was divided may lie on the other side of an element's edge.
          const double tolerance = normalized ? 0.6 : 1e-4;
          const bool on_edge = !linear && normalized && (x == std::floor(x) || y == std::floor(y));
          if (on_edge) continue;
          EXPECT_NEAR(number(out[n].x), guide_value(texel, x, y, linear), tolerance)
              << "mode " << static_cast<int>(mode) << " linear " << linear << " normalized "
              << normalized << " at " << x << ", " << y;
        }
      }
    }
  }
}

TEST_F(TextureTest, WeightsHaveEightBits) {
  Sampler sampler;
  sampler.linear = true;
  make(Image::Shape::k1D, 4, 1, 1, sampler);
  data_[0] = {0, 256, 0, 0};
  auto texture = *memory_.made_texture;
  texture.image.levels[0].base = reinterpret_cast<uint64_t>(data_[0].data());
  memory_.made_texture = std::make_shared<Texture>(texture);
  std::vector<Four> in;
  for (int i = 0; i <= 1024; i += 9) in.push_back({bits(0.5f + static_cast<float>(i) / 1024)});
  const auto out = fetch("tex.1d.v4.f32.f32 {%o1, %o2, %o3, %o4}, [%x, {%c1}];", in);
  for (size_t n = 0; n < in.size(); ++n) {
    const double part = static_cast<double>(n) * 9 / 1024;
    EXPECT_EQ(number(out[n].x), std::floor(part * 256 + 0.5)) << part;
  }
}

TEST_F(TextureTest, ThreeDimensionsLayersAndOffsets) {
  make(Image::Shape::k3D, 4, 4, 4, {});
  const Four at{bits(1.5f), bits(2.5f), bits(3.5f)};
  auto out = fetch("tex.3d.v4.f32.f32 {%o1, %o2, %o3, %o4}, [%x, {%c1, %c2, %c3, %c3}];", {at});
  EXPECT_EQ(number(out[0].x), value(0, 1, 2, 3));
  EXPECT_EQ(number(out[0].w), 1) << "a channel that the format lacks";
  out = fetch("tex.3d.v4.f32.f32 {%o1, %o2, %o3, %o4}, [%x, {%c1, %c2, %c3, %c3}], {1, -1, -2, 0};",
              {at});
  EXPECT_EQ(number(out[0].x), value(0, 2, 1, 1));
  make(Image::Shape::k2DLayered, 4, 4, 3, {});
  out = fetch("tex.a2d.v4.f32.f32 {%o1, %o2, %o3, %o4}, [%x, {%c4, %c1, %c2, %c2}];",
              {{at.x, at.y, 0, 1}, {at.x, at.y, 0, 9}});
  EXPECT_EQ(number(out[0].x), value(0, 1, 2, 1));
  EXPECT_EQ(number(out[1].x), value(0, 1, 2, 2)) << "a layer that there is not: the last one";
}

// Along an axis the middle of a face is hit; the faces are ordered +x, -x, +y, -y, +z, -z.
TEST_F(TextureTest, CubesHaveSixFaces) {
  make(Image::Shape::kCube, 3, 3, 6, {});
  const float axes[][3] = {{2, 0, 0}, {-1, 0, 0}, {0, 5, 0}, {0, -1, 0}, {0, 0, 1}, {0, 0, -3}};
  std::vector<Four> in;
  for (const auto& axis : axes) in.push_back({bits(axis[0]), bits(axis[1]), bits(axis[2])});
  // Towards +x, a little up and to the back: s grows against z, t against y.
  in.push_back({bits(1.0f), bits(0.9f), bits(-0.9f)});
  const auto out =
      fetch("tex.cube.v4.f32.f32 {%o1, %o2, %o3, %o4}, [%x, {%c1, %c2, %c3, %c4}];", in);
  for (uint32_t face = 0; face < 6; ++face)
    EXPECT_EQ(number(out[face].x), value(0, 1, 1, face)) << face;
  EXPECT_EQ(number(out[6].x), value(0, 2, 0, 0));
}

TEST_F(TextureTest, Levels) {
  Sampler sampler;
  sampler.normalized = true;
  sampler.max_level = 10;
  for (const bool linear : {false, true}) {
    sampler.linear_levels = linear;
    make(Image::Shape::k2D, 8, 8, 1, sampler, 4);
    std::vector<Four> in;
    const float levels[] = {-2, 0, 0.25f, 0.75f, 1.5f, 3, 7};
    for (const float level : levels) in.push_back({bits(0.01f), bits(0.01f), bits(level)});
    const auto out =
        fetch("tex.level.2d.v4.f32.f32 {%o1, %o2, %o3, %o4}, [%x, {%c1, %c2}], %c3;", in);
    for (size_t n = 0; n < in.size(); ++n) {
      const float level = std::clamp(levels[n], 0.0f, 3.0f);
      const float expected = linear ? level * 1000 : std::floor(level + 0.5f) * 1000;
      EXPECT_EQ(number(out[n].x), expected) << levels[n] << (linear ? " linear" : "");
    }
    // A step of four elements of level 0 is one of level 2.
    const auto stepped = fetch(
        "tex.grad.2d.v4.f32.f32 {%o1, %o2, %o3, %o4}, [%x, {%c1, %c2}], {%c3, 0f00000000}, "
        "{0f00000000, %c4};",
        {{bits(0.01f), bits(0.01f), bits(0.5f), bits(0.25f)}});
    EXPECT_EQ(number(stepped[0].x), 2000);
  }
}

TEST_F(TextureTest, GathersFourElementsCounterClockwise) {
  make(Image::Shape::k2D, 4, 4, 1, {});
  const auto out = fetch("tld4.r.2d.v4.f32.f32 {%o1, %o2, %o3, %o4}, [%x, {%c1, %c2}];",
                         {{bits(2.1f), bits(1.9f)}});
  EXPECT_EQ(number(out[0].x), value(0, 1, 2, 0));
  EXPECT_EQ(number(out[0].y), value(0, 2, 2, 0));
  EXPECT_EQ(number(out[0].z), value(0, 2, 1, 0));
  EXPECT_EQ(number(out[0].w), value(0, 1, 1, 0));
}

TEST_F(TextureTest, IntegersAndSharesOfThem) {
  const uint8_t bytes[] = {0, 51, 128, 255};
  Image image;
  image.shape = Image::Shape::k1D;
  image.levels = {{reinterpret_cast<uint64_t>(bytes), 1, 1, 1, 4, 4}};
  const auto first = [&](PixelFormat::Kind kind, bool integers, bool srgb) {
    image.format = {kind, 4, 1};
    Sampler sampler;
    sampler.integers = integers;
    sampler.srgb = srgb;
    memory_.made_texture = std::make_shared<Texture>(Texture{image, sampler});
    return fetch("tex.1d.v4.u32.f32 {%o1, %o2, %o3, %o4}, [%x, {%c1}];", {{bits(0.5f)}})[0];
  };
  using Kind = PixelFormat::Kind;
  EXPECT_EQ(first(Kind::kUnsigned, true, false), (Four{0, 51, 128, 255}));
  EXPECT_EQ(first(Kind::kSigned, true, false), (Four{0, 51, 0xffffff80, 0xffffffff}));
  EXPECT_EQ(first(Kind::kUnsigned, false, false),
            (Four{bits(0), bits(0.2f), bits(128.0f / 255), bits(1)}));
  EXPECT_EQ(first(Kind::kSigned, false, false),
            (Four{bits(0), bits(51.0f / 127), bits(-1), bits(-1.0f / 127)}));
  const Four light = first(Kind::kUnsigned, false, true);
  EXPECT_NEAR(number(light.y), std::pow((0.2 + 0.055) / 1.055, 2.4), 1e-6);
  EXPECT_NEAR(number(light.z), std::pow((128.0 / 255 + 0.055) / 1.055, 2.4), 1e-6);
  EXPECT_EQ(number(light.w), 1) << "the fourth channel is linear as it is";
}

TEST_F(TextureTest, PairsOfHalves) {
  const float values[] = {1.5f, -65504, 0x1p-24f, 1e6f};
  Image image;
  image.shape = Image::Shape::k1D;
  image.format = {PixelFormat::Kind::kFloat, 4, 4};
  image.levels = {{reinterpret_cast<uint64_t>(values), 1, 1, 1, 16, 16}};
  memory_.made_texture = std::make_shared<Texture>(Texture{image, {}});
  const std::string fetched = "tex.1d.v2.f16x2.f32 {%o1, %o2}, [%x, {%c1}];";
  EXPECT_EQ(fetch(fetched, {{bits(0.5f)}})[0], (Four{0xfbff3e00, 0x7c000001, 0, 0}));
  EXPECT_EQ(fetch("tex.level.1d.v2.f16x2.s32 {%o3, %o4}, [%x, {%c1}], %c2;", {{0}})[0],
            (Four{0, 0, 0xfbff3e00, 0x7c000001}));
  for (const char* wrong : {"tex.1d.v4.f16x2.f32 {%o1, %o2, %o3, %o4}, [%x, {%c1}];",
                            "tex.1d.v2.f32.f32 {%o1, %o2}, [%x, {%c1}];",
                            "tex.1d.v2.f16x2.f32 {%o1, %o2, %o3, %o4}, [%x, {%c1}];"}) {
    const LoadResult loaded = load_ptx(
        module_text(std::string(".visible .entry k() { .reg .b32 %o<5>, %c1; .reg .b64 %x;") +
                    wrong + " ret; }"),
        memory_, {});
    EXPECT_EQ(loaded.program, nullptr) << wrong;
  }
}

TEST_F(TextureTest, LinearMemoryIsCheckedAndZeroOutside) {
  const uint64_t address = memory_.allocate(16);
  ASSERT_NE(address, 0u);
  const float values[] = {1, 2, 3, 4};
  std::memcpy(reinterpret_cast<void*>(address), values, sizeof values);
  Image image;
  image.shape = Image::Shape::k1D;
  image.by_address = true;
  image.format = {PixelFormat::Kind::kFloat, 1, 4};
  image.levels = {{address, 6, 1, 1, 24, 24}};  // two elements more than there are
  memory_.made_texture = std::make_shared<Texture>(Texture{image, {}});
  const std::string one = "tex.1d.v4.f32.s32 {%o1, %o2, %o3, %o4}, [%x, {%c1}];";
  const auto out = fetch(one, {{0}, {3}, {6}, {0xffffffff}});
  EXPECT_EQ(number(out[0].x), 1);
  EXPECT_EQ(number(out[1].x), 4);
  EXPECT_EQ(number(out[2].x), 0);
  EXPECT_EQ(number(out[3].x), 0);
  std::vector<Four> none;
  const auto fault = run(one, kTexture, {{5}}, &none);
  ASSERT_TRUE(fault.has_value());
  EXPECT_EQ(fault->kind, Fault::Kind::kIllegalAddress);
  memory_.release(address);
}

TEST_F(TextureTest, WhatIsNoObjectIsAFault) {
  std::vector<Four> none;
  make(Image::Shape::k1D, 4, 1, 1, {});
  for (const char* body : {"tex.1d.v4.f32.f32 {%o1, %o2, %o3, %o4}, [%x, {%c1}];",
                           "suld.b.1d.b32.zero %o1, [%x, {%c1}];", "txq.width.b32 %o1, [%x];",
                           "suq.width.b32 %o1, [%x];"}) {
    const auto fault = run(body, 0x99, {{0}}, &none);
    ASSERT_TRUE(fault.has_value()) << body;
    EXPECT_EQ(fault->kind, Fault::Kind::kIllegalAddress);
  }
}

TEST_F(TextureTest, SurfacesCountBytes) {
  std::vector<uint32_t> words(4 * 3);
  for (uint32_t i = 0; i < words.size(); ++i) words[i] = i * 0x01010101;
  Surface surface;
  surface.image.format = {PixelFormat::Kind::kUnsigned, 1, 4};
  surface.image.levels = {{reinterpret_cast<uint64_t>(words.data()), 4, 3, 1, 16, 48}};
  memory_.made_surface = std::make_shared<Surface>(surface);
  std::vector<Four> out;
  const auto good = [&](const std::string& body, const std::vector<Four>& in) {
    const auto fault = run(body, kSurface, in, &out);
    EXPECT_FALSE(fault.has_value()) << body << fault->text;
    return out;
  };
  const auto kind_of = [&](const std::string& body, const Four& in) {
    const auto fault = run(body, kSurface, {in}, &out);
    return fault.has_value() ? std::optional(fault->kind) : std::nullopt;
  };
  EXPECT_EQ(good("suld.b.2d.b32.trap %o1, [%x, {%c1, %c2}];", {{8, 1}})[0].x, words[6]);
  EXPECT_EQ(
      good("suld.b.2d.v2.b64.trap {%l1, %l2}, [%x, {%c1, %c2}]; cvt.u32.u64 %o1, %l2;", {{0, 2}})[0]
          .x,
      words[10]);
  EXPECT_EQ(good("suld.b.2d.b32.zero %o1, [%x, {%c1, %c2}];", {{16, 0}})[0].x, 0u);
  EXPECT_EQ(good("suld.b.2d.b32.clamp %o1, [%x, {%c1, %c2}];", {{100, 100}})[0].x, words[11]);
  EXPECT_EQ(kind_of("suld.b.2d.b32.trap %o1, [%x, {%c1, %c2}];", {16, 0}),
            Fault::Kind::kIllegalAddress);
  EXPECT_EQ(kind_of("suld.b.2d.b32.trap %o1, [%x, {%c1, %c2}];", {2, 0}),
            Fault::Kind::kMisalignedAddress);
  good("sust.b.2d.b32.zero [%x, {%c1, %c2}], %c3;", {{4, 1, 99}, {4, 3, 98}, {0xfffffffc, 0, 97}});
  EXPECT_EQ(words[5], 99u);
  good("cvt.u16.u32 %h1, %c3; sust.b.2d.b8.trap [%x, {%c1, %c2}], %h1;", {{5, 1, 0xabcd}});
  EXPECT_EQ(words[5], 99u | 0xcd00u);
  words[0] = 0;
  good("sured.b.add.2d.u32.trap [%x, {%c1, %c2}], %c3;", std::vector<Four>(100, Four{0, 0, 3}));
  EXPECT_EQ(words[0], 300u);
  good("sured.b.min.2d.s32.trap [%x, {%c1, %c2}], %c3;", {{0, 0, 0xfffffff0}});
  EXPECT_EQ(words[0], 0xfffffff0u);
  EXPECT_EQ(good("suq.width.b32 %o1, [%x]; suq.height.b32 %o2, [%x];", {{}})[0], (Four{4, 3}));
}

TEST(TextureReferences, AreRefusedByName) {
  TestMemory memory;
  const LoadResult loaded = load_ptx(module_text(R"(.global .texref t;
.visible .entry k() { .reg .b32 %r<6>;
  tex.1d.v4.f32.s32 {%r1, %r2, %r3, %r4}, [t, {%r5}];
  ret; }
)"),
                                     memory, {});
  EXPECT_EQ(loaded.program, nullptr);
  EXPECT_NE(loaded.error.message.find("references"), std::string::npos) << loaded.error.message;
}

}  // namespace
}  // namespace fargpu::sim
