#include "client/settings/managed_mode.h"

#include <cstdlib>
#include <string>

namespace fargpu::client {

Result<ManagedMode> read_managed_mode() {
  const char* const variable = std::getenv("FARGPU_MANAGED");
  const std::string text = variable == nullptr ? "" : variable;
  if (text.empty() || text == "touched") return ManagedMode::kTouched;
  if (text == "eager") return ManagedMode::kEager;
  return Status(StatusCode::kInvalidArgument,
                "FARGPU_MANAGED: '" + text + "' is neither touched nor eager");
}

}  // namespace fargpu::client
