// LoggedLauncher: a Launcher whose processes have a pipe to the daemon as stdout and stderr, and
// whose lines the daemon writes into its log, under the name of the process. So one process writes
// the log, and what others send is bounded: a line by kMostLine bytes, a process and all processes
// of a program by budgets. Lines beyond them are counted, and a line says so. A process never
// waits for the daemon: what the pipe does not take is lost.
//
// On the daemon's event loop, which it never blocks.
#pragma once

#include <boost/asio/io_context.hpp>
#include <map>
#include <memory>
#include <string>

#include "server/launch/launcher.h"
#include "server/launch/line_budget.h"

namespace fargpu::server {

class LoggedLauncher final : public Launcher {
 public:
  static constexpr size_t kMostLine = 1024;
  static constexpr LineBudget::Rate kOfProcess{300, 10}, kOfProgram{3000, 100};

  // `launcher` starts them. Both outlive this.
  LoggedLauncher(boost::asio::io_context& loop, Launcher& launcher)
      : loop_(loop), launcher_(launcher) {}
  Result<std::unique_ptr<LaunchedProcess>> start(const ProcessSetup& setup) override;

 private:
  boost::asio::io_context& loop_;
  Launcher& launcher_;
  std::map<std::string, std::shared_ptr<LineBudget>> programs_;
};

}  // namespace fargpu::server
