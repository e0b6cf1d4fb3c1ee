#include "sim/graph/exec.h"

#include <algorithm>
#include <set>

#include "sim/graph/api.h"
#include "sim/graph/environment.h"
#include "sim/graph/kernel_node.h"
#include "sim/graph/update.h"

namespace fargpu::sim {
namespace {

// The nodes of a child graph stand in the plan beside the child itself.
bool does_nothing(const Step& step) {
  return !step.operation || step.operation->type() == CU_GRAPH_NODE_TYPE_EMPTY ||
         step.operation->type() == CU_GRAPH_NODE_TYPE_GRAPH;
}

}  // namespace

// What a launch does with memory before its nodes run.
struct Exec::Memory {
  std::vector<std::shared_ptr<GraphBlock>> ends;  // left over by the launch before it
};

// One launch.
struct Exec::Run {
  void lane(uint32_t number) {
    const GraphScope scope(environment);
    for (size_t i = 0; i < plan->steps.size(); ++i) {
      const Step& step = plan->steps[i];
      if (step.lane != number) continue;
      for (const uint32_t earlier : step.after) done[earlier]->wait();
      if (bodies[i]) bodies[i]();
      bodies[i] = nullptr;
      done[i]->complete();
    }
  }

  std::shared_ptr<Exec> exec;  // its references last as long
  std::shared_ptr<const Plan> plan;
  Memory memory;
  std::vector<std::function<void()>> bodies;
  std::vector<Fence> done;
  Fence before;
  Fence start = std::make_shared<Completion>();
  std::vector<Fence> lanes;
  Environment* environment = nullptr;  // while it runs
};

Exec::Exec(std::shared_ptr<Graph> shape, std::shared_ptr<const Plan> plan, uint64_t flags)
    : shape_(std::move(shape)), flags_(flags), plan_(std::move(plan)) {
  index(*shape_);
}

void Exec::index(const Graph& graph) {
  for (const auto& node : graph.nodes) {
    nodes_[node->original] = node.get();
    for (const auto& body : node->operation->bodies()) index(*body);
  }
}

Node* Exec::find(uint64_t original) const {
  const auto found = nodes_.find(original);
  return found == nodes_.end() ? nullptr : found->second;
}

void Exec::changed() {
  std::lock_guard lock(mutex_);
  plan_ = nullptr;
}

void Exec::plan_again() {
  std::lock_guard graphs(graph_mutex());
  std::lock_guard lock(mutex_);
  Node* cycle = nullptr;  // there is none: edges stay as they were
  if (!plan_) plan_ = make_plan(*shape_, &cycle);
}

CUresult Exec::set(Node& node, OperationPtr operation) {
  if (node.operation->type() != operation->type() || !node.operation->may_be_set_to(*operation))
    return CUDA_ERROR_INVALID_VALUE;
  node.operation = std::move(operation);
  changed();
  return CUDA_SUCCESS;
}

void Exec::set_enabled(Node& node, bool enabled) {
  node.enabled = enabled;
  changed();
}

CUresult Exec::update(const Graph& graph, CUgraphExecUpdateResultInfo* info) {
  if (has_device_nodes(*shape_) || has_device_nodes(graph)) {
    info->result = CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
    return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  }
  *info = compare(*shape_, graph);
  if (info->result != CU_GRAPH_EXEC_UPDATE_SUCCESS) return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  take_operations(*shape_, graph);
  changed();
  return CUDA_SUCCESS;
}

CUresult Exec::update_child(Node& node, const Graph& child) {
  if (node.operation->type() != CU_GRAPH_NODE_TYPE_GRAPH) return CUDA_ERROR_INVALID_VALUE;
  Graph& own = *node.operation->bodies().front();
  if (compare(own, child).result != CU_GRAPH_EXEC_UPDATE_SUCCESS)
    return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  take_operations(own, child);
  changed();
  return CUDA_SUCCESS;
}

CUresult Exec::take_memory(const Plan& plan, Memory* memory) {
  std::vector<std::shared_ptr<GraphBlock>> allocated, freed;
  for (const Step& step : plan.steps) {
    const auto block = step.operation ? step.operation->block() : nullptr;
    if (!block) continue;
    const bool allocates = step.operation->type() == CU_GRAPH_NODE_TYPE_MEM_ALLOC;
    (allocates ? allocated : freed).push_back(block);
  }
  const bool automatic = (flags_ & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0;
  for (const auto& block : allocated) {
    if (!block->owner.outstanding(*block)) continue;
    if (!automatic) return CUDA_ERROR_INVALID_VALUE;
    memory->ends.push_back(block);
  }
  for (const auto& block : freed) {
    if (std::ranges::find(allocated, block) == allocated.end() &&
        !block->owner.outstanding(*block)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  for (size_t i = 0; i < allocated.size(); ++i) {
    const CUresult result = allocated[i]->owner.begin(allocated[i]);
    if (result == CUDA_SUCCESS) continue;
    for (size_t j = 0; j < i; ++j) {
      // What an earlier launch left over stays with the program.
      if (std::ranges::find(memory->ends, allocated[j]) == memory->ends.end())
        (void)allocated[j]->owner.claim_free(*allocated[j]);
      allocated[j]->owner.end(*allocated[j]);
    }
    return result;
  }
  for (const auto& block : freed) (void)block->owner.claim_free(*block);
  return CUDA_SUCCESS;
}

std::shared_ptr<Exec::Run> Exec::prepare(std::shared_ptr<const Plan> plan, Memory memory) {
  auto run = std::make_shared<Run>();
  run->exec = shared_from_this();
  run->plan = std::move(plan);
  run->memory = std::move(memory);
  // A driver orders launches that do something.
  const bool idle = std::ranges::all_of(run->plan->steps, does_nothing);
  if (!idle) run->before = last_;
  for (const Step& step : run->plan->steps) {
    run->done.push_back(std::make_shared<Completion>());
    if (!step.operation) {
      run->bodies.emplace_back();
    } else if (step.operation->type() == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
      run->bodies.emplace_back(
          [&step] { run_conditional(static_cast<const Conditional&>(*step.operation), step); });
    } else {
      run->bodies.push_back(step.operation->prepare(run->done.back()));
    }
  }
  return run;
}

std::unique_lock<std::mutex> Exec::lock_with_plan() {
  std::unique_lock lock(mutex_);
  while (!plan_) {
    lock.unlock();
    plan_again();
    lock.lock();
  }
  return lock;
}

std::shared_ptr<const Plan> Exec::on_device() const {
  std::lock_guard lock(device_mutex_);
  return on_device_;
}

void Exec::put_on_device(std::shared_ptr<const Plan> plan) {
  std::lock_guard lock(device_mutex_);
  if (on_device_ == plan) return;
  reset_device_nodes(*plan);
  on_device_ = std::move(plan);
}

// What a launch takes of the stream's queue, as counted on an H200 (driver 580): a place for each
// node, and one for a chain of kernels and copies inside the device; what does not depend on each
// other is spread over queues.
size_t Exec::places_of(const Plan& plan) {
  constexpr size_t kQueues = 8;
  const auto is = [](const Step& step, CUgraphNodeType type) {
    return step.operation && step.operation->type() == type;
  };
  std::vector<unsigned> followers(plan.steps.size());
  for (const Step& step : plan.steps) {
    for (const uint32_t earlier : step.after) ++followers[earlier];
  }
  size_t places = 0;
  for (const Step& step : plan.steps) {
    if (does_nothing(step) || is(step, CU_GRAPH_NODE_TYPE_HOST)) continue;
    const auto joins = [](const Step& one) {
      return one.operation && one.operation->joins_chains();
    };
    const bool in_a_chain = joins(step) && step.after.size() == 1 &&
                            joins(plan.steps[step.after[0]]) && followers[step.after[0]] == 1;
    places += in_a_chain ? 0 : 1;
  }
  return std::max<size_t>(1, places / std::min<size_t>(plan.lanes, kQueues));
}

GraphFunctions Exec::functions_of(const Plan& plan) {
  GraphFunctions functions{.alone = true, .side_by_side = plan.lanes > 1};
  std::set<uint32_t> lanes;
  for (const Step& step : plan.steps) {
    if (does_nothing(step)) continue;
    const CUgraphNodeType type = step.operation->type();
    if (type != CU_GRAPH_NODE_TYPE_HOST && type != CU_GRAPH_NODE_TYPE_MEMCPY)
      lanes.insert(step.lane);
    if (type == CU_GRAPH_NODE_TYPE_HOST)
      ++functions.count;
    else
      functions.alone = false;
    if (type == CU_GRAPH_NODE_TYPE_KERNEL) functions.beside_kernels = true;
  }
  functions.lanes = lanes.size();
  return functions;
}

CUresult Exec::launch(Context& context, const std::shared_ptr<Stream>& stream) {
  Fence awaited;
  const CUresult result = submit_launch(context, stream, &awaited);
  if (awaited) awaited->wait();
  return result;
}

CUresult Exec::submit_launch(Context& context, const std::shared_ptr<Stream>& stream,
                             Fence* awaited) {
  const auto lock = lock_with_plan();
  Memory memory;
  if (CUresult result = take_memory(*plan_, &memory); result != CUDA_SUCCESS) return result;
  GraphFunctions functions = functions_of(*plan_);
  functions.graph = reinterpret_cast<uint64_t>(this);
  functions.side_lanes = &side_channels_;
  const bool waits = functions.turns() > TaskQueue::kTurns ||
                     std::ranges::any_of(plan_->steps, [](const Step& step) {
                       return step.operation && step.operation->launch_waits();
                     });
  last_ = context.submit_graph(
      stream, [&](const Fence&) { return start(prepare(plan_, std::move(memory))); },
      places_of(*plan_), functions);
  std::set<Context*> elsewhere;
  for (const Step& step : plan_->steps) {
    Context* const own = step.operation ? step.operation->own_context() : nullptr;
    if (own != nullptr && own != &context && elsewhere.insert(own).second)
      own->add_from_elsewhere(last_);
  }
  if (waits) *awaited = last_;
  return CUDA_SUCCESS;
}

std::function<void()> Exec::start(const std::shared_ptr<Run>& run) {
  while (lanes_.size() + 1 < run->plan->lanes) lanes_.push_back(std::make_shared<TaskQueue>());
  for (uint32_t lane = 1; lane < run->plan->lanes; ++lane) {
    run->lanes.push_back(std::make_shared<Completion>());
    lanes_[lane - 1]->push(Task{[run, lane] { run->lane(lane); }, {run->start}, run->lanes.back()});
  }
  return [run] {
    if (run->before) run->before->wait();
    for (const auto& block : run->memory.ends) block->owner.end(*block);
    begin_conditionals(*run->plan);
    run->exec->put_on_device(run->plan);
    (void)run->exec->begin();
    Environment stream_part(nullptr);
    Environment own(run->exec, &stream_part);
    run->environment = &own;
    run->start->complete();
    run->lane(0);
    for (const Fence& lane : run->lanes) lane->wait();
    own.finish();
    stream_part.finish();
  };
}

void Exec::wait_for_launch() {
  Fence last;
  {
    std::lock_guard lock(mutex_);
    last = last_;
  }
  if (last) last->wait();
}

void Exec::upload(Context& context, const std::shared_ptr<Stream>& stream) {
  const auto lock = lock_with_plan();
  std::vector<Fence> earlier;
  if (pending(last_)) earlier.push_back(last_);
  last_ = context.submit(
      stream, [self = shared_from_this(), plan = plan_] { self->put_on_device(plan); },
      std::move(earlier));
}

}  // namespace fargpu::sim
