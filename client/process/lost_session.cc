#include "client/process/lost_session.h"

#include <fmt/core.h>

#include <chrono>

#include "common/base/descriptors.h"
#include "common/bootstrap/open_session.h"
#include "common/host/thread.h"
#include "common/wire/control.h"

namespace fargpu::client {
namespace {

Result<std::string> ask(const Session& session) {
  constexpr auto kPatience = std::chrono::milliseconds(500);
  FARGPU_ASSIGN_OR_RETURN(const auto address, bootstrap::parse_server(session.settings.server));
  bootstrap::Greeting greeting;
  greeting.opcode = wire::kSessionEnd;
  greeting.token = session.settings.tokens.of(address);
  greeting.ended_session = session.snapshot.session_id;
  return bootstrap::ask_for_end(address, greeting, transport::Clock::now() + kPatience);
}

}  // namespace

std::string describe_loss(const Session& session, const Status& why) {
  const bool may_be_known = why.code() == StatusCode::kLost || why.code() == StatusCode::kTimeout;
  if (!may_be_known || !session.knows(wire::kSessionEnd)) return why.message();
  std::string text;
  on_own_stack([&] {
    const descriptors::StandardTaken taken;
    const Result<std::string> end = ask(session);
    text = fmt::format("{} ({})", why.message(), end.ok() ? *end : end.status().message());
  });
  return text;
}

}  // namespace fargpu::client
