#include "server/job/ended_clients.h"

#include <boost/asio/post.hpp>
#include <utility>

namespace fargpu::server {

EndedClients::WaitId EndedClients::wait(std::set<uint64_t> sessions, Done done) {
  const WaitId id = next_++;
  const auto entry = waits_
                         .try_emplace(id, Wait{std::move(sessions), std::move(done),
                                               boost::asio::steady_timer(loop_)})
                         .first;
  entry->second.limit.expires_after(limit_);
  entry->second.limit.async_wait([this, id](const boost::system::error_code& error) {
    if (error) return;
    if (const auto late = waits_.find(id); late != waits_.end()) finish(late);
  });
  finish_if_over(entry);
  return id;
}

void EndedClients::there(WaitId id, uint64_t session) {
  const auto wait = waits_.find(id);
  if (wait == waits_.end()) return;
  wait->second.sessions.erase(session);
  finish_if_over(wait);
}

void EndedClients::gone(uint64_t session) {
  for (auto next = waits_.begin(); next != waits_.end();) {
    const auto wait = next++;
    if (wait->second.sessions.erase(session) != 0) finish_if_over(wait);
  }
}

void EndedClients::finish_if_over(std::map<WaitId, Wait>::iterator wait) {
  if (wait->second.sessions.empty()) finish(wait);
}

void EndedClients::finish(std::map<WaitId, Wait>::iterator wait) {
  boost::asio::post(loop_, std::move(wait->second.done));
  waits_.erase(wait);
}

}  // namespace fargpu::server
