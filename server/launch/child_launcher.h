// ChildLauncher: a Launcher whose processes are children of this one, in process groups of their
// own.
#pragma once

#include "server/launch/launcher.h"

namespace fargpu::server {

class ChildLauncher final : public Launcher {
 public:
  // Resets SIGCHLD if the parent process has left it ignored: the system would forget how children
  // end.
  ChildLauncher();
  Result<std::unique_ptr<LaunchedProcess>> start(const ProcessSetup& setup) override;
};

}  // namespace fargpu::server
