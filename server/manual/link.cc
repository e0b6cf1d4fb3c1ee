// Linking: inputs come by hash from the images of the session; the result becomes one of them and
// is fetched from there.
#include "server/image/link.h"

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "common/base/log.h"
#include "common/host/sha256.h"
#include "generated/server/internal_decode.h"
#include "server/image/session_images.h"
#include "server/manual/image_variables.h"
#include "server/manual/manual.h"

namespace fargpu::server {
namespace {

constexpr size_t kHashBytes = 32;

// Runs `call` in `context` on a helper thread, then sends outcome and logs; `fill(worker, outcome,
// results)` adds to that, `extra_bytes` at most.
template <typename Results, typename Call, typename Fill>
void answer_off_thread(Worker& worker, const Request& request, uint16_t context, size_t extra_bytes,
                       Call&& call, Fill&& fill) {
  const LaterReply later(worker, request);
  const auto outcome = std::make_shared<LinkOutcome>();
  worker.parts().completion.compile(
      context, Completion::kNoDevice,
      [outcome, call = std::forward<Call>(call)] {
        *outcome = call();
        return outcome->result;
      },
      [later, outcome, extra_bytes, fill = std::forward<Fill>(fill)](CUresult result) {
        outcome->result = result;  // no call was made when the context had gone
        rpc::Responder::Frame frame(later.worker().responder(), later.header(),
                                    schema::fixed_bytes<Results>() + extra_bytes +
                                        schema::padded(outcome->info.size() + 1) +
                                        schema::padded(outcome->errors.size() + 1));
        auto results = frame.init<Results>();
        fill(later.worker(), *outcome, results);
        results.setOutcome(outcome->result);
        results.setInfoLog(outcome->info.c_str());
        results.setErrorLog(outcome->errors.c_str());
        (void)frame.send(CUDA_SUCCESS);
      });
}

CUresult enter(const LaterReply& later, uint64_t id, const std::shared_ptr<Link>& link) {
  SessionParts& parts = later.worker().parts();
  const CUresult result = later.add(rpc::HandleKind::kLinkState, id, link.get());
  if (result == CUDA_ERROR_CONTEXT_IS_DESTROYED) link->context_has_gone();
  if (result != CUDA_SUCCESS) return result;
  if (parts.kept_objects.count(rpc::HandleKind::kLinkState) == Link::kMaxLinks) {
    parts.end_object(id);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  parts.kept_objects.keep(UntilEnded{id}, link);
  return CUDA_SUCCESS;
}

// A call that is under way keeps its link until it is done. Null: the client named none.
std::shared_ptr<Link> link_of(CUlinkState state) {
  if (state == nullptr) return nullptr;
  return static_cast<Link*>(static_cast<void*>(state))->shared_from_this();
}

// The linked image becomes one of the session.
Sha256Digest keep(Worker& worker, LinkOutcome& outcome) {
  const Sha256Digest hash = sha256(outcome.image);
  const Status kept = worker.parts().images.put_linked(hash, outcome.image);
  if (!kept.ok()) {
    log::warn("linked image is not kept: {}", kept.message());
    outcome.result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  return hash;
}

}  // namespace

Status manual_fgLinkCreate(Worker& worker, const Request& request) {
  return decode_fgLinkCreate(worker, request, [&](const auto& given) -> Status {
    JitOptions options;
    if (!options.read(given.options, given.values)) {
      return malformed("fgLinkCreate", "too many JIT options");
    }
    FARGPU_NEEDS_DRIVER(cuLinkCreate_v2);
    FARGPU_NEEDS_DRIVER(cuLinkAddData_v2);
    FARGPU_NEEDS_DRIVER(cuLinkComplete);
    FARGPU_NEEDS_DRIVER(cuLinkDestroy);
    const auto link = std::make_shared<Link>(
        worker.driver(), request.header.context, std::move(options),
        std::min(given.infoLogBytes, kMaxLogBytes), std::min(given.errorLogBytes, kMaxLogBytes));
    const LaterReply later(worker, request);
    worker.parts().completion.off_thread(
        request.header.context, [link] { return link->create(); },
        [later, link, id = given.state_id](CUresult result) {
          later.send(result == CUDA_SUCCESS ? enter(later, id, link) : result);
        });
    return Status();
  });
}

Status manual_fgLinkAdd(Worker& worker, const Request& request) {
  return decode_fgLinkAdd(worker, request, [&](const auto& given) -> Status {
    JitOptions options;
    if (!options.read(given.options, given.values)) {
      return malformed("fgLinkAdd", "too many JIT options");
    }
    const int type = given.type;
    if (type < CU_JIT_INPUT_CUBIN || type >= CU_JIT_NUM_INPUT_TYPES)
      return answer(worker, request, CUDA_ERROR_INVALID_VALUE);
    const std::shared_ptr<Link> link = link_of(given.state);
    if (link == nullptr) return answer(worker, request, CUDA_ERROR_INVALID_HANDLE);
    Result<Image> found = worker.parts().images.find(std::as_bytes(given.hash));
    if (!found.ok()) return answer(worker, request, CUDA_ERROR_NOT_FOUND);
    if (type == CU_JIT_INPUT_PTX && !may_compile(worker, found->size()))
      return answer(worker, request, CUDA_ERROR_OUT_OF_MEMORY);
    answer_off_thread<schema::FgLinkAddResults>(
        worker, request, link->context(), 0,
        [link, image = std::make_shared<const Image>(std::move(*found)),
         type = static_cast<CUjitInputType>(type), name = std::string(given.name),
         options = std::move(options)] { return link->add(type, *image, name, options); },
        [](Worker&, const LinkOutcome& outcome, auto&) {
          if (outcome.result != CUDA_SUCCESS)
            log::info("an image does not link: {}",
                      outcome.errors.empty() ? "without a log" : outcome.errors);
        });
    return Status();
  });
}

Status manual_fgLinkComplete(Worker& worker, const Request& request) {
  return decode_fgLinkComplete(worker, request, [&](const auto& given) -> Status {
    const std::shared_ptr<Link> link = link_of(given.state);
    if (link == nullptr) return answer(worker, request, CUDA_ERROR_INVALID_HANDLE);
    answer_off_thread<schema::FgLinkCompleteResults>(
        worker, request, link->context(), schema::padded(kHashBytes),
        [link] { return link->complete(); },
        [](Worker& worker, LinkOutcome& outcome, auto& results) {
          if (outcome.result != CUDA_SUCCESS) {
            log::info("images do not link: {}",
                      outcome.errors.empty() ? "without a log" : outcome.errors);
            results.setImageHash(as_data(Sha256Digest{}.data(), kHashBytes));
            return;
          }
          const Sha256Digest hash = keep(worker, outcome);
          results.setImageBytes(outcome.image.size());
          results.setImageHash(as_data(hash.data(), hash.size()));
        });
    return Status();
  });
}

Status manual_fgLinkDestroy(Worker& worker, const Request& request) {
  return decode_fgLinkDestroy(worker, request, [&](const auto& given) -> Status {
    worker.remove(given.state_id);
    return answer(worker, request, CUDA_SUCCESS);
  });
}

Status manual_fgImageGet(Worker& worker, const Request& request) {
  return decode_fgImageGet(worker, request, [&](const auto& given) -> Status {
    const uint64_t offset = given.offset;
    const uint64_t bytes = given.pieceBytes;
    if (bytes > worker.parts().max_bulk_bytes) {
      return malformed("fgImageGet", "more bytes are asked for than one frame may bring");
    }
    const Result<Image> image = worker.parts().images.find_own(std::as_bytes(given.hash));
    if (!image.ok()) return answer(worker, request, CUDA_ERROR_NOT_FOUND);
    if (offset > image->size() || bytes > image->size() - offset) {
      return answer(worker, request, CUDA_ERROR_INVALID_VALUE);
    }
    const std::span<const std::byte> piece(static_cast<const std::byte*>(image->data()) + offset,
                                           bytes);
    rpc::Responder::Frame frame(worker.responder(), request.header, 0);
    return frame.send(CUDA_SUCCESS, std::span<const std::span<const std::byte>>(&piece, 1));
  });
}

}  // namespace fargpu::server
