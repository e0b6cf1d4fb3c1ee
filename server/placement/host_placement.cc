#include "server/placement/host_placement.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <tuple>

#include "common/base/parse.h"

namespace fargpu::server {

std::vector<std::string> uuids_of(const std::vector<Unit>& units, std::span<const size_t> chosen) {
  std::vector<std::string> uuids;
  for (const size_t unit : chosen) uuids.push_back(units[unit].uuid);
  return uuids;
}

HostPlacement::HostPlacement(std::vector<Unit> units, PlacementLimits limits)
    : units_(std::move(units)), limits_(limits), loads_(units_.size()) {}

Result<size_t> HostPlacement::find(const std::string& device) const {
  if (auto index = parse_integer(device); index.ok()) {
    if (*index < units_.size()) return static_cast<size_t>(*index);
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("there is no GPU {}: this server has {} (0 to {})", device,
                              units_.size(), units_.size() - 1));
  }
  // Any unique beginning of a UUID will do, as in CUDA_VISIBLE_DEVICES; "GPU-" alone names nothing.
  size_t match = units_.size(), matches = 0;
  for (size_t i = 0; device.size() > 4 && i < units_.size(); ++i) {
    if (!units_[i].uuid.starts_with(device)) continue;
    match = i;
    ++matches;
  }
  if (matches == 1) return match;
  return Status(StatusCode::kInvalidArgument,
                fmt::format("{} GPU of this server has the UUID '{}'; `fargpu devices` lists them",
                            matches == 0 ? "no" : "more than one", device));
}

Status HostPlacement::admits(size_t gpu, uint64_t memory_bytes) const {
  const UnitLoad& load = loads_[gpu];
  if (!load.out_of_service.empty()) {
    return {StatusCode::kNoCapacity,
            fmt::format("GPU {} is out of service: {}", gpu, load.out_of_service)};
  }
  if (load.jobs >= limits_.max_sessions_per_gpu) {
    return {StatusCode::kNoCapacity,
            fmt::format("GPU {} already has {} jobs, the limit", gpu, load.jobs)};
  }
  const uint64_t contexts = (load.jobs + uint64_t{1}) * units_[gpu].context_bytes;
  const uint64_t taken = load.reserved_bytes + contexts;
  const uint64_t left = units_[gpu].total_bytes - std::min(taken, units_[gpu].total_bytes);
  if (!limits_.oversubscribe_memory && memory_bytes > left) {
    return {StatusCode::kNoCapacity,
            fmt::format("GPU {} has {} left to reserve, {} were asked for", gpu, format_bytes(left),
                        format_bytes(memory_bytes))};
  }
  return Status();
}

Result<std::vector<size_t>> HostPlacement::choose_named(const PlacementRequest& request,
                                                        Room room) const {
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
    if (room == Room::kNeeded) FARGPU_RETURN_IF_ERROR(admits(gpu, request.memory_bytes));
    chosen.push_back(gpu);
  }
  return chosen;
}

Result<std::vector<size_t>> HostPlacement::choose_any(const PlacementRequest& request,
                                                      Room room) const {
  const size_t wanted = std::max<uint32_t>(request.gpus, 1);
  if (wanted > units_.size()) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("{} GPUs were asked for, this server has {}", wanted, units_.size()));
  }
  std::vector<size_t> free, full;
  Status why;
  for (size_t gpu = 0; gpu < units_.size(); ++gpu) {
    if (Status status = admits(gpu, request.memory_bytes); status.ok()) {
      free.push_back(gpu);
    } else {
      full.push_back(gpu);
      why = std::move(status);
    }
  }
  const auto load = [this](size_t gpu) {
    return std::make_tuple(loads_[gpu].jobs, loads_[gpu].reserved_bytes, gpu);
  };
  const auto less = [&](size_t a, size_t b) { return load(a) < load(b); };
  std::sort(free.begin(), free.end(), less);
  if (room == Room::kIgnored) {
    std::sort(full.begin(), full.end(), less);
    free.insert(free.end(), full.begin(), full.end());
  }
  if (free.size() < wanted) {
    return Status(StatusCode::kNoCapacity,
                  fmt::format("{} of {} GPUs can take this job now: {}; try again later",
                              free.size(), wanted, why.message()));
  }
  free.resize(wanted);
  std::sort(free.begin(), free.end());
  return free;
}

Result<std::vector<size_t>> HostPlacement::choose(const PlacementRequest& request,
                                                  Room room) const {
  if (room == Room::kNeeded && allocations_.size() >= limits_.max_sessions) {
    return Status(
        StatusCode::kNoCapacity,
        fmt::format("the server has {} jobs, as many as it takes sessions; try again later",
                    allocations_.size()));
  }
  const bool fits = std::any_of(units_.begin(), units_.end(), [&](const Unit& unit) {
    return request.memory_bytes <=
           unit.total_bytes - std::min(unit.context_bytes, unit.total_bytes);
  });
  if (!fits) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("{} of memory were asked for; no GPU of this server has as much",
                              format_bytes(request.memory_bytes)));
  }
  return request.devices.empty() ? choose_any(request, room) : choose_named(request, room);
}

Grant HostPlacement::grant_of(std::vector<size_t> chosen, uint64_t memory_bytes) const {
  Grant grant;
  grant.environment = {
      {"CUDA_VISIBLE_DEVICES", fmt::format("{}", fmt::join(uuids_of(units_, chosen), ","))}};
  grant.units = std::move(chosen);
  grant.memory_bytes = memory_bytes;
  return grant;
}

Result<Grant> HostPlacement::preview(const PlacementRequest& request) const {
  FARGPU_ASSIGN_OR_RETURN(auto chosen, choose(request, Room::kIgnored));
  return grant_of(std::move(chosen), request.memory_bytes);
}

Result<Grant> HostPlacement::place(uint64_t job, const PlacementRequest& request) {
  if (allocations_.contains(job))
    return Status(StatusCode::kInvalidArgument, fmt::format("job {} is already placed", job));
  FARGPU_ASSIGN_OR_RETURN(auto chosen, choose(request, Room::kNeeded));
  Grant grant = grant_of(std::move(chosen), request.memory_bytes);
  for (const size_t unit : grant.units) {
    ++loads_[unit].jobs;
    loads_[unit].reserved_bytes += request.memory_bytes;
  }
  allocations_[job] = {grant.units, request.memory_bytes};
  return grant;
}

bool HostPlacement::fits_without(std::span<const uint64_t> others,
                                 const PlacementRequest& request) const {
  HostPlacement without = *this;
  for (const uint64_t other : others) without.release(other);
  return without.choose(request, Room::kNeeded).ok();
}

void HostPlacement::release(uint64_t job) {
  const auto allocation = allocations_.find(job);
  if (allocation == allocations_.end()) return;
  for (const size_t unit : allocation->second.units) {
    --loads_[unit].jobs;
    loads_[unit].reserved_bytes -= allocation->second.memory_bytes;
  }
  allocations_.erase(allocation);
}

}  // namespace fargpu::server
