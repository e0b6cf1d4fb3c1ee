#include "common/base/parse.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "common/base/env.h"

namespace fargpu {
namespace {

using namespace std::chrono_literals;

TEST(Parse, Bytes) {
  const std::pair<const char*, uint64_t> good[] = {{"0", 0},
                                                   {"123", 123},
                                                   {"5B", 5},
                                                   {"64K", 64 << 10},
                                                   {"64k", 64 << 10},
                                                   {"512M", 512u << 20},
                                                   {"8G", 8ull << 30},
                                                   {"8GB", 8ull << 30},
                                                   {"8GiB", 8ull << 30},
                                                   {"1.5G", 3ull << 29},
                                                   {"2T", 2ull << 40},
                                                   {"18446744073709551615", ~0ull},
                                                   {"9007199254740993", 9007199254740993ull}};
  for (auto [text, bytes] : good) {
    auto value = parse_bytes(text);
    ASSERT_TRUE(value.ok()) << text;
    EXPECT_EQ(*value, bytes) << text;
  }
  for (const char* text :
       {"", "G", "-1", "8X", "8 G", "8Gb8", "1e3", "nan", "inf", "0x10", "99999999999G",
        "18446744073709551616", "8G ", " 8G", "16777216T", "1.5.5G"}) {
    auto value = parse_bytes(text);
    EXPECT_EQ(value.status().code(), StatusCode::kInvalidArgument) << text;
  }
  EXPECT_NE(parse_bytes("8X").status().message().find("'8X'"), std::string::npos);
}

TEST(Parse, Durations) {
  const std::pair<const char*, std::chrono::microseconds> good[] = {
      {"250us", 250us}, {"500ms", 500ms}, {"5s", 5s}, {"5", 5s},
      {"0.5", 500ms},   {"2m", 2min},     {"1h", 1h}};
  for (auto [text, duration] : good) {
    auto value = parse_duration(text);
    ASSERT_TRUE(value.ok()) << text;
    EXPECT_EQ(*value, duration) << text;
  }
  for (const char* text : {"", "s", "-5s", "5 s", "5d", "1e9s", "99999999999h"}) {
    EXPECT_FALSE(parse_duration(text).ok()) << text;
  }
}

TEST(Parse, Endpoints) {
  const std::tuple<const char*, const char*, uint16_t> good[] = {
      {"gpu1", "gpu1", 14900},
      {"gpu1:14901", "gpu1", 14901},
      {"10.0.0.1:1", "10.0.0.1", 1},
      {"[::1]:14900", "::1", 14900},
      {"[fe80::1]", "fe80::1", 14900},
      {"::1", "::1", 14900},
      {"fe80::1%eth0", "fe80::1%eth0", 14900},
      {"*:65535", "*", 65535}};
  for (auto [text, host, port] : good) {
    auto value = parse_endpoint(text);
    ASSERT_TRUE(value.ok()) << text;
    EXPECT_EQ(value->host, host);
    EXPECT_EQ(value->port, port);
    auto again = parse_endpoint(value->to_string());
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(*again, *value);
  }
  for (const char* text :
       {"", ":14900", "host:", "host:0", "host:65536", "host:x", "[::1", "[::1]14900", "[]:1",
        "ho st:1", "host:1 ", "::1:24922", "http://h:1", "a:b:c"}) {
    EXPECT_EQ(parse_endpoint(text).status().code(), StatusCode::kInvalidArgument) << text;
  }
}

TEST(Parse, Booleans) {
  for (const char* text : {"1", "true", "Yes", "ON"}) EXPECT_TRUE(parse_bool(text).value()) << text;
  for (const char* text : {"0", "False", "no", "off"})
    EXPECT_FALSE(parse_bool(text).value()) << text;
  for (const char* text : {"", "2", "maybe"}) EXPECT_FALSE(parse_bool(text).ok()) << text;
}

TEST(Parse, FormatsBytes) {
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes(8ull << 30), "8.0 GiB");
  EXPECT_EQ(format_bytes(~0ull), "16.0 EiB");
}

TEST(Environment, UnsetEmptyGoodAndBad) {
  const char* name = "FARGPU_TEST_VALUE";
  ::unsetenv(name);
  EXPECT_FALSE(env_text(name).has_value());
  EXPECT_EQ(env_integer(name, 7).value(), 7u);
  ::setenv(name, "", 1);
  EXPECT_EQ(env_bytes(name, 9).value(), 9u);
  ::setenv(name, "2K", 1);
  EXPECT_EQ(env_bytes(name, 9).value(), 2048u);
  EXPECT_NE(env_integer(name, 7).status().message().find(name), std::string::npos);
  ::setenv(name, "10ms", 1);
  EXPECT_EQ(env_duration(name, 1s).value(), 10ms);
  ::setenv(name, "on", 1);
  EXPECT_TRUE(env_bool(name, false).value());
  ::unsetenv(name);
}

}  // namespace
}  // namespace fargpu
