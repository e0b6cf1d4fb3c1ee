#include "client/settings/fetch_mode.h"

#include <glob.h>

#include <algorithm>
#include <iterator>

#include "common/base/env.h"

namespace fargpu::client {
namespace {

constexpr const char* kManaged = "FARGPU_MANAGED";

Result<FetchMode> read(const char* variable, const std::string& text) {
  if (text.empty() || text == "auto") return FetchMode::kAuto;
  if (text == "touched") return FetchMode::kTouched;
  if (text == "eager") return FetchMode::kEager;
  return Status(StatusCode::kInvalidArgument,
                std::string(variable) + ": '" + text + "' is neither auto nor touched nor eager");
}

// The present name of a value of earlier releases.
std::string new_name(const std::string& text) {
  if (text == "userfaultfd") return "touched";
  return text == "signal" ? "eager" : text;
}

}  // namespace

Result<FetchMode> read_mapped_mode() {
  return read("FARGPU_MAPPED", env_text("FARGPU_MAPPED").value_or(""));
}

Result<FetchMode> read_managed_mode() {
  return read(kManaged, new_name(env_text(kManaged).value_or("")));
}

std::string renamed_managed_mode() {
  const std::string text = env_text(kManaged).value_or("");
  const std::string now = new_name(text);
  if (now == text) return {};
  return std::string(kManaged) + "=" + text + " is " + kManaged + "=" + now + " now";
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
