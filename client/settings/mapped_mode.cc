#include "client/settings/mapped_mode.h"

#include <glob.h>

#include <algorithm>
#include <iterator>

#include "common/base/env.h"

namespace fargpu::client {

Result<MappedMode> read_mapped_mode() {
  const std::string text = env_text("FARGPU_MAPPED").value_or("");
  if (text.empty() || text == "auto") return MappedMode::kAuto;
  if (text == "touched") return MappedMode::kTouched;
  if (text == "eager") return MappedMode::kEager;
  return Status(StatusCode::kInvalidArgument,
                "FARGPU_MAPPED: '" + text + "' is neither auto nor touched nor eager");
}

bool has_adapter(const std::string& devices) {
  // InfiniBand, RoCE, EFA; Omni-Path; Slingshot; Aries; drivers in user space.
  constexpr const char* kNames[] = {"/infiniband/uverbs*", "/hfi1*", "/cxi*", "/kgni*",
                                    "/vfio/[0-9]*"};
  return std::any_of(std::begin(kNames), std::end(kNames), [&](const char* name) {
    glob_t found = {};
    const bool any = ::glob((devices + name).c_str(), GLOB_NOSORT, nullptr, &found) == 0;
    ::globfree(&found);
    return any;
  });
}

}  // namespace fargpu::client
