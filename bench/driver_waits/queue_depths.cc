// How many operations a driver takes behind a held stream before a call waits.
#include <initializer_list>
#include <utility>

#include "bench/driver_waits/cases.h"

namespace driver_waits {
namespace {

// Operations in turn.
struct Mix {
  std::vector<Step> steps;
  unsigned limit = 2000;
  unsigned streams = 0;  // that they go to in turn; 0: to the held one
  // These streams wait for the held one, unless so many operations fill the held one first.
  unsigned times_before = 0;
  Step before = {};

  std::string name() const {
    std::string text = streams == 0 ? "" : "in " + std::to_string(streams) + " streams";
    if (times_before != 0)
      text = "after " + std::to_string(times_before) + " " + before.name + ", " + text;
    for (const Step& step : steps) text += (text.empty() ? "" : ", ") + step.name;
    return text;
  }
};

std::vector<Mix> mixes() {
  const Step start = launch_step(), function = host_function(), wait = wait_for_idle(),
             write = write_value();
  const Step up = to_device(kPinned, kMany), down = from_device(kPinned, kMany);
  const Step up_registered = to_device(kRegistered, kMany);
  const Step record_here = record(), attached = attach(CU_MEM_ATTACH_GLOBAL),
             allocated = allocate({"4 KiB", 4096});
  const Step follow = CALL(cuStreamWaitEvent, "in a follower", world.follower, world.event, 0);
  const Step record_there = CALL(cuEventRecord, "in it", world.next_event(), world.follower);
  const Step follow_it = CALL(cuStreamWaitEvent, "of it", world.stream, world.event, 0);
  std::vector<Mix> all;
  const auto add = [&all](Mix mix) { all.push_back(std::move(mix)); };
  for (const Step& step :
       {start, large_launch(), copy_rows(kPinned, true, 100, 100), fill_memory(kMebibyte),
        fill_rows(), record_here, wait, function, callback(), write, wait_for_value(), attached,
        CALL(cuEventRecord, "of one event", world.behind, world.stream)})
    add({{step}});
  for (const Size size : {k4Bytes, kMany, kMebibyte}) {
    for (const Step& step :
         {to_device(kPinned, size), from_device(kPinned, size), to_device(kRegistered, size),
          from_device(kRegistered, size), inside_device(size)})
      add({{step}});
  }
  for (const Size size :
       {k4Bytes, Size{"1 KiB", 1024}, Size{"16 KiB", 16384}, Size{"64 KiB", 65536}})
    add({{to_device(kPageable, size)}});
  for (const Step& work : {start, up, up_registered, down, wait, write, fill_memory(kMebibyte),
                           launch_graph(), attached, record_here}) {
    add({{function, work}});
    add({{callback(), work}});
    add({{function, record_here, work}});
  }
  for (const unsigned streams : {2, 4, 8, 16}) {
    add({{function, start}, 4000, streams});
    add({{function, up}, 4000, streams});
  }
  for (const Step& step : {start, up, down}) add({{step}, 8000, 40});
  add({{function}, 4000, 40});
  add({{start}, 4000, 40, 1000, start});
  add({{up}, 4000, 40, 1000, up});
  add({{start}, 4000, 40, 100, function});
  add({{prefetch()}, 300});
  add({{record_here, follow}});
  add({{record_here, follow, record_there, follow_it}, 4000});
  add({{allocated, free_here()}, 4000});
  add({{function, allocated, free_here()}});
  add({{up, start}});
  add({{up, down}});
  add({{up, record_here, start, record_here}});
  add({{wait_for_value(), up_registered, record_here}});
  return all;
}

std::string fill(Asker& asker, const Mix& mix, Holder holder) {
  World& world = asker.world();
  world.hold(holder);
  if (mix.times_before == 0) world.follow(mix.streams);
  const size_t count = mix.steps.size();
  return asker.fill(mix.limit, [&](unsigned i) {
    if (i < mix.times_before) return mix.before.call(world);
    if (mix.streams != 0) world.stream = world.many_streams[i / count % mix.streams];
    return mix.steps[i % count].call(world);
  });
}

constexpr unsigned kChunks = 60;

// A program that works on chunks of data in two buffers, without a wait: fills one by a host
// function, copies it up, computes, copies the results down and looks at them by a host function. A
// worker of fargpu submits the same with an event of its own behind each copy.
std::vector<Step> pipeline(HostMemory memory, bool as_worker) {
  enum Stream { kUp, kWork, kDown };
  std::vector<Step> steps;
  const auto add = [&steps](Stream stream, const Step& step) {
    steps.push_back({step.name, [=](World& world) {
                       world.stream = world.many_streams[stream];
                       return step.call(world);
                     }});
  };
  const auto record = [&add](Stream stream, size_t event) {
    add(stream, CALL(cuEventRecord, "", world.events[event], world.stream));
  };
  const auto wait = [&add](Stream stream, size_t event) {
    add(stream, CALL(cuStreamWaitEvent, "", world.stream, world.events[event], 0));
  };
  for (unsigned chunk = 0; chunk < kChunks; ++chunk) {
    const size_t buffer = chunk % 2, offset = buffer * 131072;
    const size_t uploaded = buffer, worked = 2 + buffer, downloaded = 4 + buffer;
    if (chunk >= 2) wait(kUp, worked);
    add(kUp, host_function());
    add(kUp, to_device(memory, kMany, offset));
    if (as_worker) record(kUp, 10 + chunk);
    record(kUp, uploaded);
    wait(kWork, uploaded);
    if (chunk >= 2) wait(kWork, downloaded);
    add(kWork, launch_step());
    record(kWork, worked);
    wait(kDown, worked);
    add(kDown, from_device(memory, kMany, (1 << 20) + offset));
    if (as_worker) record(kDown, 100 + chunk);
    record(kDown, downloaded);
    add(kDown, host_function());
  }
  return steps;
}

std::string fill_by_pipeline(Asker& asker, HostMemory memory, bool as_worker, Holder holder) {
  const std::vector<Step> steps = pipeline(memory, as_worker);
  asker.world().hold(holder);
  asker.world().follow(1);
  return asker.fill(steps.size(), [&](unsigned i) { return steps[i].call(asker.world()); });
}

}  // namespace

std::vector<Case> queue_cases() {
  std::vector<Case> cases;
  for (const Mix& mix : mixes()) {
    for (const Holder holder : {Holder::kFunction, Holder::kValue, Holder::kKernel}) {
      cases.push_back({name_of(holder), "", mix.name(),
                       [=](Asker& asker) { return fill(asker, mix, holder); }});
    }
  }
  for (const HostMemory memory : {kPinned, kRegistered}) {
    for (const bool as_worker : {false, true}) {
      const std::string name = title("pipeline", memory.name) + (as_worker ? ", as a worker" : "");
      for (const Holder holder : {Holder::kFunction, Holder::kValue}) {
        cases.push_back({name_of(holder), "", name, [=](Asker& asker) {
                           return fill_by_pipeline(asker, memory, as_worker, holder);
                         }});
      }
    }
  }
  return cases;
}

}  // namespace driver_waits
