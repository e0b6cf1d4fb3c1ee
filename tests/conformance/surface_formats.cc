// Every format of an array through surfaces, in every shape: loads and stores of whole elements as
// they lie there, and formatted stores, which convert (PTX: "suld", "sust"). Cubemaps are surfaces
// of six layers each. Each thread has the element of its own number.
//
// What PTX leaves open is not asked for: formatted stores of values beyond the format's range.
#include "tests/conformance/image_formats.h"

namespace {

const char* geometry_of(const Shape& shape) { return shape.is_cube() ? "a2d" : shape.name; }

// %c1 .. %c4 are values, %t is the place along x, in elements, %i of the layer or slice. `scale`:
// x counts so many bytes.
std::string place(const Shape& shape, unsigned scale) {
  return "rem.u32 %t, %i, " + std::to_string(shape.width) + ";\n  mul.lo.u32 %t, %t, " +
         std::to_string(scale) + ";\n  div.u32 %i, %i, " + std::to_string(shape.width) +
         ";\n  rem.u32 %n, %i, " + std::to_string(shape.rows()) + ";\n  div.u32 %i, %i, " +
         std::to_string(shape.rows()) + ";\n  ";
}
std::string coordinates(const Shape& shape) {
  const std::string geometry = geometry_of(shape);
  return geometry == "1d"    ? "%t"
         : geometry == "2d"  ? "%t, %n"
         : geometry == "3d"  ? "%t, %n, %i, %i"
         : geometry == "a1d" ? "%i, %t"
                             : "%i, %t, %n, %n";
}

// {%o1, %o2} with `letter` o of two channels.
std::string registers(char letter, unsigned channels) {
  std::string list = "{";
  for (unsigned c = 1; c <= channels; ++c)
    list += std::string(c == 1 ? "%" : ", %") + letter + std::to_string(c);
  return list + "}";
}

std::string vector(unsigned channels) {
  return channels == 1 ? "." : ".v" + std::to_string(channels) + ".";
}

// Channels of less than 32 bits are in registers of 16.
std::string narrowed(unsigned channels) {
  std::string text;
  for (unsigned c = 1; c <= channels; ++c) {
    const std::string number = std::to_string(c);
    text += "cvt.u16.u32 %h" + number + ", %c" + number + ";\n  ";
  }
  return text;
}
std::string widened(unsigned channels, unsigned bytes) {
  std::string text;
  for (unsigned c = 1; c <= channels; ++c) {
    const std::string number = std::to_string(c), to = "%o" + number;
    text += "\n  cvt.u32.u16 " + to + ", %h" + number + ";\n  and.b32 " + to + ", " + to +
            (bytes == 1 ? ", 255;" : ", 65535;");
  }
  return text;
}

std::string name_of(const char* what, const Shape& shape, unsigned bytes, unsigned channels) {
  return std::string(what) + "_" + shape.name + "_" + std::to_string(bytes) + "_" +
         std::to_string(channels);
}

std::string load_kernel(const Shape& shape, unsigned bytes, unsigned channels) {
  const std::string type = "b" + std::to_string(8 * bytes);
  return image_kernel(
      name_of("load", shape, bytes, channels),
      place(shape, bytes * channels) + "suld.b." + geometry_of(shape) + vector(channels) + type +
          ".trap " + registers(bytes == 4 ? 'o' : 'h', channels) + ", [%x, {" + coordinates(shape) +
          "}];" + (bytes == 4 ? "" : widened(channels, bytes)));
}

std::string store_kernel(const Shape& shape, unsigned bytes, unsigned channels) {
  const std::string type = "b" + std::to_string(8 * bytes);
  return image_kernel(name_of("store", shape, bytes, channels),
                      place(shape, bytes * channels) + (bytes == 4 ? "" : narrowed(channels)) +
                          "sust.b." + geometry_of(shape) + vector(channels) + type +
                          ".trap [%x, {" + coordinates(shape) + "}], " +
                          registers(bytes == 4 ? 'c' : 'h', channels) + ";");
}

std::string formatted_kernel(const Shape& shape, unsigned channels) {
  return image_kernel(name_of("formatted", shape, 4, channels),
                      place(shape, 1) + "sust.p." + geometry_of(shape) + vector(channels) +
                          "b32.trap [%x, {" + coordinates(shape) + "}], " +
                          registers('c', channels) + ";");
}

CUmodule module_of(const std::string& text) {
  CUmodule module = nullptr;
  SHOW(cuModuleLoadData(&module, (kImageModule + text).c_str()));
  return module;
}

CUfunction function_of(CUmodule module, const std::string& name) {
  CUfunction function = nullptr;
  NEED(cuModuleGetFunction(&function, module, name.c_str()));
  return function;
}

struct Case {
  const Format& format;
  const Shape& shape;
  const char* what;

  std::string name() const { return format.name + " " + what + " " + shape.name; }
};

CUsurfObject surface_of(const Case& one, CUarray array) {
  const CUDA_RESOURCE_DESC resource = of(array);
  CUsurfObject object = 0;
  const CUresult result = cuSurfObjectCreate(&object, &resource);
  if (result == CUDA_SUCCESS) return object;
  std::printf("%s: cuSurfObjectCreate: %s\n", one.name().c_str(), error_name(result));
  std::exit(3);
}

std::vector<uint32_t> launch(const Case& one, CUfunction function, CUarray array,
                             const std::vector<Int4>& in) {
  const CUsurfObject object = surface_of(one, array);
  std::vector<uint32_t> out;
  const CUresult result = run_kernel(function, object, in, &out);
  if (result != CUDA_SUCCESS) {
    std::printf("%s: %s\n", one.name().c_str(), error_name(result));
    std::exit(3);
  }
  NEED(cuSurfObjectDestroy(object));
  return out;
}

uint32_t content(const Case& one, unsigned element, unsigned channel) {
  return content(one.format, element, channel, false);
}

void check(const Case& one, unsigned element, unsigned channel, uint32_t got, uint32_t wanted) {
  if (got == wanted) return;
  wrong(one.name() + " element " + std::to_string(element) + " channel " + std::to_string(channel),
        got, wanted);
}

void load(const Case& one, CUmodule module, std::vector<uint32_t>* all) {
  const Format& format = one.format;
  const CUarray array = array_of(format, one.shape, CUDA_ARRAY3D_SURFACE_LDST);
  fill(array, format, one.shape, false);
  const auto out =
      launch(one, function_of(module, name_of("load", one.shape, format.bytes, format.channels)),
             array, std::vector<Int4>(one.shape.elements()));
  for (unsigned i = 0; i < one.shape.elements(); ++i)
    for (unsigned c = 0; c < format.channels; ++c)
      check(one, i, c, out[size_t{4} * i + c], content(one, i, c));
  all->insert(all->end(), out.begin(), out.end());
  NEED(cuArrayDestroy(array));
}

// What a formatted store is given for the bits of a channel.
uint32_t unformatted(const Format& format, uint32_t bits) {
  if (format.has_integers()) return widened(format, bits);
  return std::bit_cast<uint32_t>(static_cast<float>(number_of(format, bits)));
}

// The least signed number stands for -1, as the one above it does, which is what is stored.
uint32_t stored(const Format& format, uint32_t bits) {
  const bool least = bits == 1u << (8 * format.bytes - 1);
  return format.values == Values::kSnorm && least ? bits + 1 : bits;
}

void store(const Case& one, CUfunction function, bool formatted, std::vector<uint32_t>* all) {
  const Format& format = one.format;
  std::vector<Int4> in;
  for (unsigned i = 0; i < one.shape.elements(); ++i) {
    int values[4] = {};
    for (unsigned c = 0; c < format.channels; ++c) {
      const uint32_t bits = content(one, i, c);
      values[c] = static_cast<int>(formatted ? unformatted(format, bits) : bits);
    }
    in.push_back({values[0], values[1], values[2], values[3]});
  }
  const CUarray array = array_of(format, one.shape, CUDA_ARRAY3D_SURFACE_LDST);
  launch(one, function, array, in);
  std::vector<unsigned char> host(size_t{one.shape.elements()} * format.element_bytes());
  const CUDA_MEMCPY3D copy =
      whole_copy(array, host.data(), size_t{one.shape.width} * format.element_bytes(), false);
  NEED(cuMemcpy3D(&copy));
  for (unsigned i = 0; i < one.shape.elements(); ++i) {
    for (unsigned c = 0; c < format.channels; ++c) {
      uint32_t got = 0;
      std::memcpy(&got, &host[size_t{i} * format.element_bytes() + size_t{c} * format.bytes],
                  format.bytes);
      const uint32_t bits = content(one, i, c);
      check(one, i, c, got, formatted ? stored(format, bits) : bits);
    }
  }
  all->push_back(checksum(host));
  NEED(cuArrayDestroy(array));
}

void plain_accesses() {
  std::string text;
  for (const Shape& shape : kShapes) {
    for (const unsigned bytes : {1u, 2u, 4u}) {
      for (const unsigned channels : {1u, 2u, 4u})
        text += load_kernel(shape, bytes, channels) + store_kernel(shape, bytes, channels);
    }
  }
  const CUmodule module = module_of(text);
  for (const Format& format : all_formats()) {
    std::vector<uint32_t> all;
    for (const Shape& shape : kShapes) {
      load({format, shape, "load"}, module, &all);
      store({format, shape, "store"},
            function_of(module, name_of("store", shape, format.bytes, format.channels)), false,
            &all);
    }
    std::printf("%s: %08x\n", format.name.c_str(), checksum(all));
  }
}

void formatted_stores() {
  std::string text;
  for (const Shape& shape : kShapes)
    for (const unsigned channels : {1u, 2u, 4u}) text += formatted_kernel(shape, channels);
  const CUmodule module = module_of(text);
  for (const Format& format : all_formats()) {
    std::vector<uint32_t> all;
    for (const Shape& shape : kShapes)
      store({format, shape, "formatted store"},
            function_of(module, name_of("formatted", shape, 4, format.channels)), true, &all);
    std::printf("%s formatted: %08x\n", format.name.c_str(), checksum(all));
  }
}

}  // namespace

int main() {
  const CUcontext context = make_context();
  plain_accesses();
  formatted_stores();
  VALUE(wrong_values);
  NEED(cuCtxDestroy(context));
  return wrong_values == 0 ? 0 : 1;
}
