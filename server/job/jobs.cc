#include "server/job/jobs.h"

#include <fmt/core.h>

#include <algorithm>

#include "common/base/parse.h"

namespace fargpu::server {
namespace {

// What a session wishes for must be what its job has, or nothing.
Status check_wish(const Job& job, const PlacementRequest& wish) {
  const char* what = nullptr;
  // One GPU and several that are named: the names count (HostPlacement::choose_named).
  const bool by_name = wish.gpus <= 1 && !wish.devices.empty();
  if (wish.gpus != 0 && !by_name && wish.gpus != job.grant.units.size())
    what = "another number of GPUs (FARGPU_GPUS)";
  if (wish.memory_bytes != 0 && wish.memory_bytes != job.grant.memory_bytes)
    what = "another memory limit (FARGPU_MEMORY)";
  if (!wish.devices.empty() && wish.devices != job.asked_devices)
    what = "other GPUs (FARGPU_DEVICES)";
  if (what == nullptr) return Status();
  return {StatusCode::kInvalidArgument,
          fmt::format("the session asks for {} than its job has; CUDA_VISIBLE_DEVICES chooses "
                      "among the job's GPUs, and without FARGPU_JOB the program is a job by itself",
                      what)};
}

uint32_t take_slot(std::vector<bool>& slots) {
  const auto free = std::find(slots.begin(), slots.end(), false);
  const auto slot = static_cast<uint32_t>(free - slots.begin());
  if (free == slots.end()) slots.push_back(false);
  slots[slot] = true;
  return slot;
}

Status full(const char* what, size_t count) {
  return {StatusCode::kNoCapacity,
          fmt::format("the server has {} {}, its limit; try again later", count, what)};
}

}  // namespace

Job* Jobs::find(uint64_t job) {
  const auto found = jobs_.find(job);
  return found == jobs_.end() ? nullptr : &found->second;
}

// A key of the client's own is compared with all: it takes the same time whichever is right.
Job* Jobs::find(const bootstrap::JobTicket& ticket) {
  Job* found = nullptr;
  for (auto& [id, job] : jobs_) {
    const auto kind = ticket.id == 0 ? Job::Kind::kShared : Job::Kind::kOpened;
    if (job.kind != kind || (ticket.id != 0 && ticket.id != id)) continue;
    if (bootstrap::same_key(job.key, ticket.key)) found = &job;
  }
  return found;
}

bool Jobs::knows(const std::optional<bootstrap::JobTicket>& ticket) const {
  const Job* const job = ticket ? const_cast<Jobs*>(this)->find(*ticket) : nullptr;
  return job != nullptr && job->placed;
}

// Jobs in their grace time give way, the one that ends first before the others, but only if that
// helps.
Result<Grant> Jobs::place(uint64_t job, const PlacementRequest& request) {
  auto placed = placement_.place(job, request);
  if (placed.ok() || placed.status().code() != StatusCode::kNoCapacity) return placed;
  std::vector<const Job*> idle;
  for (const auto& [id, other] : jobs_) {
    if (other.grant.ends) idle.push_back(&other);
  }
  std::sort(idle.begin(), idle.end(),
            [](const Job* a, const Job* b) { return *a->grant.ends < *b->grant.ends; });
  std::vector<uint64_t> ids;
  for (const Job* other : idle) ids.push_back(other->id);
  if (!placement_.fits_without(ids, request)) return placed;
  for (const uint64_t other : ids) {
    end(other, "its grace time ended early: another job needs what it has");
    placed = placement_.place(job, request);
    if (placed.ok()) break;
  }
  return placed;
}

Result<Job*> Jobs::make(Job::Kind kind, const bootstrap::SessionKey& key, const JobRequest& request,
                        Purpose purpose, Time now) {
  PlacementRequest wish = request.placement;
  const uint64_t most = rules_.most_memory;
  if (wish.memory_bytes == 0)
    wish.memory_bytes = rules_.usual_memory != 0 ? rules_.usual_memory : most;
  if (most != 0 && wish.memory_bytes > most) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("{} of each GPU were asked for, and a job may have {} here",
                              format_bytes(wish.memory_bytes), format_bytes(most)));
  }
  Job job;
  job.id = ids_.next();
  job.placed = purpose == Purpose::kUse;
  FARGPU_ASSIGN_OR_RETURN(job.grant, job.placed ? place(job.id, wish) : placement_.preview(wish));
  job.kind = kind;
  job.key = key;
  job.client = request.client;
  job.peer = request.peer;
  job.tenant = request.tenant;
  job.asked_devices = request.placement.devices;
  job.since = now;
  const uint64_t id = job.id;
  Job& made = jobs_.emplace(id, std::move(job)).first->second;
  if (made.placed) tell(made, Change::kPlaced);
  return &made;
}

// A view becomes a job, on the GPUs that its observers were shown if no other job has to give way.
Status Jobs::place_view(Job& job) {
  PlacementRequest wish{static_cast<uint32_t>(job.grant.units.size()), job.grant.memory_bytes, {}};
  for (const size_t unit : job.grant.units) wish.devices.push_back(std::to_string(unit));
  auto placed = placement_.place(job.id, wish);
  if (!placed.ok() && placed.status().code() == StatusCode::kNoCapacity) {
    if (job.asked_devices.empty()) wish.devices.clear();
    placed = place(job.id, wish);
  }
  FARGPU_RETURN_IF_ERROR(placed.status());
  const bool moved = placed->units != job.grant.units;
  job.grant = std::move(*placed);
  job.placed = true;
  tell(job, Change::kPlaced);
  if (moved) tell(job, Change::kMoved, "another job has got what its observers were shown");
  return Status();
}

size_t Jobs::places_of(const TenantId& tenant) const {
  size_t places = 0;
  for (const auto& [id, job] : jobs_) {
    if (job.tenant == tenant) places += std::max<size_t>(1, job.sessions + job.observers);
  }
  return places;
}

Status Jobs::check_tenant(const Job* job, const JobRequest& request) {
  const TenantId tenant = job == nullptr ? request.tenant : job->tenant;
  const bool has_place = job != nullptr && job->sessions + job->observers == 0;
  if (rules_.most_of_tenant == 0 || has_place) return Status();
  const size_t places = places_of(tenant);
  if (places < rules_.most_of_tenant) return Status();
  const Job* idle = nullptr;
  for (const auto& [id, other] : jobs_) {
    if (other.tenant != tenant || !other.grant.ends || other.observers != 0) continue;
    if (idle == nullptr || *other.grant.ends < *idle->grant.ends) idle = &other;
  }
  if (idle == nullptr)
    return full("sessions and waiting jobs of this user (max-sessions-per-tenant)", places);
  end(idle->id, "its grace time ended early: another job of its user begins");
  return Status();
}

Result<uint64_t> Jobs::open(const bootstrap::SessionKey& key, const JobRequest& request, Time now) {
  FARGPU_RETURN_IF_ERROR(check_tenant(nullptr, request));
  FARGPU_ASSIGN_OR_RETURN(Job* const job,
                          make(Job::Kind::kOpened, key, request, Purpose::kUse, now));
  job->connected = true;
  return job->id;
}

void Jobs::release(uint64_t id) {
  Job* const job = find(id);
  if (job == nullptr) return;
  job->connected = false;
  if (job->sessions == 0) end(id, "the program has ended");
}

Status Jobs::check_service(const Job& job) const {
  for (const size_t unit : job.grant.units) {
    if (const std::string why = placement_.load(unit).out_of_service; !why.empty()) {
      return {StatusCode::kNoCapacity,
              fmt::format("GPU {} of the job is out of service: {}", unit, why)};
    }
  }
  return Status();
}

Result<Job*> Jobs::find_or_make(const std::optional<bootstrap::JobTicket>& ticket,
                                const JobRequest& request, Purpose purpose, Time now) {
  Job* job = ticket ? find(*ticket) : nullptr;
  if (job == nullptr && ticket && ticket->id != 0) {
    return Status(
        StatusCode::kNotFound,
        "this server has no such job: it has ended with the program that `fargpu run` "
        "started, or FARGPU_JOB is another server's; start the program with `fargpu run`, "
        "or unset FARGPU_JOB");
  }
  if (job != nullptr) FARGPU_RETURN_IF_ERROR(check_wish(*job, request.placement));
  if (job != nullptr && job->placed && purpose == Purpose::kUse)
    FARGPU_RETURN_IF_ERROR(check_service(*job));
  FARGPU_RETURN_IF_ERROR(check_tenant(job, request));
  if (job == nullptr) {
    const auto kind = ticket ? Job::Kind::kShared : Job::Kind::kLone;
    FARGPU_ASSIGN_OR_RETURN(
        job, make(kind, ticket ? ticket->key : bootstrap::SessionKey{}, request, purpose, now));
  }
  if (purpose == Purpose::kUse && !job->placed) FARGPU_RETURN_IF_ERROR(place_view(*job));
  return job;
}

Result<Jobs::Seat> Jobs::enter(const std::optional<bootstrap::JobTicket>& ticket,
                               const JobRequest& request, Time now) {
  if (sessions_ >= rules_.max_sessions) return full("sessions", sessions_);
  FARGPU_ASSIGN_OR_RETURN(Job* const job, find_or_make(ticket, request, Purpose::kUse, now));
  job->grant.ends.reset();
  ++job->sessions;
  ++sessions_;
  return Seat{job->id, take_slot(job->slots)};
}

Result<uint64_t> Jobs::look_at(const std::optional<bootstrap::JobTicket>& ticket,
                               const JobRequest& request, Time now) {
  if (observers_ >= rules_.max_sessions) return full("management sessions", observers_);
  // Whatever one job takes, others find some left.
  const Job* const known = ticket ? find(*ticket) : nullptr;
  const size_t left = rules_.max_sessions - observers_;
  if (known != nullptr && known->observers >= left) {
    return Status(
        StatusCode::kNoCapacity,
        fmt::format("the job has {} management sessions, and the {} that are left are for "
                    "other jobs; a program that has done with NVML gives its own back "
                    "by nvmlShutdown",
                    known->observers, left));
  }
  FARGPU_ASSIGN_OR_RETURN(Job* const job, find_or_make(ticket, request, Purpose::kLook, now));
  ++job->observers;
  ++observers_;
  return job->id;
}

void Jobs::look_away(uint64_t id, Time now) {
  --observers_;
  Job* const job = find(id);
  if (job == nullptr) return;
  --job->observers;
  end_if_unused(*job, now);
}

void Jobs::leave(const Seat& seat, Time now) {
  Job* const job = find(seat.job);
  if (job == nullptr || seat.slot >= job->slots.size() || !job->slots[seat.slot]) return;
  if (job->memory) job->memory->clear(seat.slot);
  job->slots[seat.slot] = false;
  --sessions_;
  --job->sessions;
  end_if_unused(*job, now);
}

void Jobs::end_if_unused(Job& job, Time now) {
  if (job.sessions > 0 || job.connected) return;
  if (!job.placed && job.observers > 0) return;
  if (job.placed && job.kind == Job::Kind::kShared && rules_.grace.count() > 0) {
    if (!job.grant.ends) job.grant.ends = now + rules_.grace;
  } else {
    end(job.id, "its last session has ended");
  }
}

void Jobs::expire(Time now) {
  for (auto next = jobs_.begin(); next != jobs_.end();) {
    const Job& job = (next++)->second;
    if (job.grant.ends && *job.grant.ends <= now)
      end(job.id, "no session came within its grace time");
  }
}

std::optional<Jobs::Time> Jobs::next_end() const {
  std::optional<Time> first;
  for (const auto& [id, job] : jobs_) {
    const std::optional<Time>& ends = job.grant.ends;
    if (ends && (!first || *ends < *first)) first = ends;
  }
  return first;
}

void Jobs::end(uint64_t id, const char* why) {
  placement_.release(id);
  Job* const job = find(id);
  if (job == nullptr) return;
  if (job->placed && job->kind == Job::Kind::kShared && job->observers > 0) {
    tell(*job, Change::kReturned, why);
    job->placed = false;
    job->grant.ends.reset();
    return;
  }
  const auto ended = jobs_.extract(id);
  tell(ended.mapped(), Change::kEnded, why);
}

void Jobs::tell(const Job& job, Change change, const char* why) {
  if (on_change_) on_change_(job, change, why);
}

}  // namespace fargpu::server
