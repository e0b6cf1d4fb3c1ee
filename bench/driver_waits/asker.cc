#include "bench/driver_waits/asker.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <utility>

namespace driver_waits {
namespace {

using Clock = std::chrono::steady_clock;

constexpr Milliseconds kPatience{100};  // a call that takes longer waits
constexpr Milliseconds kProbePatience{50};
constexpr Milliseconds kLongestFill{1500};
constexpr Milliseconds kLongestReturn{7000};  // after the release

Milliseconds since(Clock::time_point begin) { return Clock::now() - begin; }

template <typename... Values>
std::string text(const char* format, Values... values) {
  char line[160];
  std::snprintf(line, sizeof line, format, values...);
  return line;
}

std::string error_text(CUresult result) {
  const char* name = nullptr;
  if (result == CUDA_SUCCESS) return "";
  cuGetErrorName(result, &name);
  return std::string(", ") + (name != nullptr ? name : "an unknown error");
}

std::vector<Step> probes() {
  return {
      CALL(cuStreamQuery, "", world.second_probe),
      CALL(cuStreamQuery, "of the held stream", world.held),
      CALL(cuStreamGetFlags, "", world.probe, &world.probe_flags),
      CALL(cuStreamWriteValue32, "", world.probe, world.word_on_device + 64, 1, 0),
      CALL(cuEventQuery, "", world.idle),
      CALL(cuCtxSetCurrent, "", world.context),
      CALL(cuMemGetInfo, "", &world.free_bytes, &world.all_bytes),
      CALL(cuEventRecord, "", world.timed, world.probe),
      CALL(cuLaunchKernel, "", world.nothing, 1, 1, 1, 1, 1, 1, 0, world.probe, nullptr, nullptr),
      CALL(cuMemcpyHtoDAsync, "", world.more_device_memory, world.more_pinned, 4096, world.probe),
      CALL(cuLaunchHostFunc, "", world.second_probe, do_nothing, nullptr),
      CALL(cuGraphLaunch, "", world.graph_of_kernel, world.second_probe)};
}

std::vector<Step> probes_in_second_context() {
  return {CALL(cuLaunchKernel, "in another context", world.nothing_in_second, 1, 1, 1, 1, 1, 1, 0,
               world.in_second, nullptr, nullptr),
          CALL(cuStreamQuery, "in another context", world.in_second)};
}

[[noreturn]] void end_process(const char* why) {
  std::printf("%s\n", why);
  std::fflush(stdout);
  ::_exit(1);
}

}  // namespace

Asker::Asker(World& world) : world_(world), caller_(world.context) {
  const auto add = [this](CUcontext context, const Step& step) {
    probes_.push_back({step, std::make_unique<Caller>(context)});
  };
  for (const Step& step : probes()) add(world.context, step);
  for (const Step& step : probes_in_second_context()) add(world.second_context, step);
  // The last one: if it waits, it may hold locks that others need.
  add(world.context, CALL(cuMemAlloc, "", &world.probe_memory, 4096));
}

std::string Asker::stopped_probes() {
  const auto begin = Clock::now();
  const auto start = [this](Probe& probe) {
    probe.caller->start([this, &probe] { static_cast<void>(probe.step.call(world_)); });
  };
  std::string stopped;
  for (Probe& probe : probes_) {
    if (&probe != &probes_.back()) start(probe);
  }
  for (Probe& probe : probes_) {
    const bool last = &probe == &probes_.back();
    if (last) start(probe);
    if (!probe.caller->ends_within(last ? kProbePatience : kProbePatience - since(begin)))
      stopped += (stopped.empty() ? "" : ", ") + probe.step.name;
  }
  return "stopped: " + (stopped.empty() ? "nothing" : stopped);
}

void Asker::end_hold() {
  world_.release();
  if (!caller_.ends_within(kLongestReturn)) end_process("never returns");
  for (Probe& probe : probes_) {
    if (!probe.caller->ends_within(kLongestReturn))
      end_process((probe.step.name + " beside it never returns").c_str());
  }
  if (world_.probe_memory != 0) MUST(cuMemFree(std::exchange(world_.probe_memory, 0)));
  world_.settle();
}

bool Asker::returns(const Call& call) {
  caller_.start([&] { MUST(call(world_)); });
  if (caller_.ends_within(kPatience)) return true;
  end_hold();
  return false;
}

std::string Asker::ask(const Call& call) {
  CUresult result = CUDA_SUCCESS;
  const auto begin = Clock::now();
  caller_.start([&] { result = call(world_); });
  if (caller_.ends_within(kPatience)) {
    end_hold();
    return text("returns in %.2f ms", caller_.milliseconds()) + error_text(result);
  }
  const std::string stopped = stopped_probes();
  const bool slow = caller_.ends_within(Milliseconds(0));
  const double held = since(begin).count();
  end_hold();
  const double took = caller_.milliseconds();
  if (slow) return text("returns in %.2f ms", took) + error_text(result);
  return text("waits, %.2f ms after the release", took - held) + error_text(result) + "; " +
         stopped;
}

std::string Asker::fill(unsigned limit, const std::function<CUresult(unsigned)>& step) {
  std::atomic<unsigned> at = 0;
  std::atomic<bool> stop = false;
  CUresult result = CUDA_SUCCESS;
  caller_.start([&] {
    for (; at < limit && !stop; ++at) {
      result = step(at);
      if (result != CUDA_SUCCESS) return;
    }
  });
  const auto begin = Clock::now();
  auto moved = begin;
  unsigned seen = 0;
  std::string stopped;
  while (!caller_.ends_within(Milliseconds(2)) && since(begin) < kLongestFill && stopped.empty()) {
    if (std::exchange(seen, at) != at) moved = Clock::now();
    if (since(moved) >= kPatience) stopped = stopped_probes();
  }
  const double took = since(begin).count();
  const unsigned reached = at;
  const bool over = caller_.ends_within(Milliseconds(0));
  stop = true;
  end_hold();
  if (result != CUDA_SUCCESS) return text("fails at %u", reached) + error_text(result);
  if (!stopped.empty()) return text("waits at %u; ", reached) + stopped;
  return text(over ? "does not wait at %u" : "too slow: at %u", reached) +
         text(" in %.1f ms", took);
}

}  // namespace driver_waits
