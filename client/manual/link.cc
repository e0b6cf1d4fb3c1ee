// Linking at run time: inputs are collected here, linked on the server by one call, and the result
// is fetched.
//
// What is wrong with an input is therefore said by cuLinkComplete. A local driver says it earlier:
// CUDA's documentation has INVALID_PTX, INVALID_IMAGE and NO_BINARY_FOR_GPU among the results of
// cuLinkAddData, which compiles PTX at once. The error is the same one, and the log buffers are
// filled with it.
#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "client/image/linked.h"
#include "client/image/load.h"
#include "client/manual/common.h"
#include "common/base/log.h"

namespace fargpu::client {
namespace {

constexpr size_t kMaxInputs = 1024;

CUresult find(CUlinkState state, LinkRecord** record) {
  Object* object = current_session().handles.find(rpc::HandleKind::kLinkState,
                                                  reinterpret_cast<uint64_t>(state));
  *record = static_cast<LinkRecord*>(object);
  return object == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

// Options of one input that change its speed or what a debugger sees, not what it computes: accepted,
// and left to the options of the whole link.
bool is_harmless(CUjit_option option) {
  switch (option) {
    case CU_JIT_MAX_REGISTERS:
    case CU_JIT_OPTIMIZATION_LEVEL:
    case CU_JIT_GENERATE_DEBUG_INFO:
    case CU_JIT_LOG_VERBOSE:
    case CU_JIT_GENERATE_LINE_INFO:
    case CU_JIT_CACHE_MODE:
    case CU_JIT_FALLBACK_STRATEGY:
    case CU_JIT_TARGET_FROM_CUCONTEXT:
      return true;
    default:
      return false;
  }
}

CUresult check_input_options(unsigned count, const CUjit_option* options, void* const* values) {
  if (count != 0 && (options == nullptr || values == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; ++i) {
    if (is_harmless(options[i])) continue;
    log::warn("cuLinkAdd: option {} is not supported for one input; give it to cuLinkCreate",
              static_cast<int>(options[i]));
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  return CUDA_SUCCESS;
}

CUresult add(CUlinkState state, CUjitInputType type, std::vector<std::byte> bytes,
             const char* name) {
  LinkRecord* record = nullptr;
  if (const CUresult result = find(state, &record); result != CUDA_SUCCESS) return result;
  if (type < CU_JIT_INPUT_CUBIN || type >= CU_JIT_NUM_INPUT_TYPES) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(record->mutex);
  if (record->inputs.size() == kMaxInputs) return CUDA_ERROR_OUT_OF_MEMORY;
  LinkInput input;
  input.type = type;
  input.name = name == nullptr ? "" : name;
  input.hash = sha256(bytes);
  input.bytes = std::move(bytes);
  record->inputs.push_back(std::move(input));
  return CUDA_SUCCESS;
}

// The linked image, piece by piece.
CUresult fetch(const Here& here, const unsigned char* hash, uint64_t bytes,
               std::vector<std::byte>* image) {
  if (bytes == 0 || bytes > kMaxImageBytes) return CUDA_ERROR_INVALID_IMAGE;
  image->resize(bytes);
  const uint64_t piece = here.session.piece_bytes();
  for (uint64_t offset = 0; offset < bytes; offset += piece) {
    const CUresult result =
        call_fgImageGet(here.session, here.context, hash, offset, image->data() + offset,
                        std::min<uint64_t>(piece, bytes - offset));
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

struct Outcome {
  int result = CUDA_SUCCESS;
  unsigned long long image_bytes = 0;
  unsigned char image_hash[32] = {};
};

CUresult link(const Here& here, const LinkRecord& record, const JitLogs& logs, Outcome* outcome) {
  std::vector<int> types;
  std::vector<unsigned char> hashes;
  std::string names;
  for (const LinkInput& input : record.inputs) {
    types.push_back(input.type);
    hashes.insert(hashes.end(), input.hash.begin(), input.hash.end());
    names.append(input.name.c_str(), input.name.size() + 1);
  }
  const JitOptions& jit = record.jit;
  return call_fgLink(here.session, here.context, static_cast<unsigned>(types.size()), types.data(),
                     hashes.data(), names.size(), names.data(),
                     static_cast<unsigned>(jit.options.size()), jit.options.data(),
                     jit.values.data(), jit.info_log_bytes, jit.error_log_bytes, &outcome->result,
                     &outcome->image_bytes, outcome->image_hash, logs.info(), logs.error());
}

}  // namespace

CUresult manual_cuLinkCreate_v2(unsigned int numOptions, CUjit_option* options, void** optionValues,
                                CUlinkState* stateOut) {
  if (stateOut == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto record = std::make_unique<LinkRecord>();
  const CUresult result = read_jit_options(numOptions, options, optionValues, &record->jit);
  if (result != CUDA_SUCCESS) return result;
  HandleTable& handles = current_session().handles;
  record->id = handles.reserve(rpc::HandleKind::kLinkState);
  const Object* object = handles.publish(std::move(record));
  if (object == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *stateOut = reinterpret_cast<CUlinkState>(object->id);
  return CUDA_SUCCESS;
}

CUresult manual_cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void* data, size_t size,
                                 const char* name, unsigned int numOptions, CUjit_option* options,
                                 void** optionValues) {
  if (data == nullptr || size == 0 || size > kMaxImageBytes) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = check_input_options(numOptions, options, optionValues);
  if (result != CUDA_SUCCESS) return result;
  const auto* begin = static_cast<const std::byte*>(data);
  return add(state, type, std::vector<std::byte>(begin, begin + size), name);
}

CUresult manual_cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char* path,
                                 unsigned int numOptions, CUjit_option* options,
                                 void** optionValues) {
  CUresult result = check_input_options(numOptions, options, optionValues);
  if (result != CUDA_SUCCESS) return result;
  std::vector<std::byte> bytes;
  if (result = read_image_file(path, &bytes); result != CUDA_SUCCESS) return result;
  if (bytes.empty()) return CUDA_ERROR_INVALID_IMAGE;
  return add(state, type, std::move(bytes), path);
}

CUresult manual_cuLinkComplete(CUlinkState state, void** cubinOut, size_t* sizeOut) {
  if (cubinOut == nullptr) return CUDA_ERROR_INVALID_VALUE;
  LinkRecord* record = nullptr;
  if (const CUresult result = find(state, &record); result != CUDA_SUCCESS) return result;
  const Here here;
  const std::lock_guard lock(record->mutex);
  const JitLogs logs(record->jit);
  logs.prepare();
  Outcome outcome;
  CUresult result = link(here, *record, logs, &outcome);
  if (result == CUDA_ERROR_NOT_FOUND) {
    for (const LinkInput& input : record->inputs) {
      result = send_image(here.session, input.hash, input.bytes);
      if (result != CUDA_SUCCESS) return result;
    }
    result = link(here, *record, logs, &outcome);
  }
  logs.report_sizes();
  if (result != CUDA_SUCCESS) return result;
  if (outcome.result != CUDA_SUCCESS) return static_cast<CUresult>(outcome.result);
  result = fetch(here, outcome.image_hash, outcome.image_bytes, &record->image);
  if (result != CUDA_SUCCESS) return result;
  *cubinOut = record->image.data();
  if (sizeOut != nullptr) *sizeOut = record->image.size();
  return CUDA_SUCCESS;
}

CUresult manual_cuLinkDestroy(CUlinkState state) {
  LinkRecord* record = nullptr;
  if (const CUresult result = find(state, &record); result != CUDA_SUCCESS) return result;
  {
    // The record itself stays readable for a while; its memory goes now.
    const std::lock_guard lock(record->mutex);
    record->image = {};
    record->inputs.clear();
  }
  current_session().handles.erase(reinterpret_cast<uint64_t>(state));
  return CUDA_SUCCESS;
}

}  // namespace fargpu::client
