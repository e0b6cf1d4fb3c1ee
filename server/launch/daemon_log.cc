#include "server/launch/daemon_log.h"

#include <algorithm>
#include <iterator>
#include <thread>
#include <utility>

namespace fargpu::server {
namespace {

using boost::system::error_code;

constexpr std::string_view kStrangersEvents[] = {"accept-failed", "bad-hello", "connection-dropped",
                                                 "refused"};

std::string_view event_of(std::string_view text) {
  constexpr std::string_view kKey = "event=";
  if (!text.starts_with(kKey)) return {};
  text.remove_prefix(kKey.size());
  return text.substr(0, text.find(' '));
}

// A tenant whose sessions come and go must not hide the failure of another's.
bool is_failed_end(std::string_view event, std::string_view text) {
  constexpr std::string_view kHow = " how=\"";
  if (event != "session-end") return false;
  const size_t how = text.find(kHow);  // before any text of others
  return how != text.npos && !text.substr(how + kHow.size()).starts_with("exited with 0\"");
}

LineBudget::Rate rate_of(std::string_view event) {
  const bool strangers = std::find(std::begin(kStrangersEvents), std::end(kStrangersEvents),
                                   event) != std::end(kStrangersEvents);
  return strangers ? DaemonLog::kOfStrangers : DaemonLog::kOfOthers;
}

}  // namespace

DaemonLog::DaemonLog(boost::asio::io_context& loop)
    : filter_([this](std::string_view text) { return take(text); }),
      count_timer_(loop),
      flush_timer_(loop) {
  log::set_filter(&filter_);
  log::never_wait([this] { flush_later(); });
}

DaemonLog::~DaemonLog() {
  log::set_filter(nullptr);
  count();
  constexpr auto kPatience = std::chrono::milliseconds(10);
  for (int i = 0; i < 100 && !log::flush(); ++i) std::this_thread::sleep_for(kPatience);
  log::never_wait(nullptr);
}

bool DaemonLog::take(std::string_view text) {
  const std::string_view name = event_of(text);
  if (is_failed_end(name, text)) return true;
  auto event = events_.find(name);
  if (event == events_.end()) event = events_.emplace(name, Event{LineBudget(rate_of(name))}).first;
  if (event->second.budget.take()) return true;
  ++event->second.left_out;
  if (!std::exchange(counting_, true)) {
    count_timer_.expires_after(kPause);
    count_timer_.async_wait([this](error_code error) {
      if (!error) count();
    });
  }
  return false;
}

void DaemonLog::count() {
  counting_ = false;
  for (auto& [name, event] : events_) {
    if (const uint64_t lines = std::exchange(event.left_out, 0); lines > 0)
      log::warn("event=lines-left-out of={} lines={}", name, lines);
  }
}

void DaemonLog::flush_later() {
  if (std::exchange(flushing_, true)) return;
  flush_timer_.expires_after(std::chrono::seconds(1));
  flush_timer_.async_wait([this](error_code error) {
    if (error) return;
    flushing_ = false;
    if (!log::flush()) flush_later();
  });
}

}  // namespace fargpu::server
