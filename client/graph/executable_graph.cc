#include "client/graph/executable_graph.h"

#include <algorithm>
#include <span>
#include <utility>

#include "client/entry/function_order.h"
#include "client/entry/streams.h"
#include "client/graph/copy_change.h"
#include "client/graph/queue_places.h"
#include "client/graph/user_object.h"
#include "client/object/launch_blocking.h"
#include "client/process/process.h"
#include "client/transfer/coherence.h"
#include "client/transfer/host_functions.h"
#include "client/transfer/ordered_copy.h"
#include "client/transfer/submission.h"
#include "common/base/log.h"
#include "common/host/thread.h"
#include "generated/client/wire/internal.h"
#include "generated/schema/internal.capnp.h"
#include "generated/schema/opcodes.h"

namespace fargpu::client {
namespace {

constexpr cuuint64_t kForwarded = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH |
                                  CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH |
                                  CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;

uint16_t frame_context(const Session& session) {
  const Context* const context = current_context();
  return context != nullptr && context->session == &session ? context->wire_id : uint16_t{0};
}

// What does not fit into one frame goes ahead; *last: what is left.
CUresult send_ahead(Session& session, uint16_t context, uint64_t exec,
                    const Description& description, std::span<const std::byte>* last) {
  const size_t most = session.snapshot.max_bulk_bytes;
  for (*last = description.bytes; last->size() > most; *last = last->subspan(most)) {
    const CUresult result = wire::fgGraphPiece(session, context, exec, last->data(), most);
    if (result == CUDA_SUCCESS) continue;
    log::warn("a graph of {} nodes takes {} bytes, more than server {} accepts",
              description.nodes_by_place.size(), description.bytes.size(), session.settings.server);
    return result;
  }
  return CUDA_SUCCESS;
}

// Of the first that has one; nullptr: none has.
Context* context_of_nodes(const Graph& graph) {
  for (const GraphNode* const node : graph.nodes) {
    if (node->params.context() != nullptr) return node->params.context();
    for (const Graph* const inside : node->inside)
      if (Context* const found = context_of_nodes(*inside)) return found;
  }
  return nullptr;
}

struct MemoryNodes {
  size_t allocations = 0, frees = 0;
};

void count_memory(const Graph& graph, MemoryNodes* nodes) {
  for (const GraphNode* const node : graph.nodes) {
    nodes->allocations += node->params.type() == CU_GRAPH_NODE_TYPE_MEM_ALLOC ? 1 : 0;
    nodes->frees += node->params.type() == CU_GRAPH_NODE_TYPE_MEM_FREE ? 1 : 0;
    for (const Graph* const inside : node->inside) count_memory(*inside, nodes);
  }
}

// Whether a launch leaves memory allocated: the next one is refused while it is.
bool launch_may_be_refused(const Graph& graph, cuuint64_t flags) {
  if (!graph.has_memory || (flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0)
    return false;
  MemoryNodes nodes;
  count_memory(graph, &nodes);
  return nodes.allocations != nodes.frees;
}

void refer_to_user_objects(const Graph& graph, GraphUses& uses) {
  for (const auto& [object, count] : graph.user_objects) uses.add(object, count);
  for (const GraphNode* const node : graph.nodes)
    for (const Graph* const inside : node->inside) refer_to_user_objects(*inside, uses);
}

// From now on what the graph waits for may hold streams.
void note_waits(Session& session, const std::vector<CUdeviceptr>& awaited) {
  if (!awaited.empty()) session.observers.add(Observers::kValueWaits);
  for (const CUdeviceptr address : awaited) session.pages.watch(address, sizeof(uint64_t));
}

bool can_be_disabled(const Placed& placed) {
  return placed.type == CU_GRAPH_NODE_TYPE_KERNEL || placed.type == CU_GRAPH_NODE_TYPE_MEMCPY ||
         placed.type == CU_GRAPH_NODE_TYPE_MEMSET;
}

// The application knows it by the driver's value from now on.
CUresult take_value(GraphExec& exec, uint16_t frame) {
  unsigned long long value = 0;
  const CUresult result = wire::fgGraphValue(*exec.session, frame, exec.id, &value);
  if (result != CUDA_SUCCESS) return result;
  if (!ValueTable::is_distinct(value)) {
    log::error("an executable graph of server {} looks like one of ours: {:#x}",
               exec.session->settings.server, value);
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  exec.value = value;
  Process::get().tables()->graphs_for_kernels.add(value, exec.session, exec.id);
  return CUDA_SUCCESS;
}

// `of()`: the context whose server's driver gave the value, if several did.
template <typename ContextOf>
GraphExec* find(CUgraphExec exec, ContextOf&& of) {
  auto id = reinterpret_cast<uint64_t>(exec);
  Tables& tables = *Process::get().tables();
  if (ValueTable::is_distinct(id)) {
    const Context* const context = of();
    id = tables.graphs_for_kernels.find(id, context != nullptr ? context->session : nullptr);
  }
  return static_cast<GraphExec*>(tables.handles.find(rpc::HandleKind::kGraphExec, id));
}

// The node of a copy with an end in ordinary memory, which a host node carries out: its id. 0:
// there is none.
uint64_t host_copy_in(const Description& description) {
  const auto& calls = description.host_calls;
  const auto found = std::find_if(calls.begin(), calls.end(),
                                  [](const HostCall& call) { return call.keeps != nullptr; });
  return found == calls.end() ? 0 : found->node;
}

// `keeps` lives until everything that was given to the context has ended.
void keep_until_idle(Session& session, Context* context, std::shared_ptr<void> keeps) {
  Thread(
      [&session, context, keeps = std::move(keeps)]() mutable {
        const ContextScope in(context);
        (void)await_context(session, context->wire_id);
        keeps.reset();
      },
      StackFor::kTheProgram)
      .detach();
}

// `keeps` lives until the launch that was made in `last` has ended.
void keep_until_launched(Session& session, const LastLaunch& last, std::shared_ptr<void> keeps) {
  Context* const context = last.context;
  if (context == nullptr || !context->usable()) return;
  const ContextScope scope(context);
  const auto stream = reinterpret_cast<CUstream>(last.stream);
  CUresult result = CUDA_ERROR_INVALID_HANDLE;
  if (context_of(stream) != nullptr) {
    result = put_into_stream(CallTarget::of(stream),
                             {.function = [](void*) {}, .stream = stream, .keeps = keeps});
  }
  if (result == CUDA_SUCCESS || session.lost.load()) return;
  // The stream is destroyed, but its work goes on.
  keep_until_idle(session, context, std::move(keeps));
}

// A launch records these, too. Needs the exec's mutex.
void note_recorded(GraphExec& exec, const std::vector<RecordedEvent>& events) {
  for (const RecordedEvent& recorded : events) {
    const bool known =
        std::any_of(exec.recorded.begin(), exec.recorded.end(), [&](const RecordedEvent& other) {
          return other.node == recorded.node && other.event == recorded.event;
        });
    if (!known) exec.recorded.push_back(recorded);
  }
  exec.records = !exec.recorded.empty();
}

// The graph calls other functions from the next launch on.
void take_host_calls(GraphExec& exec, std::vector<HostCall> calls) {
  auto copies = std::make_shared<std::vector<std::shared_ptr<void>>>();
  for (HostCall& call : exec.host_calls) {
    const bool stays = std::any_of(calls.begin(), calls.end(), [&](const HostCall& other) {
      return other.keeps == call.keeps;
    });
    if (call.keeps != nullptr && !stays) copies->push_back(std::move(call.keeps));
  }
  exec.host_calls = std::move(calls);
  if (!copies->empty()) keep_until_launched(*exec.session, exec.last, std::move(copies));
}

// What copies and kernels do from now on: those of the graph from `first` on, which is described.
void take_nodes(GraphExec& exec, uint32_t first, const Description& description) {
  for (auto& [id, placed] : exec.nodes) {
    if (placed.place < first) continue;
    const uint32_t place = placed.place - first;
    if (place >= description.nodes_by_place.size()) continue;
    const auto found = description.nodes.find(description.nodes_by_place[place]);
    if (found == description.nodes.end()) continue;
    if (placed.given != nullptr && found->second.given != nullptr)
      placed.given = found->second.given;
    if (placed.type == CU_GRAPH_NODE_TYPE_KERNEL) {
      placed.function = found->second.function;
      placed.context = found->second.context;
    }
  }
}

CUresult send_launch(GraphExec& exec, const CallTarget& target, CUstream stream,
                     const ResolvedStream& resolved) {
  Session& session = target.session;
  std::shared_ptr<void> turns;
  if (resolved.state != nullptr && exec.with_host_nodes && !exec.host_calls.empty()) {
    turns = session.host_turns.add_graph(StreamState::turns_of(*resolved.state), order_of(resolved),
                                         static_cast<unsigned>(exec.host_calls.size()),
                                         [&] { return session.lost.load(); });
  }
  std::vector<HostFunction> functions;
  functions.reserve(exec.host_calls.size());
  const uint16_t device = device_key(context_of(stream));
  for (const HostCall& call : exec.host_calls) {
    // The host node of a copy that is disabled runs all the same, and does nothing.
    const auto& off = exec.disabled;
    const bool disabled = std::find(off.begin(), off.end(), call.node) != off.end();
    functions.push_back({.function = disabled ? [](void*) {} : call.function,
                         .user_data = call.data,
                         .stream = stream,
                         .device = device,
                         .keeps = call.keeps,
                         .turns = turns});
  }
  std::vector<unsigned long long> ids;
  if (!functions.empty()) {
    ids = functions_of(session).add_all(std::move(functions));
    put_behind(session, stream, ids.back());
    exec.functions.follow(ids.back());
    session.channel().await_notices();
  }
  const CUresult result =
      submit_functions(target, {.stream = stream},
                       Submission::kHostMemory | Submission::kQueuePlace, [&](uint64_t id) {
                         return wire::fgGraphLaunch(session, target.context, exec.id, id,
                                                    static_cast<unsigned>(ids.size()),
                                                    ids.empty() ? nullptr : ids.data());
                       });
  if (result != CUDA_SUCCESS)
    for (const uint64_t id : ids) session.host_calls.cancel(id);
  if (result == CUDA_SUCCESS &&
      std::any_of(exec.awaited.begin(), exec.awaited.end(), [&](CUdeviceptr address) {
        return session.pages.touches(address, sizeof(uint32_t));
      }))
    watch_values(session, stream);
  return result;
}

// A graph without nodes is no work.
unsigned passing(const GraphExec& exec) {
  return exec.nodes.empty() ? Submission::kPassing : Submission::kNothing;
}

// Without host calls: the message is there.
CUresult send_plain_launch(const GraphExec& exec, const CallTarget& target, CUstream stream) {
  return send_work(
      target, schema::op_fgGraphLaunch, stream, [&](uint64_t id) { return exec.launch.with(id); },
      passing(exec));
}

// A launch that keeps to an order with others: a host node gets its calls in the order of launches,
// and what waits for the last one knows which that is.
CUresult send_in_turn(GraphExec& exec, const CallTarget& target, CUstream stream) {
  ResolvedStream resolved;
  if (const CUresult result = resolve_stream(target.session, stream, &resolved);
      result != CUDA_SUCCESS)
    return result;
  Context* const green = green_of(stream);
  Context* const context = green != nullptr ? green : context_of(stream);
  std::lock_guard lock(exec.mutex);
  if (exec.is_ending()) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = exec.has_host_calls() ? send_launch(exec, target, stream, resolved)
                                                : send_plain_launch(exec, target, stream);
  if (result == CUDA_SUCCESS) exec.last = {resolved.id, context};
  return result;
}

// Launches run one after the other.
void note_order(GraphExec& exec, Session& session, CUstream stream) {
  if (!any_function(session)) [[likely]]
    return;
  if (exec.waits.load(std::memory_order_relaxed)) put_behind(session, stream, FunctionsAhead::kAll);
  launch_behind(session, stream, exec.functions);
}

wire::PreparedBody prepare_launch(uint64_t exec) {
  using Params = schema::FgGraphLaunchParams;
  return wire::PreparedBody::make<Params>([exec](Params::Builder params, uint64_t stream) {
    params.setExec(exec);
    params.setStream(stream);
  });
}

}  // namespace

void GraphUses::add(CUuserObject object, unsigned count) {
  retain(object, count);
  objects_.emplace_back(object, count);
}

void GraphUses::add(std::shared_ptr<GraphUses> others) { others_.push_back(std::move(others)); }

GraphUses::~GraphUses() {
  if (objects_.empty()) return;
  // Destructors are functions of the application: they may wait for what this thread has to do.
  Thread(
      [objects = std::move(objects_)] {
        for (const auto& [object, count] : objects) release(object, count);
      },
      StackFor::kTheProgram)
      .detach();
}

void GraphExec::ended() {
  if (value != 0) Process::get().tables()->graphs_for_kernels.erase(value, session, id);
  const std::lock_guard lock(mutex);
  uses.reset();
  host_calls.clear();
  nodes.clear();
}

GraphExec* find_exec(CUgraphExec exec) { return find(exec, current_context); }

GraphExec* find_exec(CUgraphExec exec, CUstream stream) {
  return find(exec, [stream] { return context_of(stream); });
}

CUresult instantiate(GraphLock& lock, const Graph& graph, cuuint64_t flags, CUgraphExec* exec,
                     GraphOutcome* outcome) {
  outcome->found = CUDA_GRAPH_INSTANTIATE_ERROR;
  if (has_condition(graph) && find_exec(reinterpret_cast<CUgraphExec>(graph.executable)) != nullptr)
    return CUDA_ERROR_NOT_SUPPORTED;
  Session* session = nullptr;
  if (const CUresult result = session_of(graph, &session); result != CUDA_SUCCESS) return result;
  Description description;
  auto refused = CUDA_GRAPH_INSTANTIATE_SUCCESS;
  const bool by_device = (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0;
  if (const CUresult result =
          describe(*session, graph, by_device, nullptr, &description, &outcome->error, &refused);
      result != CUDA_SUCCESS) {
    if (refused != CUDA_GRAPH_INSTANTIATE_SUCCESS) outcome->found = refused;
    return result;
  }
  if (const uint64_t node = by_device ? host_copy_in(description) : 0; node != 0) {
    outcome->error = reinterpret_cast<CUgraphNode>(node);
    outcome->found = CUDA_GRAPH_INSTANTIATE_MULTIPLE_CTXS_NOT_SUPPORTED;  // as natively
    return CUDA_ERROR_INVALID_VALUE;
  }
  note_waits(*session, description.awaited);
  // It ends with the context of its nodes.
  Context* context = context_of_nodes(graph);
  if (context == nullptr && current_context() != nullptr && current_context()->session == session)
    context = current_context();
  const uint64_t id = new_id(*session, rpc::HandleKind::kGraphExec);
  if (id == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  auto uses = std::make_shared<GraphUses>();
  refer_to_user_objects(graph, *uses);
  const bool may_be_refused = launch_may_be_refused(graph, flags);
  const uint64_t base = graph.base != nullptr ? graph.id : 0;
  const uint32_t places = queue_places(graph);
  lock.unlock();
  int result = CUDA_SUCCESS;
  unsigned place = 0;
  const uint16_t frame = context == nullptr ? uint16_t{0} : context->wire_id;
  std::span<const std::byte> last;
  CUresult sent = send_ahead(*session, frame, id, description, &last);
  if (sent == CUDA_SUCCESS) {
    const BriefDrainScope kernels_may_be_loaded(*session, frame);
    sent = wire::fgGraphInstantiate(*session, frame, last.data(), last.size(), flags & kForwarded,
                                    base, id, &result, &outcome->found, &place);
  }
  if (sent == CUDA_SUCCESS) sent = static_cast<CUresult>(result);
  if (sent != CUDA_SUCCESS) {
    outcome->error = description.node_at(place);
    give_id_back(*session, id);
    return sent;
  }
  auto made = std::make_unique<GraphExec>();
  made->id = id;
  made->session = session;
  made->context = context;
  // What a driver names when it is asked for them.
  made->flags = flags & ~cuuint64_t{CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
                                    CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY};
  made->launch = prepare_launch(id);
  made->interprocess = description.interprocess;
  made->waits = description.waits;
  note_recorded(*made, description.recorded);
  made->places = places;
  made->nodes = std::move(description.nodes);
  made->host_calls = std::move(description.host_calls);
  made->with_host_nodes = base != 0 || frame == 0;
  made->awaited = std::move(description.awaited);
  made->uses = std::move(uses);
  made->may_be_refused = may_be_refused;
  made->in_turn = made->has_host_calls() || made->uses->any();
  auto* const record = static_cast<GraphExec*>(session->handles.publish(std::move(made)));
  if (by_device) {
    if (sent = take_value(*record, frame); sent != CUDA_SUCCESS) {
      outcome->found = CUDA_GRAPH_INSTANTIATE_ERROR;
      (void)wire::fgGraphExecDestroy(*session, frame, id);
      handle_destroyed(*session, id);
      return sent;
    }
  }
  *exec = record->handle();
  return CUDA_SUCCESS;
}

CUresult update(GraphLock& lock, GraphExec& exec, const Graph& graph, GraphOutcome* outcome) {
  outcome->found = CU_GRAPH_EXEC_UPDATE_ERROR;
  Session& session = *exec.session;
  if (graph.base != nullptr && graph.base != &session) {
    log::warn("an executable graph is not updated from a graph on the GPUs of another server");
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  Description description;
  auto refused = CUDA_GRAPH_INSTANTIATE_SUCCESS;
  const bool by_device = (exec.flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0;
  std::lock_guard exec_lock(exec.mutex);
  if (exec.is_ending()) return CUDA_ERROR_INVALID_VALUE;
  const Counterparts update_of{exec.nodes, exec.host_calls};
  if (const CUresult result =
          describe(session, graph, by_device, &update_of, &description, &outcome->error, &refused);
      result != CUDA_SUCCESS) {
    if (result == CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE)
      outcome->found = CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    return result;
  }
  note_waits(session, description.awaited);
  auto references = std::make_shared<GraphUses>();
  refer_to_user_objects(graph, *references);
  const bool may_be_refused = launch_may_be_refused(graph, exec.flags);
  const uint64_t base = graph.base != nullptr ? graph.id : 0;
  lock.unlock();
  int result = CUDA_SUCCESS;
  unsigned place = 0, from_place = 0;
  const uint16_t context = frame_context(session);
  std::span<const std::byte> last;
  CUresult sent = send_ahead(session, context, exec.id, description, &last);
  if (sent == CUDA_SUCCESS) {
    const BriefDrainScope kernels_may_be_loaded(session, context);
    sent = base == 0
               ? wire::fgGraphUpdate(session, context, exec.id, last.data(), last.size(), &result,
                                     &outcome->found, &place, &from_place)
               : wire::fgGraphUpdateFrom(session, context, exec.id, base, last.data(), last.size(),
                                         &result, &outcome->found, &place, &from_place);
  }
  if (sent == CUDA_SUCCESS) sent = static_cast<CUresult>(result);
  if (sent != CUDA_SUCCESS) {
    outcome->error = description.node_at(place);
    outcome->error_from = description.node_at(from_place);
    return sent;
  }
  // The nodes stay those of the first graph, disabled ones too; what they do has changed.
  const size_t known = std::min(description.host_calls.size(), exec.host_calls.size());
  for (size_t i = 0; i < known; ++i) description.host_calls[i].node = exec.host_calls[i].node;
  take_nodes(exec, 0, description);
  take_host_calls(exec, std::move(description.host_calls));
  exec.awaited = std::move(description.awaited);
  if (description.interprocess) exec.interprocess = true;
  if (description.waits) exec.waits = true;
  exec.recorded.clear();
  note_recorded(exec, description.recorded);
  exec.may_be_refused = may_be_refused;
  if (references->any()) exec.uses->add(std::move(references));
  exec.in_turn = exec.has_host_calls() || exec.uses->any();
  return CUDA_SUCCESS;
}

bool has_node(GraphExec& exec, uint64_t node, CUgraphNodeType type) {
  std::lock_guard lock(exec.mutex);
  const auto found = exec.nodes.find(node);
  return found != exec.nodes.end() && found->second.type == type;
}

CUresult set_node(GraphExec& exec, uint64_t node, const NodeParams& params) {
  std::lock_guard lock(exec.mutex);
  const auto found = exec.nodes.find(node);
  if (found == exec.nodes.end() || found->second.type != params.type())
    return CUDA_ERROR_INVALID_VALUE;
  Placed& placed = found->second;
  if (params.type() == CU_GRAPH_NODE_TYPE_HOST) {
    HostCall& call = exec.host_calls[placed.host_call];
    call.function = params.get().host.fn;
    call.data = params.get().host.userData;
    return CUDA_SUCCESS;
  }
  const HostCopy* before = nullptr;
  if (placed.given != nullptr) {
    if (!may_become(*placed.given, params.get().memcpy.copyParams)) return CUDA_ERROR_INVALID_VALUE;
    if (placed.copy != NodeCopy::Way::kDriver)
      before = static_cast<const HostCopy*>(exec.host_calls[placed.host_call].keeps.get());
  }
  Description description;
  if (const CUresult result = describe_node(*exec.session, params, placed, before, &description);
      result != CUDA_SUCCESS)
    return result;
  note_waits(*exec.session, description.awaited);
  if (placed.copy != NodeCopy::Way::kHost) {
    const CUresult result =
        wire::fgGraphSetNode(*exec.session, frame_context(*exec.session), exec.id, placed.place,
                             description.bytes.data(), description.bytes.size());
    if (result != CUDA_SUCCESS) return result;
  }
  if (placed.function != 0) {
    placed.function = params.function();
    placed.context = params.context();
  }
  if (placed.given != nullptr) placed.given = description.nodes.begin()->second.given;
  if (params.type() == CU_GRAPH_NODE_TYPE_GRAPH) take_nodes(exec, placed.place, description);
  if (description.interprocess) exec.interprocess = true;
  if (description.waits) exec.waits = true;
  if (params.type() == CU_GRAPH_NODE_TYPE_EVENT_RECORD) {
    std::erase_if(exec.recorded, [node](const RecordedEvent& old) { return old.node == node; });
    for (RecordedEvent& recorded : description.recorded) recorded.node = node;
  }
  note_recorded(exec, description.recorded);
  for (const CUdeviceptr address : description.awaited) {
    const auto known = std::find(exec.awaited.begin(), exec.awaited.end(), address);
    if (known == exec.awaited.end()) exec.awaited.push_back(address);
    exec.in_turn = true;
  }
  if (params.type() == CU_GRAPH_NODE_TYPE_GRAPH) {
    auto references = std::make_shared<GraphUses>();
    refer_to_user_objects(*find_graph(params.get().graph.graph), *references);
    if (references->any()) {
      exec.uses->add(std::move(references));
      exec.in_turn = true;
    }
  }
  if (!description.host_calls.empty()) {
    // Of a child as many as it had, for the driver has compared them.
    std::vector<HostCall> calls = exec.host_calls;
    auto next = calls.begin() + static_cast<ptrdiff_t>(placed.host_call);
    for (HostCall& call : description.host_calls) {
      if (next == calls.end()) break;
      call.node = next->node;
      *next++ = std::move(call);
    }
    take_host_calls(exec, std::move(calls));
  }
  return CUDA_SUCCESS;
}

CUresult enable_node(GraphExec& exec, uint64_t node, bool enabled) {
  std::lock_guard lock(exec.mutex);
  const auto found = exec.nodes.find(node);
  if (found == exec.nodes.end()) return CUDA_ERROR_INVALID_VALUE;
  const Placed& placed = found->second;
  if (!can_be_disabled(placed)) return CUDA_ERROR_INVALID_VALUE;
  if (placed.copy != NodeCopy::Way::kHost) {
    const CUresult result = wire::fgGraphEnableNode(*exec.session, frame_context(*exec.session),
                                                    exec.id, placed.place, enabled ? 1 : 0);
    if (result != CUDA_SUCCESS) return result;
  }
  std::erase(exec.disabled, node);
  if (!enabled) exec.disabled.push_back(node);
  return CUDA_SUCCESS;
}

CUresult is_enabled(GraphExec& exec, uint64_t node, unsigned* enabled) {
  std::lock_guard lock(exec.mutex);
  const auto found = exec.nodes.find(node);
  if (found == exec.nodes.end() || !can_be_disabled(found->second)) return CUDA_ERROR_INVALID_VALUE;
  const auto& off = exec.disabled;
  *enabled = std::find(off.begin(), off.end(), node) == off.end() ? 1 : 0;
  return CUDA_SUCCESS;
}

std::vector<CUevent> recorded_events(GraphExec& exec) {
  std::vector<CUevent> events;
  std::lock_guard lock(exec.mutex);
  for (const RecordedEvent& recorded : exec.recorded) events.push_back(recorded.event);
  return events;
}

CUresult launch(GraphExec& exec, CUstream stream) {
  const CallTarget target = CallTarget::of(stream);
  if (exec.session != &target.session) return CUDA_ERROR_INVALID_HANDLE;
  const bool interprocess = exec.interprocess.load(std::memory_order_relaxed);
  // As before the record of such an event.
  CUresult result = interprocess ? wait_for_deliveries(target.session, stream) : CUDA_SUCCESS;
  if (result == CUDA_SUCCESS && exec.places > 1)
    result = take_places(target.session, exec.places, stream);
  if (result != CUDA_SUCCESS) return result;
  note_order(exec, target.session, stream);
  result = exec.in_turn.load(std::memory_order_acquire) ? send_in_turn(exec, target, stream)
                                                        : send_plain_launch(exec, target, stream);
  if (result == CUDA_SUCCESS &&
      (exec.may_be_refused.load(std::memory_order_relaxed) || interprocess))
    result = flush(target.session);
  if (result != CUDA_SUCCESS) return result;
  return launches_block.load(std::memory_order_relaxed)
             ? await_stream(target.session, target.context, stream)
             : CUDA_SUCCESS;
}

CUresult upload(GraphExec& exec, CUstream stream) {
  const CallTarget target = CallTarget::of(stream);
  if (exec.session != &target.session) return CUDA_ERROR_INVALID_HANDLE;
  const unsigned needs = Submission::kQueuePlace | passing(exec);
  note_order(exec, target.session, stream);
  return submit(target.session, target.context, stream, needs, [&](uint64_t id) {
    return wire::fgGraphUpload(target.session, target.context, exec.id, id);
  });
}

CUresult destroy(GraphExec& exec) {
  Session& session = *exec.session;
  // Its resources are released when the last launch has ended; launches run in sequence.
  struct Uses {
    std::shared_ptr<GraphUses> objects;
    std::vector<HostCall> calls;
  };
  auto uses = std::make_shared<Uses>();
  LastLaunch last;
  {
    std::lock_guard lock(exec.mutex);
    last = exec.last;
    uses->objects = std::move(exec.uses);
    uses->calls = std::move(exec.host_calls);
    exec.nodes.clear();
  }
  const bool any = (uses->objects != nullptr && uses->objects->any()) ||
                   std::any_of(uses->calls.begin(), uses->calls.end(),
                               [](const HostCall& call) { return call.keeps != nullptr; });
  Context* const context = exec.context;
  const bool by_kernels = exec.value != 0;
  const uint64_t id = exec.id;
  const CUresult result = wire::fgGraphExecDestroy(session, frame_context(session), id);
  if (result == CUDA_SUCCESS) handle_destroyed(session, id);
  // Kernels may have launched it after that.
  if (any && by_kernels && context != nullptr)
    keep_until_idle(session, context, std::move(uses));
  else if (any)
    keep_until_launched(session, last, std::move(uses));
  return result;
}

}  // namespace fargpu::client
