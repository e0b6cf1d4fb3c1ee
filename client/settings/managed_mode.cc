#include "client/settings/managed_mode.h"

#include <string>

#include "common/base/env.h"

namespace fargpu::client {

Result<ManagedMode> read_managed_mode() {
  const std::string text = env_text("FARGPU_MANAGED").value_or("");
  if (text.empty() || text == "auto") return ManagedMode::kAuto;
  if (text == "touched") return ManagedMode::kTouched;
  if (text == "userfaultfd") return ManagedMode::kUserfaultfd;
  if (text == "signal") return ManagedMode::kSignal;
  if (text == "eager") return ManagedMode::kEager;
  return Status(StatusCode::kInvalidArgument,
                "FARGPU_MANAGED: '" + text +
                    "' is neither auto nor touched nor userfaultfd nor signal nor eager");
}

}  // namespace fargpu::client
