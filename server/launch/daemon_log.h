// DaemonLog: while it lives, the log of this process is a daemon's. Of each event only so many
// lines are written, since clients and strangers cause them; the others are counted, and a line
// gives their number; ends of sessions that failed are all written. The daemon does not wait for
// the reader of the log: lines that are kept meanwhile are tried again once a second. One at a
// time; on the daemon's event loop, whose thread writes all lines.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "common/base/log.h"
#include "server/launch/line_budget.h"

namespace fargpu::server {

class DaemonLog {
 public:
  // Of events that anybody causes who can connect, and of all others.
  static constexpr LineBudget::Rate kOfStrangers{100, 1}, kOfOthers{1000, 50};
  // Between two lines that count.
  static constexpr std::chrono::seconds kPause{10};

  explicit DaemonLog(boost::asio::io_context& loop);
  // Writes what is counted, and what was kept, for a second at most.
  ~DaemonLog();
  DaemonLog(const DaemonLog&) = delete;
  DaemonLog& operator=(const DaemonLog&) = delete;

 private:
  struct Event {
    LineBudget budget;
    uint64_t left_out = 0;
  };
  // The event of a line is the word behind "event=" at its beginning.
  bool take(std::string_view text);
  void count();
  void flush_later();

  const log::Filter filter_;
  boost::asio::steady_timer count_timer_, flush_timer_;
  bool counting_ = false, flushing_ = false;
  std::map<std::string, Event, std::less<>> events_;  // few: their names are in the program
};

}  // namespace fargpu::server
