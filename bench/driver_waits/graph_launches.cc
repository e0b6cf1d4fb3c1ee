// Launches, changes and ends of executable graphs that are in flight: behind a held stream, or held
// by a node of their own. And how many launches of a graph a queue takes.
#include <chrono>
#include <initializer_list>
#include <thread>
#include <utility>

#include "bench/driver_waits/cases.h"
#include "bench/driver_waits/graphs.h"

namespace driver_waits {
namespace {

constexpr auto kUntilNodesRun = std::chrono::milliseconds(3);

constexpr char kBehind[] =
    "kernel; kernel, kernel, kernel; kernel, 4 kernels, kernel; 200 x (kernel); no node; memset; "
    "host; kernel, host, kernel; host, kernel, host, kernel, host; 20 x (host); "
    "child of a kernel and a host function; allocation, kernel, free; event record; event wait; "
    "pinned to device; registered to device, kernel; kernel, device to pinned; "
    "4 B pageable to device; 1 MiB pageable to device; device to 4 B pageable; "
    "device to 1 MiB pageable; host, pinned to device, kernel, device to pinned, host; "
    "host, kernel, kernel, host, kernel, pinned to registered, host";

// The first node in capitals holds the graph.
constexpr char kHolding[] =
    "HOST; kernel, HOST, kernel; HOST, pinned to device; KERNEL; KERNEL, host; WAIT, kernel";

// Of these only the launch is asked about.
constexpr char kLong[] =
    "20 x (WAIT, kernel); 60 x (WAIT, kernel); 200 x (WAIT, kernel); "
    "kernel, HOST, kernel, 19 x (host, kernel); kernel, HOST, kernel, 26 x (host, kernel); "
    "kernel, HOST, kernel, 27 x (host, kernel); kernel, HOST, kernel, 28 x (host, kernel); "
    "kernel, HOST, kernel, 39 x (host, kernel); kernel, HOST, kernel, 59 x (host, kernel); "
    "kernel, HOST, kernel, 199 x (host, kernel); HOST, kernel, pinned to registered, host";

// Two graphs that are launched in turn in the held stream; "+ function": with a function behind
// the first.
constexpr char kInTurn[] =
    "host | kernel; host, host | kernel; host, host, host, host | kernel; host | kernel, kernel; "
    "host, host | memset; host | memset; host, host | pinned to device; "
    "host, host | kernel, memset; host, host | host; host, host | no node; "
    "kernel, host | kernel; host, kernel | kernel; kernel, host, kernel | kernel; "
    "20 x (host) | kernel; 60 x (host) | kernel; "
    "host + function | kernel; host + function | memset; no node + function | kernel";

// A graph that allocates has one executable graph at a time.
bool can_have_twin(const std::string& chain) {
  return chain.find("allocation") == std::string::npos;
}

void instantiate(World& world, const std::string& chain, bool twin) {
  world.graph = make_graph(world, chain);
  size_t count = 1;
  MUST(cuGraphGetRootNodes(world.graph, &world.root, &count));
  MUST(cuGraphInstantiate(&world.exec, world.graph, 0));
  if (twin) MUST(cuGraphInstantiate(&world.twin, world.graph, 0));
}

void launch_all_once(World& world) {
  for (CUgraphExec exec : {world.exec, world.twin}) {
    if (exec != nullptr) MUST(cuGraphLaunch(exec, world.other));
  }
  world.settle();
}

void discard(World& world) {
  for (CUgraphExec* exec : {&world.exec, &world.twin, &world.again}) {
    if (*exec != nullptr) MUST(cuGraphExecDestroy(std::exchange(*exec, nullptr)));
  }
  MUST(cuGraphDestroy(world.graph));
}

CUresult launch_it(World& world) { return cuGraphLaunch(world.exec, world.held); }

// What is asked while the executable graph is in flight.
std::vector<Step> calls(const std::string& chain, bool twin) {
  const std::string first = chain.substr(0, chain.find(','));
  std::vector<Step> steps{
      CALL(cuGraphLaunch, "in the same stream", world.exec, world.held),
      CALL(cuGraphLaunch, "in another stream", world.exec, world.other),
      CALL(cuGraphUpload, "in another stream", world.exec, world.other),
      CALL(cuGraphExecUpdate, "", world.exec, world.graph, &world.update),
      CALL(cuGraphExecDestroy, "", std::exchange(world.exec, nullptr)),
      CALL(cuLaunchHostFunc, "in another stream", world.other, do_nothing, nullptr),
      CALL(cuMemcpyHtoDAsync, "in the same stream", world.device_memory, world.pinned, 120000,
           world.held),
      {"cuGraphLaunch, 20 times", [](World& world) {
         CUresult result = CUDA_SUCCESS;
         for (int i = 0; i < 20 && result == CUDA_SUCCESS; ++i) result = launch_it(world);
         return result;
       }}};
  const auto add = [&steps](Step step) { steps.push_back(std::move(step)); };
  if (can_have_twin(chain)) add(CALL(cuGraphInstantiate, "again", &world.again, world.graph, 0));
  if (twin) add(CALL(cuGraphLaunch, "of its twin, in the same stream", world.twin, world.held));
  if (twin) add(CALL(cuGraphLaunch, "of its twin, in another stream", world.twin, world.other));
  if (first == "kernel") add(CALL(cuGraphNodeSetEnabled, "", world.exec, world.root, 0));
  if (first == "kernel" || first == "host" || first == "memset") {
    add({"cuGraphExecNodeSetParams", [first](World& world) {
           CUgraphNodeParams changed = describe_node(world, first);
           return cuGraphExecNodeSetParams(world.exec, world.root, &changed);
         }});
  }
  return steps;
}

std::string ask_behind(Asker& asker, const std::string& chain, Holder holder, const Step& step) {
  instantiate(asker.world(), chain, can_have_twin(chain));
  launch_all_once(asker.world());
  asker.world().hold(holder);
  std::string answer =
      asker.returns(launch_it) ? asker.ask(step.call) : "not asked: the launch waits";
  discard(asker.world());
  return answer;
}

std::string ask_beside_itself(Asker& asker, const std::string& chain, const Step& step) {
  std::string answer = "not asked: the launch waits";
  instantiate(asker.world(), chain, false);
  asker.world().begin_hold();
  if (asker.returns(launch_it)) {
    std::this_thread::sleep_for(kUntilNodesRun);
    answer = asker.ask(step.call);
  }
  discard(asker.world());
  return answer;
}

std::string ask_launch(Asker& asker, const std::string& chain) {
  instantiate(asker.world(), chain, false);
  asker.world().begin_hold();
  std::string answer = asker.ask(launch_it);
  discard(asker.world());
  return answer;
}

std::string fill(Asker& asker, const std::string& chain, Holder holder, bool two) {
  World& world = asker.world();
  instantiate(world, chain, two);
  launch_all_once(world);
  world.hold(holder);
  std::string answer = asker.fill(1200, [&](unsigned i) {
    return cuGraphLaunch(two && i % 2 != 0 ? world.twin : world.exec, world.held);
  });
  discard(world);
  return answer;
}

// With `changed` the second graph's kernel gets its parameters before each launch.
std::string fill_in_turn(Asker& asker, const std::string& first, const std::string& second,
                         bool changed) {
  World& world = asker.world();
  const size_t plus = first.find(" + function");
  instantiate(world, second, false);
  world.twin = std::exchange(world.exec, nullptr);
  const CUgraph graph_of_second = world.graph;
  const CUgraphNode kernel = world.root;
  instantiate(world, first.substr(0, plus), false);
  launch_all_once(world);
  world.hold(Holder::kFunction);
  CUgraphNodeParams described{};
  if (changed) described = describe_node(world, second);
  std::string answer = asker.fill(1200, [&](unsigned i) {
    if (i % 2 == 0) {
      const CUresult result = cuGraphLaunch(world.exec, world.held);
      return result != CUDA_SUCCESS || plus == std::string::npos
                 ? result
                 : cuLaunchHostFunc(world.held, do_nothing, nullptr);
    }
    if (changed) MUST(cuGraphExecNodeSetParams(world.twin, kernel, &described));
    return cuGraphLaunch(world.twin, world.held);
  });
  discard(world);
  MUST(cuGraphDestroy(graph_of_second));
  return answer;
}

}  // namespace

std::vector<Case> graph_cases() {
  std::vector<Case> cases;
  for (const std::string& pair : split(kInTurn, ';')) {
    const std::vector<std::string> parts = split(pair, '|');
    const std::string &first = parts[0], &second = parts[1];
    for (const bool changed : {false, true}) {
      if (changed && second != "kernel") continue;
      cases.push_back({"function", "behind",
                       first + " | " + second + ": launches in turn" +
                           (changed ? ", the second with new parameters" : ""),
                       [=](Asker& asker) { return fill_in_turn(asker, first, second, changed); }});
    }
  }
  for (const std::string& chain : split(kBehind, ';')) {
    const std::string name = chain + ": ";
    for (const Holder holder : {Holder::kFunction, Holder::kValue}) {
      const auto add = [&](const std::string& call, std::function<std::string(Asker&)> answer) {
        cases.push_back({name_of(holder), "behind", name + call, std::move(answer)});
      };
      for (const Step& step : calls(chain, can_have_twin(chain)))
        add(step.name, [=](Asker& asker) { return ask_behind(asker, chain, holder, step); });
      add("launches", [=](Asker& asker) { return fill(asker, chain, holder, false); });
      if (can_have_twin(chain))
        add("launches of two", [=](Asker& asker) { return fill(asker, chain, holder, true); });
    }
  }
  const auto add_launch = [&cases](const std::string& chain) {
    cases.push_back({"node", "", chain + ": cuGraphLaunch",
                     [=](Asker& asker) { return ask_launch(asker, chain); }});
  };
  for (const std::string& chain : split(kLong, ';')) add_launch(chain);
  for (const std::string& chain : split(kHolding, ';')) {
    add_launch(chain);
    for (const Step& step : calls(chain, false))
      cases.push_back({"node", "", chain + ": " + step.name,
                       [=](Asker& asker) { return ask_beside_itself(asker, chain, step); }});
  }
  return cases;
}

}  // namespace driver_waits
