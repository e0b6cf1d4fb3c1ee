// Host functions and mapped host memory: what belongs to the client's process.
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "common/base/log.h"
#include "generated/server/internal_decode.h"
#include "server/manual/manual.h"
#include "server/memory/host_pages.h"
#include "server/memory/shared_host.h"
#include "server/stream/host_gate.h"
#include "server/stream/stream_holds.h"

namespace fargpu::server {
namespace {

// Calls done() when no context of the session has work left.
void when_all_idle(Worker& worker, const std::function<void()>& done) {
  const std::vector<uint16_t> contexts = worker.parts().contexts.ids();
  if (contexts.empty()) {
    done();
    return;
  }
  const auto left = std::make_shared<size_t>(contexts.size());
  for (const uint16_t context : contexts) {
    worker.parts().completion.when_idle(context, [left, done](CUresult) {
      if (--*left == 0) done();
    });
  }
}

// Calls done() when nothing that lay in these pages is being withdrawn any more.
void when_pages_are_free(Worker& worker, uint64_t address, uint64_t bytes,
                         std::function<void()> done) {
  if (!worker.parts().host_pages.is_leaving(address, bytes)) return done();
  worker.defer([&pages = worker.parts().host_pages, address, bytes, done = std::move(done)] {
    if (pages.is_leaving(address, bytes)) return false;
    done();
    return true;
  });
}

// Memory whose context has ended while it was registered. The registration has ended with that
// context, or it is in the one that has its id and its driver's handle now: a primary context that
// was retained again.
void dispose(const LaterReply& later, const SharedHost::MappingPointer& mapping) {
  SessionParts& parts = later.worker().parts();
  if (parts.contexts.find(mapping->context()) == nullptr)
    return later.send(CUDA_ERROR_CONTEXT_IS_DESTROYED);
  parts.completion.off_thread_exclusive(
      mapping->context(), StreamHolds::kEveryDevice,
      [&shared = parts.shared_host, mapping] { return shared.withdraw(*mapping); },
      [later, mapping](CUresult) { later.send(CUDA_ERROR_CONTEXT_IS_DESTROYED); });
}

}  // namespace

Status manual_fgHostCall(Worker& worker, const Request& request) {
  return decoded("fgHostCall", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const auto params = reader.getRoot<schema::FgHostCallParams>();
    const uint64_t id = params.getStream();
    const uint16_t its_context = worker.parts().handles.context_of(id);
    const uint16_t context = its_context != 0 ? its_context : request.header.context;
    HostGate& gate = worker.parts().host_gate;
    const auto refuse = [&](CUresult why) {
      gate.refuse(params.getId(), why);
      return answer(worker, request, why);
    };
    if (const CUresult entered = worker.enter_context(context); entered != CUDA_SUCCESS)
      return refuse(entered);
    const Submission submission(worker, id);
    if (submission.result() != CUDA_SUCCESS) return refuse(submission.result());
    return answer(
        worker, request,
        gate.enqueue(context, submission.handle(), params.getId(), params.getWithStatus() != 0));
  });
}

Status manual_fgHostReserve(Worker& worker, const Request& request) {
  return decode_fgHostReserve(worker, request, [&](const auto& given) -> Status {
    const uint64_t address = given.address, bytes = given.bytes;
    const LaterReply later(worker, request);
    when_pages_are_free(worker, address, bytes, [later, address, bytes] {
      later.send(later.worker().parts().host_pages.reserve(address, bytes));
    });
    return Status();
  });
}

Status manual_fgHostMap(Worker& worker, const Request& request) {
  return decode_fgHostMap(worker, request, [&](const auto& given) -> Status {
    HostPages& pages = worker.parts().host_pages;
    // The client asks again: meanwhile its functions in streams, on which the withdrawal may wait,
    // must go on there.
    if (pages.is_leaving(given.address, given.bytes))
      return answer(worker, request, CUDA_ERROR_NOT_READY);
    CUdeviceptr device_pointer = 0;
    FARGPU_ANSWER_UNLESS_SUCCESS(pages.map(given.address, given.bytes, request.header.context,
                                           given.flags, &device_pointer));
    rpc::Responder::Frame frame(worker.responder(), request.header,
                                schema::fixed_bytes<schema::FgHostMapResults>());
    frame.init<schema::FgHostMapResults>().setDevicePointer(device_pointer);
    return frame.send(CUDA_SUCCESS);
  });
}

Status manual_fgHostUnmap(Worker& worker, const Request& request) {
  return decode_fgHostUnmap(worker, request, [&](const auto& given) -> Status {
    const uint64_t address = given.address;
    const LaterReply later(worker, request);
    const auto when = [&worker](bool mapped, const std::function<void()>& done) {
      // Kernels of any context may still use the memory.
      mapped ? when_all_idle(worker, done) : done();
    };
    when(worker.parts().host_pages.mapped_in(address) != 0, [later, address] {
      HostPages& pages = later.worker().parts().host_pages;
      // The registration's own. The request's may have ended while others were not idle.
      const uint16_t context = pages.mapped_in(address);
      std::vector<uint64_t> leaving;
      const CUresult result = pages.unmap(address, &leaving);
      if (leaving.empty()) return later.send(result);
      later.worker().parts().completion.off_thread_exclusive(
          context, StreamHolds::kEveryDevice,
          [&pages, leaving] {
            CUresult result = CUDA_SUCCESS;
            for (const uint64_t block : leaving) {
              const CUresult withdrawn = pages.withdraw(block);
              if (result == CUDA_SUCCESS) result = withdrawn;
            }
            return result;
          },
          [later, leaving](CUresult result) {
            if (result != CUDA_SUCCESS) {
              log::warn("event=host-memory-stays-registered address=0x{:x} error={}",
                        leaving.front(), static_cast<int>(result));
            }
            later.worker().parts().host_pages.left(leaving);
            later.send(result);
          });
    });
    return Status();
  });
}

namespace {

Status push_pages(Worker& worker, const Request& request, const HostPages::Push& push) {
  constexpr size_t kLarge = 256u << 10;
  SessionParts& parts = worker.parts();
  const bool is_large = push.runs.size() >= kLarge && !parts.bulk.beyond_budget();
  const CUresult result = is_large ? parts.push_beside(push) : parts.host_pages.push(push);
  return answer(worker, request, result);
}

}  // namespace

Status manual_fgPagesPush(Worker& worker, const Request& request) {
  return decode_fgPagesPush(worker, request, [&](const auto& given) {
    return push_pages(worker, request, {given.runs});
  });
}

Status manual_fgPagesPushChanges(Worker& worker, const Request& request) {
  return decode_fgPagesPushChanges(worker, request, [&](const auto& given) {
    return push_pages(worker, request, {given.runs, /*gaps=*/true});
  });
}

Status manual_fgPagesFetch(Worker& worker, const Request& request) {
  return decode_fgPagesFetch(worker, request, [&](const auto& given) -> Status {
    const uint64_t most = given.maxBytes;
    if (most < pages::RunWriter::kSmallestLimit || most > worker.parts().max_bulk_bytes)
      return malformed("fgPagesFetch",
                       "more bytes are asked for than one frame may bring, or none");
    HostPages& host_pages = worker.parts().host_pages;
    pages::RunWriter runs(most);
    const uint64_t next = host_pages.fetch(given.from, runs);
    rpc::Responder::Frame frame(worker.responder(), request.header,
                                schema::fixed_bytes<schema::FgPagesFetchResults>());
    auto results = frame.init<schema::FgPagesFetchResults>();
    results.setNext(next);
    results.setPushes(host_pages.pushes());
    results.setRunsBytes(runs.bytes().size());
    const std::span<const std::byte> bulk[] = {runs.bytes()};
    return frame.send(CUDA_SUCCESS, bulk);
  });
}

Status manual_fgPagesOnDemand(Worker& worker, const Request& request) {
  return decoded("fgPagesOnDemand", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const auto params = reader.getRoot<schema::FgPagesOnDemandParams>();
    return answer(
        worker, request,
        worker.parts().host_pages.set_on_demand(params.getAddress(), params.getOnDemand() != 0));
  });
}

Status manual_fgPagesFetchPart(Worker& worker, const Request& request) {
  return decoded("fgPagesFetchPart", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const auto params = reader.getRoot<schema::FgPagesFetchPartParams>();
    const uint64_t most = params.getMaxBytes();
    if (most < pages::RunWriter::kSmallestLimit || most > worker.parts().max_bulk_bytes)
      return malformed("fgPagesFetchPart",
                       "more bytes are asked for than one frame may bring, or none");
    HostPages& host_pages = worker.parts().host_pages;
    pages::RunWriter runs(most);
    const auto next = host_pages.fetch_part(params.getAddress(), params.getBytes(), runs);
    if (!next) return answer(worker, request, CUDA_ERROR_INVALID_VALUE);
    rpc::Responder::Frame frame(worker.responder(), request.header,
                                schema::fixed_bytes<schema::FgPagesFetchPartResults>());
    auto results = frame.init<schema::FgPagesFetchPartResults>();
    results.setNext(*next);
    results.setPushes(host_pages.pushes());
    results.setRunsBytes(runs.bytes().size());
    const std::span<const std::byte> bulk[] = {runs.bytes()};
    return frame.send(CUDA_SUCCESS, bulk);
  });
}

Status manual_fgHostShare(Worker& worker, const Request& request) {
  return decode_fgHostShare(worker, request, [&](const auto& given) -> Status {
    SharedHost& shared = worker.parts().shared_host;
    SharedHost::MappingPointer mapping;
    FARGPU_ANSWER_UNLESS_SUCCESS(shared.map(worker.parts().transport.descriptor_passing(),
                                            given.number, given.address, given.bytes,
                                            request.header.context, &mapping));
    const LaterReply later(worker, request);
    const auto device_pointer = std::make_shared<CUdeviceptr>(0);
    worker.parts().completion.off_thread(
        request.header.context,
        [&shared, mapping, device_pointer] {
          return shared.enroll(*mapping, device_pointer.get());
        },
        [later, mapping, device_pointer](CUresult result) {
          if (result == CUDA_SUCCESS && !later.context_lives()) return dispose(later, mapping);
          if (result != CUDA_SUCCESS) return later.send(result);
          Worker& worker = later.worker();
          worker.parts().shared_host.add(mapping);
          rpc::Responder::Frame frame(worker.responder(), later.header(),
                                      schema::fixed_bytes<schema::FgHostShareResults>());
          frame.init<schema::FgHostShareResults>().setDevicePointer(*device_pointer);
          (void)frame.send(CUDA_SUCCESS);
        });
    return Status();
  });
}

Status manual_fgHostUnshare(Worker& worker, const Request& request) {
  return decode_fgHostUnshare(worker, request, [&](const auto& given) -> Status {
    const LaterReply later(worker, request);
    // Memory of one context is accessible in all of them.
    when_all_idle(worker, [later, address = given.address] {
      Worker& worker = later.worker();
      if (address == 0) return later.send(CUDA_SUCCESS);
      SharedHost& shared = worker.parts().shared_host;
      const SharedHost::MappingPointer mapping = shared.remove(address);
      if (mapping == nullptr) return later.send(CUDA_ERROR_NOT_MAPPED);
      worker.parts().completion.off_thread_exclusive(
          mapping->context(), StreamHolds::kEveryDevice,
          [&shared, mapping] { return shared.withdraw(*mapping); },
          [later](CUresult result) { later.send(result); });
    });
    return Status();
  });
}

}  // namespace fargpu::server
