// Linking: the client names the inputs by hash, the result goes into the image cache and is fetched
// from there.
#include <algorithm>
#include <cstring>
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

// The linked image, or the driver's error. The driver's memory is copied before the link state is
// destroyed.
CUresult link(const DriverTable& driver, JitOptions& options, std::vector<Input>& inputs,
              std::vector<std::byte>* linked) {
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
  void* image = nullptr;
  size_t bytes = 0;
  if (result == CUDA_SUCCESS) result = driver.cuLinkComplete(state, &image, &bytes);
  if (result == CUDA_SUCCESS) {
    const auto* begin = static_cast<const std::byte*>(image);
    linked->assign(begin, begin + bytes);
  }
  driver.cuLinkDestroy(state);
  return result;
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
    std::vector<char> info(std::min(params.getInfoLogBytes(), kMaxLogBytes));
    std::vector<char> errors(std::min(params.getErrorLogBytes(), kMaxLogBytes));
    options.add_log(CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, info);
    options.add_log(CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, errors);
    std::vector<std::byte> linked;
    const CUresult outcome = link(worker.driver(), options, inputs, &linked);
    Sha256Digest hash{};
    if (outcome == CUDA_SUCCESS) {
      hash = sha256(linked);
      const Status kept =
          worker.services().put_image(std::as_bytes(std::span(hash)), linked.size(), 0, linked);
      if (!kept.ok()) {
        log::warn("linked image is not kept: {}", kept.message());
        return answer(worker, request, CUDA_ERROR_OUT_OF_MEMORY);
      }
    } else {
      log::info("images do not link: {}",
                errors.empty() ? "the client asked for no log" : text_of(errors));
    }
    const std::string info_text = text_of(info);
    const std::string error_text = text_of(errors);
    rpc::Responder::Frame frame(
        worker.responder(), request.header,
        schema::fixed_bytes<schema::FgLinkResults>() + schema::padded(hash.size()) +
            schema::padded(info_text.size() + 1) + schema::padded(error_text.size() + 1));
    auto results = frame.init<schema::FgLinkResults>();
    results.setOutcome(outcome);
    results.setImageBytes(linked.size());
    results.setImageHash(as_data(hash.data(), hash.size()));
    results.setInfoLog(info_text.c_str());
    results.setErrorLog(error_text.c_str());
    return frame.send(CUDA_SUCCESS);
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
