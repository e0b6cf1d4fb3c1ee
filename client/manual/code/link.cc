// Linking at run time. The link state is the server's; inputs travel as images do, by their hash
// first, and the result is fetched. Each call waits for the driver's answer, so errors and logs
// come where CUDA gives them.
#include <algorithm>
#include <mutex>
#include <span>
#include <vector>

#include "client/image/linked.h"
#include "client/image/load.h"
#include "client/image/own_layouts.h"
#include "client/manual/common.h"
#include "common/base/log.h"

namespace fargpu::client {
namespace {

CUresult find(const CallTarget& target, CUlinkState state, LinkRecord** record) {
  Object* object =
      target.session.find(rpc::HandleKind::kLinkState, reinterpret_cast<uint64_t>(state));
  *record = static_cast<LinkRecord*>(object);
  return object == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

// The driver refuses log buffers of one input with the same error: logs are the link's.
CUresult read_input_options(unsigned count, const CUjit_option* options, void** values,
                            JitOptions* jit) {
  for (unsigned i = 0; i < count && options != nullptr; ++i) {
    if (options[i] < CU_JIT_INFO_LOG_BUFFER || options[i] > CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
      continue;
    log::warn("cuLinkAdd takes no log buffer (JIT option {}); give it to cuLinkCreate",
              static_cast<int>(options[i]));
    return CUDA_ERROR_INVALID_VALUE;
  }
  return read_jit_options(count, options, values, jit);
}

CUresult add(CUlinkState state, CUjitInputType type, std::span<const std::byte> bytes,
             const char* name, const JitOptions& input) {
  const CallTarget target = CallTarget::of(state);
  LinkRecord* record = nullptr;
  if (const CUresult result = find(target, state, &record); result != CUDA_SUCCESS) return result;
  if (type < CU_JIT_INPUT_CUBIN || type >= CU_JIT_NUM_INPUT_TYPES) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(record->mutex);
  const JitOptions& jit = record->jit;
  const JitLogs logs(jit);
  int outcome = CUDA_SUCCESS;
  const CUresult result = load_by_hash(target.session, {&bytes, 1}, [&](const unsigned char* hash) {
    return call_fgLinkAdd(target.session, target.context, state, type, hash,
                          name == nullptr ? "" : name, static_cast<unsigned>(input.options.size()),
                          input.options.data(), input.values.data(), jit.info_log_bytes,
                          jit.error_log_bytes, &outcome, logs.info(), logs.error());
  });
  if (result != CUDA_SUCCESS) return result;
  logs.report_sizes();
  if (outcome == CUDA_SUCCESS) {
    if (type == CU_JIT_INPUT_PTX || type == CU_JIT_INPUT_CUBIN || type == CU_JIT_INPUT_FATBINARY)
      record->layouts->add({&bytes, 1});
    else
      record->layouts->add_unknown();
  }
  return static_cast<CUresult>(outcome);
}

// The linked image, piece by piece.
CUresult fetch(const CallTarget& target, const unsigned char* hash, uint64_t bytes,
               std::vector<std::byte>* image) {
  if (bytes == 0 || bytes > kMaxImageBytes) return CUDA_ERROR_INVALID_IMAGE;
  image->resize(bytes);
  const uint64_t piece = target.session.piece_bytes();
  for (uint64_t offset = 0; offset < bytes; offset += piece) {
    const CUresult result =
        wire::fgImageGet(target.session, target.context, hash, offset, image->data() + offset,
                         std::min<uint64_t>(piece, bytes - offset));
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult manual_cuLinkCreate_v2(unsigned int numOptions, CUjit_option* options, void** optionValues,
                                CUlinkState* stateOut) {
  if (stateOut == nullptr) return CUDA_ERROR_INVALID_VALUE;
  JitOptions jit;
  CUresult result = read_jit_options(numOptions, options, optionValues, &jit);
  if (result != CUDA_SUCCESS) return result;
  const CallTarget target = CallTarget::of_current();
  CUlinkState state = nullptr;
  result = call_fgLinkCreate(target.session, target.context,
                             static_cast<unsigned>(jit.options.size()), jit.options.data(),
                             jit.values.data(), jit.info_log_bytes, jit.error_log_bytes, &state);
  if (result != CUDA_SUCCESS) return result;
  LinkRecord* record = nullptr;
  if (result = find(target, state, &record); result != CUDA_SUCCESS) return result;
  const JitLogs logs(jit);
  logs.prepare();
  logs.report_sizes();
  record->jit = std::move(jit);  // nobody else knows the handle yet
  record->layouts = std::make_shared<OwnLayouts>();
  *stateOut = state;
  return CUDA_SUCCESS;
}

CUresult manual_cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void* data, size_t size,
                                 const char* name, unsigned int numOptions, CUjit_option* options,
                                 void** optionValues) {
  if (data == nullptr || size == 0 || size > kMaxImageBytes) return CUDA_ERROR_INVALID_VALUE;
  JitOptions input;
  const CUresult result = read_input_options(numOptions, options, optionValues, &input);
  if (result != CUDA_SUCCESS) return result;
  return add(state, type, {static_cast<const std::byte*>(data), size}, name, input);
}

CUresult manual_cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char* path,
                                 unsigned int numOptions, CUjit_option* options,
                                 void** optionValues) {
  JitOptions input;
  CUresult result = read_input_options(numOptions, options, optionValues, &input);
  if (result != CUDA_SUCCESS) return result;
  std::vector<std::byte> bytes;
  if (result = read_image_file(path, &bytes); result != CUDA_SUCCESS) return result;
  if (bytes.empty()) return CUDA_ERROR_INVALID_IMAGE;
  return add(state, type, bytes, path, input);
}

CUresult manual_cuLinkComplete(CUlinkState state, void** cubinOut, size_t* sizeOut) {
  if (cubinOut == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CallTarget target = CallTarget::of(state);
  LinkRecord* record = nullptr;
  if (const CUresult result = find(target, state, &record); result != CUDA_SUCCESS) return result;
  const std::lock_guard lock(record->mutex);
  const JitOptions& jit = record->jit;
  const JitLogs logs(jit);
  int outcome = CUDA_SUCCESS;
  unsigned long long bytes = 0;
  Sha256Digest hash{};
  CUresult result = call_fgLinkComplete(target.session, target.context, state, jit.info_log_bytes,
                                        jit.error_log_bytes, &outcome, &bytes, hash.data(),
                                        logs.info(), logs.error());
  if (result != CUDA_SUCCESS) return result;
  logs.report_sizes();
  if (outcome != CUDA_SUCCESS) return static_cast<CUresult>(outcome);
  if (result = fetch(target, hash.data(), bytes, &record->image); result != CUDA_SUCCESS)
    return result;
  const std::span<const std::byte> image(record->image);
  if (const Status status = record->layouts->add_linked({&image, 1}); !status.ok()) {
    record->image.clear();
    return from_status(status);
  }
  *cubinOut = record->image.data();
  if (sizeOut != nullptr) *sizeOut = record->image.size();
  return CUDA_SUCCESS;
}

CUresult manual_cuLinkDestroy(CUlinkState state) {
  const CallTarget target = CallTarget::of(state);
  return call_fgLinkDestroy(target.session, target.context, state);
}

}  // namespace fargpu::client
