// The trace, written by a child process so that each test has its own environment.
#include "client/call/trace.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "generated/schema/opcodes.h"

namespace fargpu::client {
namespace {

// Records three calls with FARGPU_TRACE=setting (nullptr: unset) and returns what `path` holds
// then.
std::string traced(const char* setting, const std::string& path) {
  std::filesystem::remove(path);
  const pid_t child = fork();
  if (child == 0) {
    if (setting != nullptr) {
      setenv("FARGPU_TRACE", setting, 1);
    } else {
      unsetenv("FARGPU_TRACE");
    }
    CUdeviceptr pointer = 0x7f0012345000;
    float ratio = 0.5f;
    const trace::Scope first(schema::op_cuMemAlloc_v2, "cuMemAlloc_v2");
    if (first.on()) {
      first.record(CUDA_SUCCESS, {{"dptr", trace::result_of(&pointer, CUDA_SUCCESS)},
                                  {"bytesize", trace::value(size_t{4096})}});
      const trace::Scope second(schema::op_cuMemFree_v2, "cuDemo");
      second.record(CUDA_ERROR_INVALID_VALUE,
                    {{"name", trace::text("a\"b\n")},
                     {"ratio", trace::value(ratio)},
                     {"flag", trace::value(CU_LIMIT_STACK_SIZE)},
                     {"count", trace::value(-3)},
                     {"out", trace::result_of<int>(nullptr, CUDA_SUCCESS)}});
      trace::Scope(schema::op_cuInit, "cuOdd").record(static_cast<CUresult>(4711), {});
    }
    _exit(first.on() ? 1 : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  std::ifstream file(path);
  std::stringstream text;
  text << WEXITSTATUS(status) << "\n" << file.rdbuf();
  return text.str();
}

std::string temporary(const char* name) {
  return testing::TempDir() + std::to_string(getpid()) + name;
}

TEST(Trace, OffByDefault) {
  EXPECT_EQ(traced(nullptr, temporary("off")), "0\n");
  EXPECT_EQ(traced("0", temporary("off")), "0\n");
  EXPECT_EQ(traced("", temporary("off")), "0\n");
}

TEST(Trace, Lines) {
  const std::string path = temporary("lines");
  const std::string text = traced(path.c_str(), path);
  EXPECT_TRUE(text.starts_with("1\n")) << text;
  EXPECT_NE(text.find("] cuMemAlloc_v2(dptr=0x7f0012345000, bytesize=4096) = CUDA_SUCCESS ("),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("cuDemo(name=\"a\\\"b\\u000a\", ratio=0.5, flag=0, count=-3, out=0x0) = "
                      "CUDA_ERROR_INVALID_VALUE ("),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("cuOdd() = CUresult 4711 ("), std::string::npos) << text;
  std::filesystem::remove(path);
}

TEST(Trace, ChromeJson) {
  const std::string path = temporary("trace.json");
  const std::string text = traced(path.c_str(), path);
  EXPECT_TRUE(text.starts_with("1\n[\n{\"name\":\"cuMemAlloc_v2\"")) << text;
  const std::string way = "\"way\":\"local\",\"bytes_sent\":0,\"bytes_received\":0}";
  EXPECT_NE(text.find("\"args\":{\"result\":\"CUDA_SUCCESS\",\"fargpu\":{\"opcode\":" +
                      std::to_string(schema::op_cuMemAlloc_v2) + "," + way +
                      ",\"dptr\":\"0x7f0012345000\",\"bytesize\":4096}},\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("\"name\":\"a\\\"b\\u000a\",\"ratio\":\"0.5\",\"flag\":0,\"count\":-3"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("\"result\":\"CUresult 4711\",\"fargpu\":"), std::string::npos) << text;
  EXPECT_TRUE(text.ends_with(way + "}},\n")) << text;
  std::filesystem::remove(path);
}

TEST(Trace, UnwritablePathMeansNoTrace) {
  EXPECT_EQ(traced("/nowhere/at/all", temporary("none")), "0\n");
}

}  // namespace
}  // namespace fargpu::client
