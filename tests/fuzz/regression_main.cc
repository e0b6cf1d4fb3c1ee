// Runs a fuzz target over every file of the folders given, and over deterministic mutations of
// each: cuts, changed bytes and words, repetitions.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

constexpr int kMutations = 3000;

void mutate(std::vector<uint8_t>& input, std::mt19937& random) {
  static constexpr uint64_t kInteresting[] = {0,
                                              1,
                                              8,
                                              0x7f,
                                              0x80,
                                              0xff,
                                              0xffff,
                                              0x7fffffff,
                                              0x80000000,
                                              0xffffffff,
                                              0x7fffffffffffffff,
                                              ~uint64_t{0}};
  for (unsigned changes = 1 + random() % 4; changes > 0 && !input.empty(); --changes) {
    const size_t at = random() % input.size();
    switch (random() % 5) {
      case 0:
        input[at] = static_cast<uint8_t>(random());
        break;
      case 1:
        input[at] ^= static_cast<uint8_t>(1u << (random() % 8));
        break;
      case 2:
        input.resize(at);
        break;
      case 3: {
        const uint64_t value = kInteresting[random() % std::size(kInteresting)];
        const size_t width = size_t{1} << (random() % 4);
        for (size_t i = 0; i < width && at + i < input.size(); ++i)
          input[at + i] = static_cast<uint8_t>(value >> (8 * i));
        break;
      }
      default: {
        const std::vector<uint8_t> tail(input.begin() + static_cast<std::ptrdiff_t>(at),
                                        input.end());
        input.insert(input.begin() + static_cast<std::ptrdiff_t>(random() % input.size()),
                     tail.begin(), tail.end());
        break;
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  size_t files = 0;
  for (int i = 1; i < argc; ++i) {
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) {
      std::ifstream file(entry.path(), std::ios::binary);
      const std::vector<uint8_t> seed((std::istreambuf_iterator<char>(file)),
                                      std::istreambuf_iterator<char>());
      LLVMFuzzerTestOneInput(seed.data(), seed.size());
      std::mt19937 random(static_cast<uint32_t>(seed.size()) + 1);
      for (int n = 0; n < kMutations; ++n) {
        std::vector<uint8_t> input = seed;
        mutate(input, random);
        LLVMFuzzerTestOneInput(input.data(), input.size());
      }
      ++files;
    }
  }
  std::printf("%zu corpus files, %d mutations each\n", files, kMutations);
  return files > 0 ? 0 : 1;
}
