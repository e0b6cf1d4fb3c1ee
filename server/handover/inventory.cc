#include "server/handover/inventory.h"

#include <fmt/core.h>

#include <charconv>

#include "common/base/parse.h"
#include "server/handover/child_process.h"

namespace fargpu::server {
namespace {

// the first cuInit after boot loads firmware
constexpr auto kProbeLimit = std::chrono::seconds(120);

// Cuts the first word off `line`.
std::string_view take_word(std::string_view& line) {
  const size_t space = line.find(' ');
  const std::string_view word = line.substr(0, space);
  line = space == std::string_view::npos ? std::string_view() : line.substr(space + 1);
  return word;
}

bool take_number(std::string_view& line, int* value) {
  const std::string_view word = take_word(line);
  return !word.empty() && std::from_chars(word.data(), word.data() + word.size(), *value).ptr ==
                              word.data() + word.size();
}

Status read_line(std::string_view line, Inventory& inventory) {
  const std::string_view whole = line;
  const std::string_view kind = take_word(line);
  if (kind == "error") return {StatusCode::kDriver, std::string(line)};
  if (kind == "driver") {
    const auto version = parse_integer(take_word(line));
    if (version.ok() && !line.empty()) {
      inventory.driver_version = static_cast<int>(*version);
      inventory.driver_path = line;
      return Status();
    }
  } else if (kind == "gpu") {
    Gpu gpu;
    gpu.uuid = take_word(line);
    const auto bytes = parse_integer(take_word(line));
    const bool priorities =
        take_number(line, &gpu.priorities.least) && take_number(line, &gpu.priorities.greatest);
    gpu.name = line;
    if (bytes.ok() && priorities && !gpu.uuid.empty() && !gpu.name.empty()) {
      gpu.total_bytes = *bytes;
      inventory.gpus.push_back(std::move(gpu));
      return Status();
    }
  }
  return {StatusCode::kProtocol, fmt::format("the probe said '{}'", whole.substr(0, 200))};
}

}  // namespace

std::string format_inventory(const Inventory& inventory) {
  std::string text = fmt::format("driver {} {}\n", inventory.driver_version, inventory.driver_path);
  for (const Gpu& gpu : inventory.gpus) {
    text += fmt::format("gpu {} {} {} {} {}\n", gpu.uuid, gpu.total_bytes, gpu.priorities.least,
                        gpu.priorities.greatest, gpu.name);
  }
  return text;
}

Result<Inventory> parse_inventory(std::string_view text) {
  Inventory inventory;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    if (!line.empty()) FARGPU_RETURN_IF_ERROR(read_line(line, inventory));
  }
  if (inventory.driver_path.empty())
    return Status(StatusCode::kProtocol, "the probe named no driver");
  if (inventory.gpus.empty()) {
    return Status(StatusCode::kNotFound,
                  fmt::format("the driver {} has no GPU; check CUDA_VISIBLE_DEVICES and nvidia-smi",
                              inventory.driver_path));
  }
  return inventory;
}

Result<Inventory> probe(const std::string& worker_program, const std::string& driver,
                        const std::vector<std::pair<std::string, std::string>>& environment) {
  ChildSetup setup;
  setup.program = worker_program;
  setup.arguments = {"--probe", "--driver=" + driver};
  setup.environment = environment;
  FARGPU_ASSIGN_OR_RETURN(const ChildOutput output, run_child(std::move(setup), kProbeLimit));
  auto inventory = parse_inventory(output.text);
  if (inventory.ok() || inventory.status().code() == StatusCode::kDriver || output.wait_status == 0)
    return inventory;
  return Status(StatusCode::kDriver, fmt::format("the probe of driver '{}' {}", driver,
                                                 describe_wait_status(output.wait_status)));
}

}  // namespace fargpu::server
