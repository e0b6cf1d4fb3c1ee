// Where calls waited: stacks as texts, names of functions, and what a report keeps of them.
#include "client/where/where.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "client/call/report_call_sites.h"
#include "client/call/report_counts.h"
#include "client/call/report_json.h"
#include "client/call/report_text.h"
#include "client/where/modules.h"
#include "client/where/native_call_site.h"
#include "client/where/symbols.h"
#include "client/where/traceback.h"

namespace fargpu::client {
namespace {

using report::CallSites;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;
using where::Frame;

std::string shown(const std::vector<Frame>& frames) {
  std::string out;
  for (const Frame& frame : frames) out += where::to_text(frame) + "\n";
  return out;
}

TEST(Traceback, HasTheFramesThatFaulthandlerWrites) {
  EXPECT_EQ(shown(where::parse_traceback("Stack (most recent call first):\n"
                                         "  File \"/a/train.py\", line 88 in step\n"
                                         "  File \"a\", line 7 in b\", line 9 in <module>\n"
                                         "  ...\n")),
            "/a/train.py:88 in step\na\", line 7 in b:9 in <module>\n");
}

TEST(Traceback, LeavesOutWhatIsNoFrame) {
  for (const char* const text :
       {"", "\n", "  <no Python frame>\n", "  File ???, line 3 in f\n",
        "  File \"a\", line ??? in f\n", "  File \"a\", line 99999999999 in f\n",
        "  File \"a\", line 3\n", "  File \"\n", "  File \"a\", line 3 in f" /* cut */})
    EXPECT_THAT(where::parse_traceback(text), IsEmpty()) << text;
}

TEST(Traceback, TellsLibrariesByTheirPaths) {
  const auto of = [](const char* file) {
    return where::is_library(file) ? where::to_text_of_library({file, 3, "f"}) : "own";
  };
  EXPECT_EQ(of("/v/lib/python3.12/site-packages/torch/_tensor.py"), "torch/_tensor.py:3 in f");
  EXPECT_EQ(of("/usr/lib/python3/dist-packages/numpy/a.py"), "numpy/a.py:3 in f");
  EXPECT_EQ(of("/usr/lib/python3.11/threading.py"), "threading.py:3 in f");
  EXPECT_EQ(of("<frozen importlib._bootstrap>"), "<frozen importlib._bootstrap>:3 in f");
  EXPECT_EQ(of("/home/a/train.py"), "own");
  EXPECT_EQ(of("train.py"), "own");
  EXPECT_EQ(of("<stdin>"), "own");
  EXPECT_EQ(of("/a/lib/python3.py"), "own");
}

__attribute__((noinline)) std::string site_of_a_function() {
  std::string site = where::native_call_site();
  asm volatile("" ::: "memory");  // no tail call
  return site;
}

TEST(Native, TheTestIsPartOfWhatLooks) {
  // This program holds the looking code, too: all of its frames are left out.
  where::begin_native();
  EXPECT_THAT(site_of_a_function(), Not(HasSubstr("site_of_a_function")));
}

TEST(Modules, AreFoundByTheirPaths) {
  EXPECT_GT(where::modules_loaded(), 0u);
  EXPECT_TRUE(where::is_loaded("libc.so"));
  EXPECT_FALSE(where::is_loaded("libpython"));
}

TEST(Symbols, NameTheFunctionOfAnAddress) {
  const auto address = reinterpret_cast<const void*>(&site_of_a_function);
  const where::Module own = where::module_of(address);
  ASSERT_NE(own.begin, 0U);
  const uint64_t in_file = reinterpret_cast<uintptr_t>(address) - own.base;
  EXPECT_THAT(where::function_in_file(own.path, in_file + 1), HasSubstr("site_of_a_function("));
  EXPECT_EQ(where::function_in_file(own.path, 1), "");
  EXPECT_EQ(where::module_of(nullptr).begin, 0U);
}

TEST(Symbols, OfFilesThatAreDamaged) {
  const where::Module own = where::module_of(reinterpret_cast<const void*>(&site_of_a_function));
  std::ifstream file(own.path, std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(file), {}};
  const std::string path =
      (std::filesystem::temp_directory_path() / ("fargpu-symbols-" + std::to_string(::getpid())))
          .string();
  const auto ask = [&](const std::string& content) {
    std::ofstream(path, std::ios::binary) << content;
    return where::function_in_file(path, 0x1000);
  };
  for (const size_t bytes : {size_t{0}, size_t{3}, size_t{63}, size_t{64}, whole.size() / 2})
    EXPECT_EQ(ask(whole.substr(0, bytes)), "") << bytes;
  std::string wrong = whole;
  wrong.replace(0x28, 8, 8, '\xff');  // where the table of sections begins
  EXPECT_EQ(ask(wrong), "");
  EXPECT_EQ(where::function_in_file("/nonexistent", 0), "");
  EXPECT_EQ(where::function_in_file("/", 0), "");
  std::filesystem::remove(path);
}

TEST(CallSites, AreAddedUpAndTheLongestComeFirst) {
  CallSites sites;
  sites.add(1, "a.py:1 in f", "", {1, 10, 1, 0, 4});
  sites.add(1, "b.py:1 in f", "", {1, 100, 1, 0, 4});
  sites.add(1, "a.py:1 in f", "", {1, 20, 2, 8, 4});
  sites.add(2, "a.py:1 in f", "", {1, 5, 1, 0, 0});
  const auto all = sites.sorted();
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[0].site, "b.py:1 in f");
  EXPECT_EQ(all[1].counts.waited, 2U);
  EXPECT_EQ(all[1].counts.nanoseconds, 30U);
  EXPECT_EQ(all[1].counts.round_trips, 3U);
  EXPECT_EQ(all[1].counts.bytes_sent, 8U);
  EXPECT_EQ(all[1].counts.bytes_received, 8U);
  EXPECT_EQ(all[2].function, 2U);
}

TEST(CallSites, BeyondTheFirstAreElsewhere) {
  CallSites sites;
  const size_t many = CallSites::kMost + 100;
  for (size_t i = 0; i < many; ++i) sites.add(1, std::to_string(i), "", {1, 1, 1, 0, 0});
  sites.add(1, "0", "", {1, 1000, 1, 0, 0});
  sites.add(2, "new", "", {7, 0, 0, 0, 0});
  const auto all = sites.sorted();
  ASSERT_EQ(all.size(), CallSites::kMost + 2);
  EXPECT_EQ(all[0].site, "0");
  EXPECT_EQ(all[1].site, CallSites::kElsewhere);
  EXPECT_EQ(all[1].counts.waited, 100U);
  EXPECT_EQ(all.back().site, CallSites::kElsewhere);
  EXPECT_EQ(all.back().counts.waited, 7U);
}

TEST(CallSites, InReports) {
  CallSites sites;
  for (int i = 0; i < 12; ++i)
    sites.add(0, "a\"b:" + std::to_string(i) + " in f", i == 11 ? "lib.py:1 in g" : "",
              {1, static_cast<uint64_t>(i) * 1'000'000'000, 2, 3, 4});
  const report::call_sites::Found found{sites.sorted(), 77};
  const std::string text = report::text(found);
  EXPECT_THAT(text, StartsWith("fargpu:   waited at       a\"b:11 in f ("));
  EXPECT_THAT(text, HasSubstr(" 1, 11.000 s, by lib.py:1 in g)\n"));
  EXPECT_THAT(text, Not(HasSubstr("a\"b:1 in f")));
  EXPECT_THAT(text, EndsWith("and 2 more\n"));

  report::Counts counts;
  counts.functions[0].waited.add(12);
  const auto json = [&](const report::call_sites::Found* these) {
    return report::json(counts, {}, {"app", 1, 2, 3}, these);
  };
  EXPECT_THAT(json(&found), HasSubstr(R"("looking_ns":77,"places":[{"function":")"));
  EXPECT_THAT(json(&found), HasSubstr(R"("place":"a\"b:11 in f","library":"lib.py:1 in g",)"
                                      R"("waited":1,"waited_ns":11000000000,"round_trips":2,)"
                                      R"("bytes_sent":3,"bytes_received":4})"));
  EXPECT_THAT(json(nullptr), Not(HasSubstr("places")));
}

}  // namespace
}  // namespace fargpu::client
