// Linking: the client names the inputs by hash, the result goes into the image cache and is fetched
// from there.
#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/log.h"
#include "common/base/sha256.h"
#include "generated/schema/internal.capnp.h"
#include "server/image_cache.h"
#include "server/manual/jit_options.h"
#include "server/manual/manual.h"

namespace fargpu::server {
namespace {

constexpr size_t kHashBytes = 32;
constexpr unsigned kMaxInputs = 1024;

struct Input {
  CUjitInputType type;
  std::string name;
  Image image;
};

// `count` texts, each with its NUL, and nothing behind them; nullopt when that is not so.
std::optional<std::vector<std::string>> split_names(capnp::Data::Reader data, unsigned count) {
  std::vector<std::string> names;
  const char* at = reinterpret_cast<const char*>(data.begin());
  size_t left = data.size();
  while (names.size() < count) {
    const size_t length = strnlen(at, left);
    if (length == left) return std::nullopt;
    names.emplace_back(at, length);
    at += length + 1;
    left -= length + 1;
  }
  if (left != 0) return std::nullopt;
  return names;
}

// A link under way. The driver compiles, which takes its time, so it does that aside. Stays where it is: the driver has pointers into it.
struct Link {
  std::vector<Input> inputs;
  JitOptions options;
  std::vector<char> info, errors;
  std::vector<std::byte> image;
  Sha256Digest hash{};

  // On a helper thread. The driver's memory is copied before the link state is destroyed.
  CUresult run(const DriverTable& driver) {
    CUlinkState state = nullptr;
    CUresult result =
        driver.cuLinkCreate_v2(options.count(), options.ids(), options.values(), &state);
    if (result != CUDA_SUCCESS) return result;
    for (Input& input : inputs) {
      // PTX counts its terminator for some drivers and not for others; the image has one behind its
      // bytes in any case.
      result = driver.cuLinkAddData_v2(state, input.type, const_cast<void*>(input.image.data()),
                                       input.image.size(), input.name.c_str(), 0, nullptr, nullptr);
      if (result != CUDA_SUCCESS) break;
    }
    void* made = nullptr;
    size_t bytes = 0;
    if (result == CUDA_SUCCESS) result = driver.cuLinkComplete(state, &made, &bytes);
    if (result == CUDA_SUCCESS) {
      const auto* begin = static_cast<const std::byte*>(made);
      image.assign(begin, begin + bytes);
      hash = sha256(image);
    }
    driver.cuLinkDestroy(state);
    return result;
  }
};

// On the executor's thread again: the image is kept, and its hash goes to the client.
void linked(const LaterReply& later, const Link& job, CUresult outcome) {
  Worker& worker = later.worker();
  if (outcome == CUDA_SUCCESS) {
    const Status kept = worker.services().put_image(std::as_bytes(std::span(job.hash)),
                                                    job.image.size(), 0, job.image);
    if (!kept.ok()) {
      log::warn("linked image is not kept: {}", kept.message());
      later.send(CUDA_ERROR_OUT_OF_MEMORY);
      return;
    }
  } else {
    log::info("images do not link: {}",
              job.errors.empty() ? "the client asked for no log" : text_of(job.errors));
  }
  const std::string info_text = text_of(job.info);
  const std::string error_text = text_of(job.errors);
  rpc::Responder::Frame frame(
      worker.responder(), later.header(),
      schema::fixed_bytes<schema::FgLinkResults>() + schema::padded(job.hash.size()) +
          schema::padded(info_text.size() + 1) + schema::padded(error_text.size() + 1));
  auto results = frame.init<schema::FgLinkResults>();
  results.setOutcome(outcome);
  results.setImageBytes(job.image.size());
  results.setImageHash(as_data(job.hash.data(), job.hash.size()));
  results.setInfoLog(info_text.c_str());
  results.setErrorLog(error_text.c_str());
  (void)frame.send(CUDA_SUCCESS);
}

}  // namespace

Status manual_fgLink(Worker& worker, const Request& request) {
  return decoded("fgLink", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const auto params = reader.getRoot<schema::FgLinkParams>();
    const unsigned count = params.getInputCount();
    const auto types = params.getTypes();
    const auto hashes = params.getHashes();
    if (count > kMaxInputs || types.size() != count * sizeof(int) ||
        hashes.size() != count * kHashBytes) {
      return malformed("fgLink", "types or hashes have the wrong size");
    }
    const auto names = split_names(params.getNames(), count);
    if (!names) return malformed("fgLink", "the names do not belong to the inputs");
    JitOptions options;
    if (!options.read(params.getNumOptions(), params.getOptions(), params.getValues())) {
      return malformed("fgLink", "the JIT options have the wrong size");
    }
    FARGPU_NEEDS_DRIVER(cuLinkCreate_v2);
    FARGPU_NEEDS_DRIVER(cuLinkAddData_v2);
    FARGPU_NEEDS_DRIVER(cuLinkComplete);
    FARGPU_NEEDS_DRIVER(cuLinkDestroy);
    FARGPU_ANSWER_UNLESS_SUCCESS(worker.enter_context(request.header.context));
    std::vector<Input> inputs;
    for (unsigned i = 0; i < count; ++i) {
      int type = 0;
      std::memcpy(&type, types.begin() + i * sizeof(type), sizeof(type));
      Result<Image> image =
          worker.services().find_image(as_bytes(hashes).subspan(i * kHashBytes, kHashBytes));
      if (!image.ok()) return answer(worker, request, CUDA_ERROR_NOT_FOUND);
      inputs.push_back({static_cast<CUjitInputType>(type), (*names)[i], std::move(*image)});
    }
    auto job = std::make_shared<Link>();
    job->inputs = std::move(inputs);
    job->options = std::move(options);
    job->info.resize(std::min(params.getInfoLogBytes(), kMaxLogBytes));
    job->errors.resize(std::min(params.getErrorLogBytes(), kMaxLogBytes));
    job->options.add_log(CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, job->info);
    job->options.add_log(CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, job->errors);
    const LaterReply later(worker, request);
    worker.services().completion().aside(
        request.header.context, [&driver = worker.driver(), job] { return job->run(driver); },
        [later, job](CUresult outcome) { linked(later, *job, outcome); });
    return Status();
  });
}

Status manual_fgImageGet(Worker& worker, const Request& request) {
  return decoded("fgImageGet", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const auto params = reader.getRoot<schema::FgImageGetParams>();
    const uint64_t offset = params.getOffset();
    const uint64_t bytes = params.getPieceBytes();
    if (params.getHash().size() != kHashBytes || bytes > worker.services().max_bulk_bytes()) {
      return malformed("fgImageGet", "hash or piece has the wrong size");
    }
    const Result<Image> image = worker.services().find_image(as_bytes(params.getHash()));
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
