// Tokens: which token is for which server. No server is sent one that was not meant for it. Plain
// values.
//
// The text of FARGPU_TOKEN or of the file that FARGPU_TOKEN_FILE names has one of two forms. Its
// first line is the token of the program's only server, and begins neither with '#' nor with the
// word server; or every line is one of
//
//   server HOST:PORT TOKEN       as servers are named otherwise; tls://HOST:PORT: over TLS alone
//   server * TOKEN               of every server without a line of its own
//   # a comment, or nothing
//
// The names of hosts are the same in small and in capital letters.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/bootstrap/connect.h"

namespace fargpu::client {

class Tokens {
 public:
  Tokens() = default;
  // `servers`: of the program. kInvalidArgument: a line makes no sense, there is no token at all,
  // or there are several servers and it is not said whose the token is.
  static Result<Tokens> parse(std::string_view text, size_t servers);

  // Empty: none is for this server.
  const std::string& of(const bootstrap::ServerAddress& server) const;
  // For a server that asks for one; empty: there is one, or none at all.
  std::string why_none(const bootstrap::ServerAddress& server) const;

 private:
  struct Line {
    std::optional<bootstrap::ServerAddress> server;  // none: every server
    std::string token;
  };
  static Result<Line> parse_line(std::string_view line);

  std::vector<Line> lines_;
};

}  // namespace fargpu::client
