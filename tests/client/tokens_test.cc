#include "client/settings/tokens.h"

#include <gtest/gtest.h>

#include <string>

namespace fargpu::client {
namespace {

std::string token_of(const Result<Tokens>& tokens, const std::string& server) {
  return tokens.ok() ? tokens->of(*bootstrap::parse_server(server)) : tokens.status().message();
}

TEST(Tokens, OfTheOnlyServer) {
  for (const char* text : {"a secret", " a secret \r\n", "a secret\nanother line\n"})
    EXPECT_EQ(token_of(Tokens::parse(text, 1), "gpu1"), "a secret") << text;
  EXPECT_EQ(token_of(Tokens::parse("serverless", 1), "gpu1"), "serverless");
  EXPECT_FALSE(Tokens::parse("", 1).ok());
  EXPECT_FALSE(Tokens::parse("\nsecret", 1).ok());
}

TEST(Tokens, OneForSeveralServersMustBeMeantForAll) {
  const auto refused = Tokens::parse("secret", 2);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("server * TOKEN"), std::string::npos);
  const auto all = Tokens::parse("server * a secret", 2);
  EXPECT_EQ(token_of(all, "gpu1"), "a secret");
  EXPECT_EQ(token_of(all, "/run/socket"), "a secret");
}

TEST(Tokens, ALineForEachServer) {
  const auto tokens = Tokens::parse(R"(# of the laboratory
server gpu1       one
server gpu2:15000 two words

server [::1]:7    three
server /run/a     four
server tls://gpu3 five)",
                                    4);
  EXPECT_EQ(token_of(tokens, "gpu1:14900"), "one");
  EXPECT_EQ(token_of(tokens, "tls://gpu1"), "one");
  EXPECT_EQ(token_of(tokens, "gpu2:15000"), "two words");
  EXPECT_EQ(token_of(tokens, "gpu2"), "") << "another port";
  EXPECT_EQ(token_of(tokens, "[::1]:7"), "three");
  EXPECT_EQ(token_of(tokens, "unix:/run/a"), "four");
  EXPECT_EQ(token_of(tokens, "tls://gpu3"), "five");
  EXPECT_EQ(token_of(tokens, "gpu3"), "") << "not in the clear";
  EXPECT_EQ(token_of(tokens, "gpu4"), "");
}

TEST(Tokens, ALineOfAServerComesBeforeThatOfAll) {
  const auto tokens = Tokens::parse("server * all\nserver gpu1 one", 2);
  EXPECT_EQ(token_of(tokens, "gpu1"), "one");
  EXPECT_EQ(token_of(tokens, "gpu2"), "all");
}

TEST(Tokens, LinesThatMakeNoSense) {
  for (const char* text : {"server gpu1", "server gpu1 one\ntwo", "server gpu1:x one",
                           "secret\nserver gpu1 one", "server", "\xef\xbb\xbfserver gpu1 one"})
    EXPECT_FALSE(Tokens::parse(text, 1).ok()) << text;
}

// What was written as a line of another server must not go to this one.
TEST(Tokens, NoLineOfAServerIsAToken) {
  for (const char* text :
       {"# server gpu2 SECRET", "#server gpu2 SECRET\n", "# a comment\nsecret",
        "Server gpu2 SECRET", "SERVER * SECRET", "server\tgpu2", " server gpu2",
        "\xef\xbb\xbfserver gpu2 SECRET", "\xef\xbb\xbfSECRET", "\xff\xfes\n", "\xfe\xff\n"}) {
    const auto tokens = Tokens::parse(text, 1);
    ASSERT_FALSE(tokens.ok()) << text;
    EXPECT_EQ(tokens.status().code(), StatusCode::kInvalidArgument) << text;
    EXPECT_EQ(tokens.status().message().find("SECRET"), std::string::npos) << text;
  }
  for (const char* text : {"serverless", "Servers gpu2", "a server", "a#secret"})
    EXPECT_EQ(token_of(Tokens::parse(text, 1), "gpu1"), text);
}

TEST(Tokens, HostsHaveNoCase) {
  const auto tokens = Tokens::parse("server GPU1.Example one\nserver /Run/a two", 2);
  EXPECT_EQ(token_of(tokens, "gpu1.example"), "one");
  EXPECT_EQ(token_of(tokens, "tls://gpu1.eXAMPLE"), "one");
  EXPECT_EQ(token_of(tokens, "gpu1.example:1"), "");
  EXPECT_EQ(token_of(tokens, "/run/a"), "");
}

TEST(Tokens, WhyThereIsNone) {
  const auto why = [](const Tokens& tokens, const char* server) {
    return tokens.why_none(*bootstrap::parse_server(server));
  };
  const auto tokens = Tokens::parse("server gpu1 one", 1);
  ASSERT_TRUE(tokens.ok());
  EXPECT_EQ(why(*tokens, "gpu1"), "");
  EXPECT_EQ(why(*tokens, "gpu2:1"),
            "no line of FARGPU_TOKEN or FARGPU_TOKEN_FILE is for server gpu2:1");
  EXPECT_EQ(why(*Tokens::parse("one", 1), "gpu2"), "");
  EXPECT_EQ(why(Tokens(), "gpu2"), "") << "the server says it";
}

}  // namespace
}  // namespace fargpu::client
