#include "client/image/twins.h"

#include "client/object/context.h"
#include "client/process/process.h"
#include "common/base/log.h"

namespace fargpu::client {
namespace {

// Of any session.
template <typename Record>
Record* record_of(Session& session, rpc::HandleKind kind, uint64_t id) {
  return static_cast<Record*>(session.handles.find(kind, id));
}

uint64_t library_twin(Session& session, uint64_t id) {
  if (rpc::handle_session(id) == session.number) return id;
  const auto* library = record_of<ImageRecord>(session, rpc::HandleKind::kLibrary, id);
  if (library == nullptr) return 0;
  const auto found = library->twins.find(session.number);
  return found == library->twins.end() ? 0 : found->second;
}

}  // namespace

void load_twins(Session& home, const Image& image, const JitOptions& jit, CUlibrary library) {
  if (Process::get().session(1) == nullptr) return;
  auto* record =
      record_of<ImageRecord>(home, rpc::HandleKind::kLibrary, reinterpret_cast<uint64_t>(library));
  if (record == nullptr) return;
  std::map<unsigned, uint64_t> all{{home.number, record->id}};
  const ContextScope none(nullptr);  // the current one is the home's
  Process::get().for_each_session([&](Session& session) {
    if (&session == &home || session.lost.load()) return;
    CUlibrary twin = nullptr;
    const CUresult result = load_library_image(session, image, jit, &twin);
    if (result == CUDA_SUCCESS) {
      all.emplace(session.number, reinterpret_cast<uint64_t>(twin));
    } else {
      log::warn("server {} cannot load a library that {} has loaded: error {}",
                session.settings.server, home.settings.server, static_cast<int>(result));
    }
  });
  for (const auto& [number, id] : all) {
    auto* const each = record_of<ImageRecord>(home, rpc::HandleKind::kLibrary, id);
    if (each == nullptr) continue;
    each->twins = all;
    each->twins.erase(number);
  }
}

CUlibrary surviving(CUlibrary library) {
  const Process& process = Process::get();
  if (process.session(1) == nullptr) [[likely]]
    return library;
  const auto id = reinterpret_cast<uint64_t>(library);
  const auto* const record =
      static_cast<ImageRecord*>(process.tables()->handles.find(rpc::HandleKind::kLibrary, id));
  if (record == nullptr || !record->session->lost.load()) return library;
  if (const Context* const context = current_context();
      context != nullptr && !context->session->lost.load())
    return in_session(*context->session, library);
  for (const auto& [number, twin] : record->twins) {
    if (!process.session(number)->lost.load()) return reinterpret_cast<CUlibrary>(twin);
  }
  return library;
}

uint64_t twin_of(Session& session, uint64_t id) {
  uint64_t twin = 0;
  if (rpc::handle_kind(id) == rpc::HandleKind::kLibrary) {
    twin = library_twin(session, id);
  } else if (rpc::handle_kind(id) == rpc::HandleKind::kKernel) {
    const auto* kernel = record_of<Function>(session, rpc::HandleKind::kKernel, id);
    if (kernel == nullptr) return id;
    const uint64_t owner = library_twin(session, kernel->parent);
    auto* library = static_cast<ImageRecord*>(session.find(rpc::HandleKind::kLibrary, owner));
    if (library == nullptr ||
        function_by_name(session, *library, kernel->name.c_str(), &twin) != CUDA_SUCCESS)
      return id;
  }
  return twin == 0 ? id : twin;
}

}  // namespace fargpu::client
