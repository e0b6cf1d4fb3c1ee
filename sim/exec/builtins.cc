#include "sim/exec/builtins.h"

#include <fmt/core.h>

#include <array>
#include <cstring>
#include <optional>
#include <vector>

#include "sim/exec/memory.h"

namespace fargpu::sim {

Builtin builtin_from_name(std::string_view name) {
  if (name == "vprintf") return Builtin::kPrintf;
  if (name == "__assertfail") return Builtin::kAssertFail;
  if (name == "malloc") return Builtin::kMalloc;
  if (name == "free") return Builtin::kFree;
  if (name == "cudaGraphLaunch") return Builtin::kGraphLaunch;
  if (name == "cudaGraphKernelNodeSetParam") return Builtin::kNodeSetParam;
  if (name == "cudaGraphKernelNodeSetEnabled") return Builtin::kNodeSetEnabled;
  if (name == "cudaGraphKernelNodeSetGridDim") return Builtin::kNodeSetGridDim;
  if (name == "cudaGraphKernelNodeUpdatesApply") return Builtin::kNodeUpdatesApply;
  return Builtin::kNone;
}

DeviceHeap::~DeviceHeap() {
  if (base_ != 0) memory_.release(base_);
}

uint64_t DeviceHeap::allocate(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (base_ == 0) {
    if (failed_) return 0;
    base_ = memory_.allocate(bytes_);
    failed_ = base_ == 0;
    if (failed_) return 0;
    free_[base_] = bytes_;
  }
  if (bytes == 0 || bytes > bytes_) return 0;
  const uint64_t need = (bytes + 15) / 16 * 16;
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    if (it->second < need) continue;
    const uint64_t address = it->first, left = it->second - need;
    free_.erase(it);
    if (left != 0) free_[address + need] = left;
    used_[address] = need;
    return address;
  }
  return 0;
}

bool DeviceHeap::release(uint64_t address) {
  if (address == 0) return true;
  const std::lock_guard lock(mutex_);
  const auto found = used_.find(address);
  if (found == used_.end()) return false;
  auto place = free_.emplace(address, found->second).first;
  used_.erase(found);
  // Neighbours become one.
  if (const auto next = std::next(place);
      next != free_.end() && place->first + place->second == next->first) {
    place->second += next->second;
    free_.erase(next);
  }
  if (place != free_.begin()) {
    const auto before = std::prev(place);
    if (before->first + before->second == place->first) {
      before->second += place->second;
      free_.erase(place);
    }
  }
  return true;
}

namespace {

template <typename T>
T argument(Exec& x, const CallSite& site, size_t index, uint32_t lane) {
  T value{};
  const CallSite::Copy& place = site.arguments[index];
  std::memcpy(&value, local_base(x, lane) + x.path.local + place.offset,
              std::min<size_t>(sizeof(T), place.bytes));
  return value;
}

template <typename T>
void give_back(Exec& x, const CallSite& site, uint32_t lane, T value) {
  if (site.returns.empty()) return;
  const CallSite::Copy& place = site.returns[0];
  std::memcpy(local_base(x, lane) + x.path.local + place.offset, &value,
              std::min<size_t>(sizeof(T), place.bytes));
}

void write_output(Exec& x, std::string_view text) {
  if (x.grid->output == nullptr || !*x.grid->output) return;
  const std::lock_guard lock(x.grid->mutex);
  (*x.grid->output)(text);
}

// Arguments lie one after the other at a generic address, each aligned to its size.
class LaneArguments final : public PrintSource {
 public:
  LaneArguments(Exec& x, const Instr& in, uint64_t address, uint32_t lane)
      : x_(x), in_(in), address_(address), lane_(lane) {}
  bool argument(unsigned bytes, uint64_t& value) override {
    address_ = (address_ + bytes - 1) / bytes * bytes;
    const uint8_t* place =
        resolve_lane(x_, in_, ptx::Space::kGeneric, address_, bytes, false, lane_);
    if (place == nullptr) return false;
    value = 0;
    std::memcpy(&value, place, bytes);
    address_ += bytes;
    return true;
  }
  bool text(uint64_t address, std::string& value) override {
    return read_string(x_, in_, address, lane_, value);
  }

 private:
  Exec& x_;
  const Instr& in_;
  uint64_t address_;
  const uint32_t lane_;
};

bool print(Exec& x, const Instr& in, const CallSite& site, uint32_t lane) {
  std::string format;
  if (!read_string(x, in, argument<uint64_t>(x, site, 0, lane), lane, format)) return false;
  LaneArguments arguments(x, in, argument<uint64_t>(x, site, 1, lane), lane);
  x.print_buffer.clear();
  const int count = format_print(format, arguments, x.print_buffer);
  if (x.event == Event::kFault) return false;
  write_output(x, x.print_buffer);
  give_back<int32_t>(x, site, lane, count);
  return true;
}

// One line, as the driver prints it; empty: its texts cannot be read, which is another fault.
std::string assertion_line(Exec& x, const Instr& in, const CallSite& site, uint32_t lane,
                           std::string& message) {
  std::string file, function;
  if (!read_string(x, in, argument<uint64_t>(x, site, 0, lane), lane, message) ||
      !read_string(x, in, argument<uint64_t>(x, site, 1, lane), lane, file) ||
      !read_string(x, in, argument<uint64_t>(x, site, 3, lane), lane, function)) {
    return {};
  }
  const auto& block = x.block->index;
  const auto thread = [&](WarpValue which) {
    return x.at<uint32_t>(operand_ref(kWarpArea, which * kValueBytes))[lane];
  };
  return fmt::format("{}:{}: {}: block: [{},{},{}], thread: [{},{},{}] Assertion `{}` failed.\n",
                     file, argument<uint32_t>(x, site, 2, lane), function, block[0], block[1],
                     block[2], thread(kTidX), thread(kTidY), thread(kTidZ), message);
}

// Every thread of the path reports its failure; the first one of the grid is the fault.
void assert_failed(Exec& x, const Instr& in, const CallSite& site, uint32_t mask) {
  constexpr size_t kMostText = 1 << 20;
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((mask >> l & 1u) == 0) continue;
    std::string message;
    const std::string line = assertion_line(x, in, site, l, message);
    if (line.empty()) return;
    raise_fault(x, in, Fault::Kind::kAssert, l, 0, 0, message);
    const std::lock_guard lock(x.grid->mutex);
    std::string& messages = x.grid->fault->messages;
    if (messages.size() + line.size() <= kMostText) messages += line;
  }
}

constexpr int kInvalidValue = 1;  // cudaErrorInvalidValue

// The bytes at a generic address; nothing after a fault.
std::vector<std::byte> read_bytes(Exec& x, const Instr& in, uint64_t address, size_t bytes,
                                  uint32_t lane) {
  const uint8_t* const place = resolve_range(x, in, ptx::Space::kGeneric, address,
                                             static_cast<unsigned>(bytes), 1, false, lane);
  if (place == nullptr) return {};
  const auto* const first = reinterpret_cast<const std::byte*>(place);
  return {first, first + bytes};
}

// nullopt: a fault.
std::optional<int> set_param(Exec& x, const Instr& in, uint64_t node, uint64_t offset,
                             uint64_t address, uint64_t bytes, uint32_t lane) {
  constexpr uint64_t kMostParameters = 32764;
  if (bytes == 0 || bytes > kMostParameters) return kInvalidValue;
  const auto value = read_bytes(x, in, address, bytes, lane);
  if (value.empty()) return std::nullopt;
  return x.grid->config.graphs->set_parameter(node, offset, value);
}

// cudaGraphKernelNodeUpdate.
struct NodeUpdate {
  enum Field : uint32_t { kGridDim = 1, kParam, kEnabled };
  uint64_t node;
  uint32_t field;
  uint32_t unused;
  union {
    std::array<uint32_t, 3> grid;
    struct {
      uint64_t value, offset, bytes;
    } param;
    uint32_t enabled;
  };
};
static_assert(sizeof(NodeUpdate) == 40);

std::optional<int> apply_update(Exec& x, const Instr& in, uint64_t address, uint32_t lane) {
  const auto bytes = read_bytes(x, in, address, sizeof(NodeUpdate), lane);
  if (bytes.empty()) return std::nullopt;
  NodeUpdate update;
  std::memcpy(&update, bytes.data(), sizeof update);
  DeviceGraphs& graphs = *x.grid->config.graphs;
  switch (update.field) {
    case NodeUpdate::kGridDim:
      return graphs.set_grid(update.node, update.grid);
    case NodeUpdate::kParam:
      return set_param(x, in, update.node, update.param.offset, update.param.value,
                       update.param.bytes, lane);
    case NodeUpdate::kEnabled:
      return graphs.set_enabled(update.node, update.enabled != 0);
    default:
      return kInvalidValue;
  }
}

std::optional<int> apply_updates(Exec& x, const Instr& in, uint64_t address, uint64_t count,
                                 uint32_t lane) {
  for (uint64_t i = 0; i < count; ++i) {
    const auto result = apply_update(x, in, address + i * sizeof(NodeUpdate), lane);
    if (result != 0) return result;
  }
  return 0;
}

// A function about graphs: its result; nullopt: a fault.
std::optional<int> call_graphs(Exec& x, const Instr& in, Builtin builtin, const CallSite& site,
                               uint32_t lane) {
  DeviceGraphs* const graphs = x.grid->config.graphs;
  if (graphs == nullptr) return kInvalidValue;
  const auto first = argument<uint64_t>(x, site, 0, lane);
  switch (builtin) {
    case Builtin::kGraphLaunch:
      return graphs->launch(first, argument<uint64_t>(x, site, 1, lane));
    case Builtin::kNodeSetParam:
      return set_param(x, in, first, argument<uint64_t>(x, site, 1, lane),
                       argument<uint64_t>(x, site, 2, lane), argument<uint64_t>(x, site, 3, lane),
                       lane);
    case Builtin::kNodeSetEnabled:
      return graphs->set_enabled(first, argument<uint8_t>(x, site, 1, lane) != 0);
    case Builtin::kNodeSetGridDim:
      return graphs->set_grid(first, argument<std::array<uint32_t, 3>>(x, site, 1, lane));
    default:
      return apply_updates(x, in, first, argument<uint64_t>(x, site, 1, lane), lane);
  }
}

}  // namespace

void call_builtin(Exec& x, const Instr& in, const FunctionCode& function, const CallSite& site,
                  uint32_t mask) {
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((mask >> l & 1u) == 0) continue;
    switch (function.builtin) {
      case Builtin::kPrintf:
        if (!print(x, in, site, l)) return;
        break;
      case Builtin::kAssertFail:
        return assert_failed(x, in, site, mask);
      case Builtin::kMalloc:
        give_back<uint64_t>(x, site, l, x.grid->heap->allocate(argument<uint64_t>(x, site, 0, l)));
        break;
      case Builtin::kFree: {
        const auto address = argument<uint64_t>(x, site, 0, l);
        if (!x.grid->heap->release(address)) {
          return raise_fault(x, in, Fault::Kind::kIllegalAddress, l, address, 0,
                             "free of what malloc did not give");
        }
        break;
      }
      case Builtin::kGraphLaunch:
      case Builtin::kNodeSetParam:
      case Builtin::kNodeSetEnabled:
      case Builtin::kNodeSetGridDim:
      case Builtin::kNodeUpdatesApply: {
        const auto result = call_graphs(x, in, function.builtin, site, l);
        if (!result) return;
        give_back<int32_t>(x, site, l, *result);
        break;
      }
      case Builtin::kNone:
        break;
    }
  }
}

}  // namespace fargpu::sim
