#include "server/placement/pool.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>
#include <tuple>

#include "common/base/parse.h"

namespace fargpu::server {

Pool::Pool(std::vector<Gpu> gpus, PoolLimits limits)
    : gpus_(std::move(gpus)), limits_(limits), loads_(gpus_.size()) {}

Result<size_t> Pool::find(const std::string& device) const {
  if (auto index = parse_integer(device); index.ok()) {
    if (*index < gpus_.size()) return static_cast<size_t>(*index);
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("there is no GPU {}: this server has {} (0 to {})", device,
                              gpus_.size(), gpus_.size() - 1));
  }
  // Any unique beginning of a UUID will do, as in CUDA_VISIBLE_DEVICES; "GPU-" alone names nothing.
  size_t match = gpus_.size(), matches = 0;
  for (size_t i = 0; device.size() > 4 && i < gpus_.size(); ++i) {
    if (!gpus_[i].uuid.starts_with(device)) continue;
    match = i;
    ++matches;
  }
  if (matches == 1) return match;
  return Status(StatusCode::kInvalidArgument,
                fmt::format("{} GPU of this server has the UUID '{}'; `fargpu devices` lists them",
                            matches == 0 ? "no" : "more than one", device));
}

Status Pool::admits(size_t gpu, uint64_t memory_bytes) const {
  const GpuLoad& load = loads_[gpu];
  if (load.jobs >= limits_.max_sessions_per_gpu) {
    return {StatusCode::kNoCapacity,
            fmt::format("GPU {} already has {} jobs, the limit", gpu, load.jobs)};
  }
  if (!limits_.oversubscribe_memory &&
      memory_bytes > gpus_[gpu].total_bytes - load.reserved_bytes) {
    return {StatusCode::kNoCapacity,
            fmt::format("GPU {} has {} left to reserve, {} were asked for", gpu,
                        format_bytes(gpus_[gpu].total_bytes - load.reserved_bytes),
                        format_bytes(memory_bytes))};
  }
  return Status();
}

Result<std::vector<size_t>> Pool::choose_named(const PlacementRequest& request) const {
  if (request.gpus > 1 && request.gpus != request.devices.size()) {
    return Status(StatusCode::kInvalidArgument, fmt::format("{} GPUs were asked for, but {} named",
                                                            request.gpus, request.devices.size()));
  }
  std::vector<size_t> chosen;
  for (const std::string& device : request.devices) {
    FARGPU_ASSIGN_OR_RETURN(const size_t gpu, find(device));
    if (std::find(chosen.begin(), chosen.end(), gpu) != chosen.end()) {
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("GPU '{}' was asked for twice", device));
    }
    FARGPU_RETURN_IF_ERROR(admits(gpu, request.memory_bytes));
    chosen.push_back(gpu);
  }
  return chosen;
}

Result<std::vector<size_t>> Pool::choose_any(const PlacementRequest& request) const {
  const size_t wanted = std::max<uint32_t>(request.gpus, 1);
  if (wanted > gpus_.size()) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("{} GPUs were asked for, this server has {}", wanted, gpus_.size()));
  }
  std::vector<size_t> free;
  Status why;
  for (size_t gpu = 0; gpu < gpus_.size(); ++gpu) {
    if (Status status = admits(gpu, request.memory_bytes); status.ok()) {
      free.push_back(gpu);
    } else {
      why = std::move(status);
    }
  }
  if (free.size() < wanted) {
    return Status(StatusCode::kNoCapacity,
                  fmt::format("{} of {} GPUs can take this job now: {}; try again later",
                              free.size(), wanted, why.message()));
  }
  const auto load = [this](size_t gpu) {
    return std::make_tuple(loads_[gpu].jobs, loads_[gpu].reserved_bytes, gpu);
  };
  std::sort(free.begin(), free.end(), [&](size_t a, size_t b) { return load(a) < load(b); });
  free.resize(wanted);
  std::sort(free.begin(), free.end());
  return free;
}

Result<std::vector<size_t>> Pool::place(uint64_t job, const PlacementRequest& request) {
  if (held_.size() >= limits_.max_sessions) {
    return Status(
        StatusCode::kNoCapacity,
        fmt::format("the server has {} jobs, as many as it takes sessions; try again later",
                    held_.size()));
  }
  if (held_.contains(job)) {
    return Status(StatusCode::kInvalidArgument, fmt::format("job {} is already placed", job));
  }
  const bool fits = std::any_of(gpus_.begin(), gpus_.end(), [&](const Gpu& gpu) {
    return request.memory_bytes <= gpu.total_bytes;
  });
  if (!fits) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("{} of memory were asked for; no GPU of this server has as much",
                              format_bytes(request.memory_bytes)));
  }
  FARGPU_ASSIGN_OR_RETURN(std::vector<size_t> chosen,
                          request.devices.empty() ? choose_any(request) : choose_named(request));
  for (const size_t gpu : chosen) {
    ++loads_[gpu].jobs;
    loads_[gpu].reserved_bytes += request.memory_bytes;
  }
  held_[job] = {chosen, request.memory_bytes};
  return chosen;
}

void Pool::release(uint64_t job) {
  const auto held = held_.find(job);
  if (held == held_.end()) return;
  for (const size_t gpu : held->second.gpus) {
    --loads_[gpu].jobs;
    loads_[gpu].reserved_bytes -= held->second.memory_bytes;
  }
  held_.erase(held);
}

}  // namespace fargpu::server
