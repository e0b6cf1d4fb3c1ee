#include "server/handover/hello.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>

#include "common/wire/control.h"
#include "common/wire/frame.h"
#include "common/wire/slot_message.h"
#include "generated/schema/control.capnp.h"
#include "server/handover/token.h"

namespace fargpu::server {
namespace {

using ::testing::HasSubstr;

std::vector<uint64_t> hello_body(const std::function<void(schema::Hello::Builder)>& change = {}) {
  std::vector<uint64_t> words(16384);
  wire::SlotMessageBuilder builder(std::as_writable_bytes(std::span(words)));
  auto hello = builder.initRoot<schema::Hello>();
  hello.setProtocolVersion(wire::kProtocolVersion);
  hello.setClientVersion("0.2.0");
  hello.initKnows(8)[0] = 0xfe;
  hello.setClientName("host:1 app");
  hello.setToken("secret");
  hello.setMaxBodyBytes(1u << 20);
  hello.setMaxBulkBytes(1u << 20);
  if (change) change(hello);
  words.resize(builder.used_bytes() / 8);
  return words;
}

Result<HelloRequest> parse(const std::vector<uint64_t>& words) {
  return parse_hello(std::as_bytes(std::span(words)));
}

HelloRules rules(const std::string& token = "") { return {wire::kProtocolVersion, token}; }

TEST(Hello, ReadsWhatTheClientWants) {
  const auto hello = parse(hello_body([](schema::Hello::Builder h) {
    h.setGpus(2);
    h.setMemoryBytes(42);
    h.initDevices(1).set(0, "GPU-1");
  }));
  ASSERT_TRUE(hello.ok());
  EXPECT_EQ(hello->placement.gpus, 2u);
  EXPECT_EQ(hello->placement.memory_bytes, 42u);
  EXPECT_EQ(hello->placement.devices, std::vector<std::string>{"GPU-1"});
  EXPECT_EQ(hello->client_name, "host:1 app");
  EXPECT_EQ(hello->knows.control(), 0xfeu);
  EXPECT_TRUE(check_hello(*hello, rules("secret")).ok());
}

TEST(Hello, AnotherVersionIsRefusedWhateverElseItSays) {
  const auto hello = parse(hello_body([](schema::Hello::Builder h) { h.setProtocolVersion(99); }));
  ASSERT_TRUE(hello.ok());
  const Status status = check_hello(*hello, rules("other"));
  EXPECT_EQ(status.code(), StatusCode::kVersion);
  EXPECT_THAT(status.message(), HasSubstr("99"));
  EXPECT_THAT(status.message(), HasSubstr("0.2.0"));
}

TEST(Hello, AClientThatSaysNotWhatItKnowsIsRefusedAsAVersion) {
  for (const size_t bytes : {0, 8}) {
    const auto hello = parse(hello_body([bytes](schema::Hello::Builder h) {
      h.setClientVersion("0.1.0");
      h.setRegistryHash(0x1234);
      h.initKnows(static_cast<unsigned>(bytes));  // zero bytes: nothing is known
    }));
    const Status status = check_hello(*hello, rules());
    EXPECT_EQ(status.code(), StatusCode::kVersion);
    EXPECT_THAT(status.message(), HasSubstr("0.1.0"));
    EXPECT_THAT(status.message(), HasSubstr(FARGPU_VERSION));
    EXPECT_TRUE(check_identity(*hello, rules()).ok());
  }
}

TEST(Hello, AClientMayKnowEverything) {
  const auto hello = parse(hello_body([](schema::Hello::Builder h) {
    auto knows = h.initKnows(wire::OpcodeSet::kMaxBytes);
    std::fill(knows.begin(), knows.end(), 0xff);
  }));
  EXPECT_TRUE(check_hello(*hello, rules()).ok());
  EXPECT_TRUE(hello->knows.contains(65535));
}

TEST(Hello, TheTokenIsJudgedBeforeTheRest) {
  const auto wrong = parse(hello_body([](schema::Hello::Builder h) {
    h.setToken("guess");
    h.initKnows(0);
  }));
  EXPECT_EQ(check_hello(*wrong, rules("secret")).code(), StatusCode::kRefused);
  const auto none = parse(hello_body([](schema::Hello::Builder h) { h.setToken(""); }));
  EXPECT_THAT(check_hello(*none, rules("secret")).message(), HasSubstr("--token-file"));
}

TEST(Hello, LimitsThatAreTooSmallAreRefused) {
  const auto hello = parse(hello_body([](schema::Hello::Builder h) { h.setMaxBulkBytes(16); }));
  EXPECT_EQ(check_hello(*hello, rules()).code(), StatusCode::kInvalidArgument);
}

TEST(Hello, OverlongTextsAndListsAreProtocolErrors) {
  const std::string longer(5000, 'x');
  const std::function<void(schema::Hello::Builder)> changes[] = {
      [&](schema::Hello::Builder h) { h.setToken(longer); },
      [&](schema::Hello::Builder h) { h.setClientName(longer); },
      [&](schema::Hello::Builder h) { h.setClientVersion(longer); },
      [&](schema::Hello::Builder h) { h.initDevices(100); },
      [&](schema::Hello::Builder h) { h.initKnows(wire::OpcodeSet::kMaxBytes + 1); },
      [&](schema::Hello::Builder h) { h.initDevices(1).set(0, longer); },
  };
  for (const auto& change : changes)
    EXPECT_EQ(parse(hello_body(change)).status().code(), StatusCode::kProtocol);
}

// Whatever bytes come: an answer or an error, never more.
TEST(Hello, EveryTruncationAndGarbageIsSurvived) {
  const auto whole = hello_body();
  for (size_t words = 0; words < whole.size(); ++words) {
    const std::vector<uint64_t> part(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(words));
    const auto hello = parse(part);
    if (hello.ok()) {
      EXPECT_LE(hello->token.size(), 4096u);
    }
  }
  uint64_t seed = 1;
  for (int round = 0; round < 2000; ++round) {
    auto noise = whole;
    for (int i = 0; i < 4; ++i) {
      seed = seed * 6364136223846793005u + 1442695040888963407u;
      noise[(seed >> 33) % noise.size()] ^= seed;
    }
    const auto hello = parse(noise);
    if (!hello.ok()) {
      EXPECT_EQ(hello.status().code(), StatusCode::kProtocol);
    }
  }
}

TEST(Hello, NamesBecomePrintable) {
  const auto hello =
      parse(hello_body([](schema::Hello::Builder h) { h.setClientName("evil\nevent=x"); }));
  EXPECT_EQ(hello->client_name, "evil\\x0aevent=x");
}

TEST(Refusal, IsAWholeFrameWithReasonAndText) {
  const auto frame = encode_refusal(wire::kHello, 7, Status(StatusCode::kRefused, "no"), false);
  wire::FrameHeader header;
  ASSERT_GE(frame.size(), sizeof header);
  std::memcpy(&header, frame.data(), sizeof header);
  EXPECT_TRUE(wire::check_header(header, {}).ok());
  EXPECT_EQ(header.flags, wire::kReply);
  EXPECT_EQ(header.sequence, 7u);
  EXPECT_NE(header.result, 0);
  ASSERT_EQ(frame.size(), sizeof header + header.body_bytes);
  std::vector<uint64_t> words(header.body_bytes / 8);
  std::memcpy(words.data(), frame.data() + sizeof header, header.body_bytes);
  wire::SegmentReader reader(std::as_bytes(std::span(words)));
  const auto refusal = reader.getRoot<schema::Refusal>();
  EXPECT_EQ(refusal.getReason(), schema::Refusal::Reason::TOKEN);
  EXPECT_EQ(refusal.getMessage(), "no");
}

TEST(Token, ComparesWholeTokens) {
  EXPECT_TRUE(same_token("secret", "secret"));
  for (const char* wrong : {"", "secre", "secrets", "Secret", "secretsecret", "xecret"}) {
    EXPECT_FALSE(same_token("secret", wrong)) << wrong;
  }
  EXPECT_FALSE(same_token("", "x"));
}

class TokenFile : public ::testing::Test {
 protected:
  std::string write(const std::string& text, mode_t mode) {
    std::string path = ::testing::TempDir() + "/fargpu-token-" + std::to_string(::getpid());
    std::filesystem::remove(path);
    std::ofstream(path) << text;
    ::chmod(path.c_str(), mode);
    return path;
  }
};

TEST_F(TokenFile, FirstLineWithoutBlanks) {
  const auto token = read_token_file(write("  abcdefgh \nsecond\n", 0600));
  ASSERT_TRUE(token.ok());
  EXPECT_EQ(*token, "abcdefgh");
}

TEST_F(TokenFile, RefusesEmptyMissingShortAndLongOnes) {
  EXPECT_FALSE(read_token_file(write("", 0600)).ok());
  EXPECT_FALSE(read_token_file(write(" \n", 0600)).ok());
  EXPECT_FALSE(read_token_file(write(std::string(5000, 'x'), 0600)).ok());
  EXPECT_THAT(read_token_file(write(" abcdefg \n", 0600)).status().message(),
              HasSubstr("fewer than 8"));
  EXPECT_THAT(read_token_file("/nonexistent/token").status().message(),
              HasSubstr("/nonexistent/token"));
}

TEST_F(TokenFile, IsASecret) {
  for (const mode_t good : {0400, 0600, 0640, 0440, 0700}) {
    EXPECT_TRUE(read_token_file(write("abcdefgh\n", good)).ok()) << good;
  }
  for (const mode_t bad : {0644, 0604, 0602, 0660, 0620, 0666}) {
    EXPECT_THAT(read_token_file(write("abcdefgh\n", bad)).status().message(), HasSubstr("chmod 6"))
        << bad;
  }
}

}  // namespace
}  // namespace fargpu::server
