// Launcher: starts the processes of a daemon (workers, the probe, TLS relays), signals them and
// learns of their ends. Only an implementation knows the parent of the processes: ChildLauncher
// starts them as children of this process; a starter with other rights may be the parent itself,
// and pass on a descriptor for each process and its exit status. So no other code waits for a
// process id, signals one, or finds a process by it. One thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "common/transport/transport.h"

namespace fargpu::server {

struct ProcessSetup {
  std::string program;
  std::vector<std::string> arguments;                            // without the program's name
  std::vector<std::pair<std::string, std::string>> environment;  // set over what it inherits
  // ours -> the process's number; besides them it gets 0 (null), 1 and 2
  std::vector<std::pair<int, int>> descriptors;
  std::string name{};  // in the daemon's log; empty: the program's
};

struct ProcessEnd {
  int code = 0;    // of a process that has exited
  int signal = 0;  // that has killed it; 0: it has exited
  bool core_dump = false;

  // "exited with 3", "was killed by signal 9 (Killed)".
  std::string describe() const;
};

// A process that was started. It does not end with this object.
class LaunchedProcess {
 public:
  virtual ~LaunchedProcess() = default;
  // Its process id, for people and for files that are named after it.
  virtual int id() const = 0;
  // Without effect once the process has ended, even if another process has its id.
  virtual void signal(int number) = 0;
  // Readable as soon as end() knows it; for poll() only.
  virtual int end_descriptor() const = 0;
  // How it ended. None: it has not.
  virtual std::optional<ProcessEnd> end() = 0;
  // Its name in the daemon's log from now on.
  virtual void set_name(const std::string&) {}
};

class Launcher {
 public:
  virtual ~Launcher() = default;
  // The process gets exactly the descriptors that it is meant to have, and of our environment only
  // what drivers and fargpu read, without a client's secrets. Descriptors of ours below the last
  // listed number must be close-on-exec. An error, also of the program's start, names the program;
  // nothing runs then.
  virtual Result<std::unique_ptr<LaunchedProcess>> start(const ProcessSetup& setup) = 0;
};

// Waits for its end. None: it still runs at the deadline.
std::optional<ProcessEnd> await_end(LaunchedProcess& process, transport::Deadline deadline);

}  // namespace fargpu::server
