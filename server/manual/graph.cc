// Graphs: the client's descriptions become graphs of the driver's, and those executable ones. The
// id of an executable graph stands for an ExecutableGraph.
#include <capnp/serialize.h>

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "common/base/log.h"
#include "generated/schema/internal.capnp.h"
#include "generated/server/internal_decode.h"
#include "schema/support/cuda_rules.h"
#include "server/graph/executable_graph.h"
#include "server/manual/manual.h"
#include "server/stream/copy_fences.h"

namespace fargpu::server {
namespace {

// Bulk bytes as a message: they may lie anywhere.
class Description {
 public:
  explicit Description(std::span<const std::byte> bytes)
      : words_(kj::heapArray<capnp::word>((bytes.size() + 7) / 8)),
        reader_(copy(bytes), options(bytes.size())) {}
  schema::graph::Nodes::Reader nodes() { return reader_.getRoot<schema::graph::Nodes>(); }

 private:
  kj::ArrayPtr<const capnp::word> copy(std::span<const std::byte> bytes) {
    if (bytes.size() % 8 != 0)
      kj::throwFatalException(KJ_EXCEPTION(FAILED, "a graph that is no whole number of words"));
    if (!bytes.empty()) std::memcpy(words_.begin(), bytes.data(), bytes.size());
    return words_;
  }
  // Each word is read a few times at most: when the graph is built, and when nodes in graphs inside
  // are found again, once for each level.
  static capnp::ReaderOptions options(size_t bytes) {
    return {.traversalLimitInWords = (4 + 2 * uint64_t{schema::kMaxGraphDepth}) * (bytes / 8 + 128),
            .nestingLimit = 4 * static_cast<int>(schema::kMaxGraphDepth)};
  }
  kj::Array<capnp::word> words_;
  capnp::FlatArrayMessageReader reader_;
};

// A description of which the last piece is the bulk bytes of this request.
class Gathered {
 public:
  Gathered(Worker& worker, uint64_t id, std::span<const std::byte> last)
      : whole_(worker.parts().graph_pieces.take(id)), last_(last) {
    if (!whole_.empty()) whole_.insert(whole_.end(), last.begin(), last.end());
  }
  std::span<const std::byte> bytes() const { return whole_.empty() ? last_ : whole_; }

 private:
  std::vector<std::byte> whole_;
  std::span<const std::byte> last_;
};

GraphParts parts_of(SessionParts& parts) {
  return {parts.core, parts.parameter_layouts,
          [&memory = parts.memory](uint64_t bytes) { return memory.use_local(bytes); },
          parts.event_waits, parts.host_gate};
}

// nullptr: there is none with this id.
ExecutableGraph* find_graph(Worker& worker, uint64_t id) {
  void* found = nullptr;
  (void)worker.parts().handles.find(rpc::HandleKind::kGraphExec, id, &found);
  return static_cast<ExecutableGraph*>(found);
}

CUresult find_base(Worker& worker, uint64_t id, std::shared_ptr<GraphBase>* base) {
  void* found = nullptr;
  const CUresult result = worker.parts().handles.find(rpc::HandleKind::kGraph, id, &found);
  if (result == CUDA_SUCCESS) *base = *static_cast<SharedBase*>(found);
  return result;
}

// The half of a graph, made with the first question for it.
CUresult base_of(Worker& worker, uint64_t id, std::shared_ptr<GraphBase>* base) {
  if (find_base(worker, id, base) == CUDA_SUCCESS) return CUDA_SUCCESS;
  SessionParts& parts = worker.parts();
  auto made = std::make_shared<SharedBase>(GraphBase::make(parts_of(parts)));
  if (*made == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = worker.add(rpc::HandleKind::kGraph, id, made.get(), 0);
  if (result != CUDA_SUCCESS) return result;
  *base = *made;
  parts.kept_objects.keep(UntilEnded{id}, std::move(made));
  return CUDA_SUCCESS;
}

// What a graph's memory takes of the job's limit.
class Charge {
 public:
  Charge(SessionParts& parts, CUdevice device, uint64_t bytes)
      : parts_(parts), device_(device), bytes_(bytes) {}
  ~Charge() {
    if (address_ != 0)
      parts_.memory.end_graph_memory(address_, bytes_, device_);
    else
      parts_.memory.refund(static_cast<size_t>(device_), bytes_);
  }
  Charge(const Charge&) = delete;
  Charge& operator=(const Charge&) = delete;
  void is_at(CUdeviceptr address) {
    address_ = address;
    parts_.memory.begin_graph_memory(bytes_, device_);
  }

 private:
  SessionParts& parts_;
  const CUdevice device_;
  const uint64_t bytes_;
  CUdeviceptr address_ = 0;  // 0: there was none
};

// Graphs need a context of the driver's, whatever they consist of.
CUresult enter_any(Worker& worker, uint16_t context) {
  return context != 0 ? worker.enter_context(context) : worker.parts().contexts.borrow();
}

// As answer(), without the request.
Status refuse(Worker& worker, const wire::FrameHeader& header, CUresult why) {
  worker.before_error();
  return worker.responder().reply(header, why);
}

// Calls `work(header, bytes)`, which answers, when the driver may make or update an executable
// graph of `base` (null: it may): at once, or when those have gone that the client has destroyed.
template <typename Work>
Status when_possible(Worker& worker, const Request& request, const char* name,
                     const std::shared_ptr<GraphBase>& base, std::span<const std::byte> bytes,
                     Work work) {
  if (base == nullptr || !base->has_ending()) return work(request.header, bytes);
  const auto kept = std::make_shared<std::vector<std::byte>>(bytes.begin(), bytes.end());
  worker.parts().ended_graphs.when_gone(
      base, [&worker, name, header = request.header, kept, work = std::move(work)] {
        const Status status = decoded(name, [&] { return work(header, *kept); });
        // The request was taken, and a client that gets no answer would wait for it.
        if (!status.ok()) (void)refuse(worker, header, CUDA_ERROR_INVALID_VALUE);
      });
  return Status();
}

template <typename Results>
Status send_outcome(Worker& worker, const wire::FrameHeader& header,
                    const ExecutableGraph::Outcome& outcome) {
  rpc::Responder::Frame frame(worker.responder(), header, schema::fixed_bytes<Results>());
  auto results = frame.init<Results>();
  results.setOutcome(outcome.result);
  results.setFound(outcome.found);
  results.setErrorPlace(outcome.error_place);
  if constexpr (requires { results.setErrorFromPlace(0); })
    results.setErrorFromPlace(outcome.error_from_place);
  return frame.send(CUDA_SUCCESS);
}

// `base_id`: of the graph whose description the bulk bytes are; 0: it has no half.
template <typename Results>
Status update(Worker& worker, const Request& request, const char* name, uint64_t exec,
              uint64_t base_id) {
  const Gathered gathered(worker, exec, request.bulk);
  FARGPU_ANSWER_UNLESS_SUCCESS(enter_any(worker, request.header.context));
  if (find_graph(worker, exec) == nullptr)
    return answer(worker, request, CUDA_ERROR_INVALID_HANDLE);
  FARGPU_NEEDS_DRIVER(cuGraphExecUpdate_v2);
  std::shared_ptr<GraphBase> base;
  if (base_id != 0) FARGPU_ANSWER_UNLESS_SUCCESS(base_of(worker, base_id, &base));
  const auto work = [&worker, exec, base](const wire::FrameHeader& header,
                                          std::span<const std::byte> bytes) -> Status {
    ExecutableGraph* const graph = find_graph(worker, exec);
    CUresult result = graph == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS) result = enter_any(worker, header.context);
    if (result != CUDA_SUCCESS) return refuse(worker, header, result);
    Description description(bytes);
    return send_outcome<Results>(worker, header, graph->update(description.nodes(), base));
  };
  return when_possible(worker, request, name, base, gathered.bytes(), work);
}

}  // namespace

Status manual_fgGraphPiece(Worker& worker, const Request& request) {
  return decode_fgGraphPiece(worker, request, [&](const auto& given) {
    const bool fits = worker.parts().graph_pieces.add(given.exec, request.bulk);
    return answer(worker, request, fits ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
  });
}

Status manual_fgGraphInstantiate(Worker& worker, const Request& request) {
  return decode_fgGraphInstantiate(worker, request, [&](const auto& given) -> Status {
    const uint64_t id = given.exec;
    const Gathered gathered(worker, id, given.graph);
    FARGPU_ANSWER_UNLESS_SUCCESS(enter_any(worker, request.header.context));
    std::shared_ptr<GraphBase> base;
    if (given.base != 0) {
      // A graph may have nothing of its own there but a child that was moved into it.
      FARGPU_ANSWER_UNLESS_SUCCESS(base_of(worker, given.base, &base));
    }
    const auto work = [&worker, id, base, flags = given.flags,
                       context = worker.parts().contexts.ref(request.header.context)](
                          const wire::FrameHeader& header,
                          std::span<const std::byte> bytes) -> Status {
      SessionParts& parts = worker.parts();
      CUresult result = parts.contexts.lives(context) ? enter_any(worker, header.context)
                                                      : CUDA_ERROR_CONTEXT_IS_DESTROYED;
      if (result != CUDA_SUCCESS) return refuse(worker, header, result);
      auto graph = std::make_shared<ExecutableGraph>(parts_of(parts));
      Description description(bytes);
      const auto outcome = graph->instantiate(description.nodes(), base, flags);
      if (outcome.result == CUDA_SUCCESS) {
        result = worker.add(rpc::HandleKind::kGraphExec, id, graph.get(), header.context);
        if (result == CUDA_ERROR_OUT_OF_MEMORY) return refuse(worker, header, result);
        if (result != CUDA_SUCCESS) return malformed("fgGraphInstantiate", "its id is in use");
        parts.kept_objects.keep(UntilEnded{id}, std::move(graph));
      }
      return send_outcome<schema::FgGraphInstantiateResults>(worker, header, outcome);
    };
    return when_possible(worker, request, "fgGraphInstantiate", base, gathered.bytes(), work);
  });
}

Status manual_fgGraphValue(Worker& worker, const Request& request) {
  return decode_fgGraphValue(worker, request, [&](const auto& given) -> Status {
    const ExecutableGraph* const graph = find_graph(worker, given.exec_id);
    if (graph == nullptr) return answer(worker, request, CUDA_ERROR_INVALID_HANDLE);
    if (!graph->is_for_kernels()) return answer(worker, request, CUDA_ERROR_INVALID_VALUE);
    using Results = schema::FgGraphValueResults;
    rpc::Responder::Frame frame(worker.responder(), request.header, schema::fixed_bytes<Results>());
    frame.init<Results>().setValue(reinterpret_cast<uint64_t>(graph->get()));
    return frame.send(CUDA_SUCCESS);
  });
}

Status manual_fgGraphUpdate(Worker& worker, const Request& request) {
  return decoded("fgGraphUpdate", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const auto params = reader.getRoot<schema::FgGraphUpdateParams>();
    return update<schema::FgGraphUpdateResults>(worker, request, "fgGraphUpdate", params.getExec(),
                                                0);
  });
}

Status manual_fgGraphUpdateFrom(Worker& worker, const Request& request) {
  return decoded("fgGraphUpdateFrom", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const auto params = reader.getRoot<schema::FgGraphUpdateFromParams>();
    return update<schema::FgGraphUpdateFromResults>(worker, request, "fgGraphUpdateFrom",
                                                    params.getExec(), params.getBase());
  });
}

Status manual_fgGraphSetNode(Worker& worker, const Request& request) {
  return decode_fgGraphSetNode(worker, request, [&](const auto& given) -> Status {
    FARGPU_ANSWER_UNLESS_SUCCESS(enter_any(worker, request.header.context));
    ExecutableGraph* const graph = find_graph(worker, given.exec_id);
    if (graph == nullptr) return answer(worker, request, CUDA_ERROR_INVALID_HANDLE);
    Description description(given.graph);
    const auto nodes = description.nodes().getNodes();
    if (nodes.size() != 1) return malformed("fgGraphSetNode", "not one node");
    return answer(worker, request, graph->set_node(given.place, nodes[0]));
  });
}

Status manual_fgGraphSetKernel(Worker& worker, const Request& request) {
  return decode_fgGraphSetKernel(worker, request, [&](const auto& given) -> Status {
    ExecutableGraph* const graph = find_graph(worker, given.exec_id);
    if (graph == nullptr) return answer(worker, request, CUDA_ERROR_INVALID_HANDLE);
    const CUresult result =
        graph->set_kernel(given.place, worker.parts().contexts.find(request.header.context),
                          {given.function,
                           {given.gridX, given.gridY, given.gridZ},
                           {given.blockX, given.blockY, given.blockZ},
                           given.sharedBytes,
                           given.parameters});
    const bool is_awaited = (request.header.flags & wire::kWantReply) != 0;
    if (is_awaited || result == CUDA_SUCCESS) return answer(worker, request, result);
    graph->refuse_launch(result);
    log::warn("event=graph-change-refused result={}", static_cast<int>(result));
    return Status();
  });
}

Status manual_fgGraphEnableNode(Worker& worker, const Request& request) {
  return decode_fgGraphEnableNode(worker, request, [&](const auto& given) {
    ExecutableGraph* const graph = find_graph(worker, given.exec_id);
    if (graph == nullptr) return answer(worker, request, CUDA_ERROR_INVALID_HANDLE);
    return answer(worker, request, graph->enable_node(given.place, given.enabled != 0));
  });
}

Status manual_fgGraphLaunch(Worker& worker, const Request& request) {
  return decode_fgGraphLaunch(worker, request, [&](const auto& given) -> Status {
    SessionParts& parts = worker.parts();
    ExecutableGraph* const graph = find_graph(worker, given.exec_id);
    if (graph == nullptr) return answer(worker, request, CUDA_ERROR_INVALID_HANDLE);
    const auto& hosts = graph->places().host_nodes;
    if (given.hostCalls.size() != hosts.size())
      return malformed("fgGraphLaunch", "not one host call for each host node");
    const FrameStream& stream = given.submission.stream();
    FARGPU_ANSWER_UNLESS_SUCCESS(parts.contexts.enter(stream.context));
    for (size_t i = 0; i < hosts.size(); ++i) {
      if (parts.host_gate.expect(stream.context, hosts[i], given.hostCalls[i]) != CUDA_SUCCESS)
        return malformed("fgGraphLaunch", "a host call's id is in use");
    }
    CUresult result = graph->take_refusal();
    if (result == CUDA_SUCCESS) result = worker.driver().cuGraphLaunch(graph->get(), stream.handle);
    if (result != CUDA_SUCCESS) {
      for (const uint64_t id : given.hostCalls) parts.host_gate.not_launched(id, result);
    } else {
      graph->note_launch({stream.context, stream.handle});
      if (graph->places().waits)
        parts.completion.keep(UntilPassed{stream.context, stream.handle},
                              parts.copy_fences.value_wait());
      for (const CUdeviceptr address : graph->leaves()) parts.memory.left_by_graph(address);
      for (const CUdeviceptr address : graph->frees()) parts.memory.freed_by_graph(address);
    }
    return answer(worker, request, result);
  });
}

Status manual_fgGraphUpload(Worker& worker, const Request& request) {
  return decode_fgGraphUpload(worker, request, [&](const auto& given) {
    const ExecutableGraph* const graph = find_graph(worker, given.exec_id);
    if (graph == nullptr) return answer(worker, request, CUDA_ERROR_INVALID_HANDLE);
    // Only a hint.
    if (worker.driver().cuGraphUpload == nullptr) return answer(worker, request, CUDA_SUCCESS);
    return answer(worker, request, worker.driver().cuGraphUpload(graph->get(), given.stream));
  });
}

Status manual_fgGraphAllocate(Worker& worker, const Request& request) {
  return decode_fgGraphAllocate(worker, request, [&](const auto& given) -> Status {
    FARGPU_ANSWER_UNLESS_SUCCESS(enter_any(worker, request.header.context));
    SessionParts& parts = worker.parts();
    const CUmemLocation& location = given.pool->location;
    if (location.type != CU_MEM_LOCATION_TYPE_DEVICE || location.id < 0 ||
        location.id >= parts.contexts.device_count())
      return answer(worker, request, CUDA_ERROR_INVALID_VALUE);
    std::shared_ptr<GraphBase> base;
    FARGPU_ANSWER_UNLESS_SUCCESS(base_of(worker, given.graph, &base));
    FARGPU_ANSWER_UNLESS_SUCCESS(parts.memory.charge(location.id, given.bytes));
    auto charge = std::make_shared<Charge>(parts, location.id, given.bytes);
    CUdeviceptr address = 0;
    unsigned number = 0;
    FARGPU_ANSWER_UNLESS_SUCCESS(
        base->allocate(*given.pool, given.access, given.bytes, &address, &number));
    charge->is_at(address);
    base->keep(std::move(charge));
    using Results = schema::FgGraphAllocateResults;
    rpc::Responder::Frame frame(worker.responder(), request.header, schema::fixed_bytes<Results>());
    auto results = frame.init<Results>();
    results.setAddress(address);
    results.setNumber(number);
    return frame.send(CUDA_SUCCESS);
  });
}

Status manual_fgGraphConditional(Worker& worker, const Request& request) {
  return decode_fgGraphConditional(worker, request, [&](const auto& given) -> Status {
    FARGPU_NEEDS_DRIVER(cuGraphConditionalHandleCreate);
    FARGPU_ANSWER_UNLESS_SUCCESS(enter_any(worker, request.header.context));
    std::shared_ptr<GraphBase> base;
    FARGPU_ANSWER_UNLESS_SUCCESS(base_of(worker, given.graph, &base));
    CUgraphConditionalHandle handle = 0;
    FARGPU_ANSWER_UNLESS_SUCCESS(worker.driver().cuGraphConditionalHandleCreate(
        &handle, base->get(), worker.parts().contexts.find(request.header.context), given.initial,
        given.flags));
    using Results = schema::FgGraphConditionalResults;
    rpc::Responder::Frame frame(worker.responder(), request.header, schema::fixed_bytes<Results>());
    frame.init<Results>().setHandle(handle);
    return frame.send(CUDA_SUCCESS);
  });
}

Status manual_fgGraphUpdatable(Worker& worker, const Request& request) {
  return decode_fgGraphUpdatable(worker, request, [&](const auto& given) -> Status {
    FARGPU_ANSWER_UNLESS_SUCCESS(enter_any(worker, request.header.context));
    Description description(given.node);
    const auto nodes = description.nodes().getNodes();
    if (nodes.size() != 1) return malformed("fgGraphUpdatable", "not one node");
    std::shared_ptr<GraphBase> base;
    FARGPU_ANSWER_UNLESS_SUCCESS(base_of(worker, given.graph, &base));
    CUgraphDeviceNode handle = nullptr;
    unsigned number = 0;
    FARGPU_ANSWER_UNLESS_SUCCESS(base->add_updatable(nodes[0], &handle, &number));
    using Results = schema::FgGraphUpdatableResults;
    rpc::Responder::Frame frame(worker.responder(), request.header, schema::fixed_bytes<Results>());
    auto results = frame.init<Results>();
    results.setDeviceNode(reinterpret_cast<uint64_t>(handle));
    results.setNumber(number);
    return frame.send(CUDA_SUCCESS);
  });
}

Status manual_fgGraphEnd(Worker& worker, const Request& request) {
  return decode_fgGraphEnd(worker, request, [&](const auto& given) {
    // A graph has no half yet when nothing came of the first question for it, and when its only
    // memory is that of a child and it was not instantiated.
    std::shared_ptr<GraphBase> base;
    if (find_base(worker, given.graph, &base) == CUDA_SUCCESS) worker.remove(given.graph);
    return answer(worker, request, CUDA_SUCCESS);
  });
}

Status manual_fgGraphExecDestroy(Worker& worker, const Request& request) {
  return decode_fgGraphExecDestroy(worker, request, [&](const auto& given) {
    worker.remove(given.exec_id);  // SessionParts hands it to ended_graphs
    return answer(worker, request, CUDA_SUCCESS);
  });
}

}  // namespace fargpu::server
