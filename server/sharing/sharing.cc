#include "server/sharing/sharing.h"

#include <algorithm>
#include <cstring>

#include "common/base/id_text.h"
#include "common/base/log.h"

namespace fargpu::server {

Sharing::Sharing(const Core& core, MemoryAccount& memory, const ShareSetup& setup)
    : core_(core), memory_(memory), links_(setup.links), self_(setup.self) {
  memory_.when_shared_ended(
      [this](const PhysicalMemory::Refund& ended) { return memory_ended(ended); });
  memory_.when_freed([this](CUdeviceptr pointer) {
    if (exported_.empty()) return;
    end_export({SharedKind::kIpcMemory, pointer});
    end_export({SharedKind::kPoolMemory, pointer});
  });
  if (links_ == nullptr) return;
  links_->open(
      core_.posted,
      [this](PeerLinks::LinkId from, const PeerQuestion& question, PeerAnswer* answer) {
        Fd descriptor = give(question, answer);
        if (answer->result == CUDA_SUCCESS) {
          auto& given_to = exports_.at(question.secret).given_to;
          if (std::find(given_to.begin(), given_to.end(), from) == given_to.end())
            given_to.push_back(from);
        }
        return descriptor;
      },
      [this](uint64_t session) {
        for (const auto& [secret, import] : imports_)
          if (import.session == session) take_over(import);
        for (const auto& [secret, opened] : opened_)
          if (opened.session == session) memory_.take_over_opened(opened.number);
      },
      [this](const ShareSecret& secret) {
        if (const auto import = imports_.find(secret); import != imports_.end())
          take_over(import->second);
        if (const auto opened = opened_.find(secret); opened != opened_.end())
          memory_.take_over_opened(opened->second.number);
      },
      [this](PeerLinks::LinkId link, const ShareSecret* secret) { heard(link, secret); });
}

Sharing::~Sharing() {
  if (links_ != nullptr) links_->close();
  memory_.when_shared_ended(nullptr);
  memory_.when_freed(nullptr);
}

CUresult Sharing::add_export(const Object& object, const Export& given,
                             ExportHandle* export_handle) {
  if (const auto known = exported_.find(object); known != exported_.end()) {
    *export_handle = exports_.at(known->second).export_handle;
    return CUDA_SUCCESS;
  }
  auto made = make_export_handle(object.first, self_);
  if (!made.ok()) {
    log::error("event=not-exported why=\"{}\"", made.status().message());
    return CUDA_ERROR_OPERATING_SYSTEM;
  }
  *export_handle = *made;
  Export& entered = exports_[export_handle->secret] = given;
  entered.export_handle = *export_handle;
  entered.object = object;
  exported_[object] = export_handle->secret;
  return CUDA_SUCCESS;
}

std::vector<PeerLinks::LinkId> Sharing::end_export(const Object& object, ShareSecret* secret) {
  const auto known = exported_.extract(object);
  if (known.empty()) return {};
  if (secret != nullptr) *secret = known.mapped();
  auto ended = exports_.extract(known.mapped());
  std::vector<PeerLinks::LinkId> told = std::move(ended.mapped().given_to);
  std::erase_if(
      told, [&](PeerLinks::LinkId link) { return !links_->say_farewell(link, known.mapped()); });
  return told;
}

CUresult Sharing::export_memory(uint64_t handle, ExportHandle* export_handle) {
  const uint64_t memory = memory_.physical().share(handle);
  if (memory == 0) return CUDA_ERROR_INVALID_VALUE;
  return add_export({SharedKind::kMemory, memory}, {}, export_handle);
}

CUresult Sharing::export_allocation(SharedKind kind, CUdeviceptr pointer,
                                    ExportHandle* export_handle) {
  Export given;
  CUdeviceptr base = 0;
  CUresult result = core_.driver.cuMemGetAddressRange_v2(&base, nullptr, pointer);
  if (result == CUDA_SUCCESS) result = buffer_id(base, &given.buffer_id);
  if (result != CUDA_SUCCESS) return result;
  const Object object{kind, base};
  const auto known = exported_.find(object);
  if (known != exported_.end() && exports_.at(known->second).buffer_id != given.buffer_id)
    end_export(object);
  given.context = core_.contexts.ref(core_.contexts.current());
  return add_export(object, given, export_handle);
}

CUresult Sharing::buffer_id(CUdeviceptr base, uint64_t* id) const {
  return core_.driver.cuPointerGetAttribute(id, CU_POINTER_ATTRIBUTE_BUFFER_ID, base);
}

CUresult Sharing::export_event(uint64_t id, ExportHandle* export_handle) {
  Export given;
  given.context = core_.contexts.ref(core_.handles.context_of(id));
  return add_export({SharedKind::kIpcEvent, id}, given, export_handle);
}

CUresult Sharing::export_pool(uint64_t id, ExportHandle* export_handle) {
  return add_export({SharedKind::kPool, id}, {}, export_handle);
}

CUresult Sharing::descriptor_of(const PhysicalMemory::Reach& reach, PeerAnswer* answer,
                                Fd* descriptor) {
  const DriverTable& driver = core_.driver;
  CUmemGenericAllocationHandle handle = reach.handle;
  if (reach.handle == 0) {
    const CUresult retained = driver.cuMemRetainAllocationHandle(
        &handle, reinterpret_cast<void*>(reach.address));  // NOLINT(performance-no-int-to-ptr)
    if (retained != CUDA_SUCCESS) return retained;
  }
  CUmemAllocationProp properties{};
  int exported = -1;
  CUresult result = driver.cuMemGetAllocationPropertiesFromHandle(&properties, handle);
  if (result == CUDA_SUCCESS) {
    result = driver.cuMemExportToShareableHandle(&exported, handle,
                                                 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  }
  if (reach.handle == 0) driver.cuMemRelease(handle);
  if (result != CUDA_SUCCESS) return result;
  descriptor->reset(exported);
  answer->device = properties.location.id;
  return CUDA_SUCCESS;
}

CUresult Sharing::give_memory(const Export& given, PeerAnswer* answer, Fd* descriptor) {
  const uint64_t memory = given.object.second;
  const auto reach = memory_.physical().reach(memory);
  if (!reach) return CUDA_ERROR_INVALID_VALUE;
  answer->bytes = memory_.physical().bytes(memory);
  return descriptor_of(*reach, answer, descriptor);
}

CUresult Sharing::give_pool(const Export& given, PeerAnswer* answer, Fd* descriptor) {
  const HandleTable::Object* const pool = core_.handles.find(given.object.second);
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  int exported = -1;
  const CUresult result = core_.driver.cuMemPoolExportToShareableHandle(
      &exported, static_cast<CUmemoryPool>(pool->handle), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
      0);
  if (result != CUDA_SUCCESS) return result;
  descriptor->reset(exported);
  answer->device = pool->device;
  return CUDA_SUCCESS;
}

CUresult Sharing::allocation_handle(const Export& given, PeerAnswer* answer) const {
  const DriverTable& driver = core_.driver;
  const CUdeviceptr base = given.object.second;
  uint64_t id = 0;
  CUresult result = buffer_id(base, &id);
  if (result == CUDA_SUCCESS && id != given.buffer_id) result = CUDA_ERROR_INVALID_VALUE;
  if (result != CUDA_SUCCESS) return result;
  if (given.object.first == SharedKind::kIpcMemory) {
    CUipcMemHandle handle{};
    result = driver.cuIpcGetMemHandle(&handle, base);
    std::memcpy(answer->handle.data(), &handle, sizeof handle);
    return result;
  }
  size_t bytes = 0;
  CUmemPoolPtrExportData data{};
  result = driver.cuMemGetAddressRange_v2(nullptr, &bytes, base);
  if (result == CUDA_SUCCESS) result = driver.cuMemPoolExportPointer(&data, base);
  answer->bytes = bytes;
  std::memcpy(answer->handle.data(), &data, sizeof data);
  return result;
}

CUresult Sharing::event_handle(const Export& given, PeerAnswer* answer) const {
  void* event = nullptr;
  CUipcEventHandle handle{};
  CUresult result = core_.handles.find(rpc::HandleKind::kEvent, given.object.second, &event);
  if (result == CUDA_SUCCESS)
    result = core_.driver.cuIpcGetEventHandle(&handle, static_cast<CUevent>(event));
  std::memcpy(answer->handle.data(), &handle, sizeof handle);
  return result;
}

CUresult Sharing::give_handle(const Export& given, PeerAnswer* answer) {
  static_assert(sizeof answer->handle == sizeof(CUipcMemHandle) &&
                sizeof answer->handle == sizeof(CUipcEventHandle) &&
                sizeof answer->handle == sizeof(CUmemPoolPtrExportData));
  const uint16_t current = core_.contexts.current();
  if (core_.contexts.enter(given.context) != CUDA_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = given.object.first == SharedKind::kIpcEvent
                              ? event_handle(given, answer)
                              : allocation_handle(given, answer);
  (void)core_.contexts.enter(current);
  return result;
}

Fd Sharing::give(const PeerQuestion& question, PeerAnswer* answer) {
  Fd descriptor;
  const auto found = exports_.find(question.secret);
  answer->result = CUDA_ERROR_INVALID_VALUE;
  if (found == exports_.end() || question.kind != found->second.export_handle.kind)
    return descriptor;
  const Export& given = found->second;
  if (question.kind == SharedKind::kMemory)
    answer->result = give_memory(given, answer, &descriptor);
  else if (question.kind == SharedKind::kPool)
    answer->result = give_pool(given, answer, &descriptor);
  else
    answer->result = give_handle(given, answer);
  return descriptor;
}

void Sharing::fetch(SharedKind kind, std::span<const std::byte> bytes,
                    const OnFetched& on_fetched) {
  ExportHandle export_handle;
  const CUresult read = read_export_handle(bytes, kind, self_, &export_handle);
  PeerAnswer answer;
  if (read == CUDA_ERROR_NOT_PERMITTED) note_refusal(export_handle);
  if (read != CUDA_SUCCESS) return on_fetched(read, export_handle, answer, Fd());
  const PeerQuestion question{export_handle.secret, export_handle.kind, {}};
  if (export_handle.session == self_.session) {
    Fd descriptor = give(question, &answer);
    return on_fetched(static_cast<CUresult>(answer.result), export_handle, answer,
                      std::move(descriptor));
  }
  if (links_ == nullptr) return on_fetched(CUDA_ERROR_INVALID_VALUE, export_handle, answer, Fd());
  links_->ask(export_handle.session, question,
              [export_handle, on_fetched](const PeerAnswer& given, Fd descriptor) {
                const auto result = static_cast<CUresult>(given.result);
                const bool needs_descriptor = export_handle.kind == SharedKind::kMemory ||
                                              export_handle.kind == SharedKind::kPool;
                const bool whole =
                    result != CUDA_SUCCESS || !needs_descriptor || descriptor.valid();
                on_fetched(whole ? result : CUDA_ERROR_OPERATING_SYSTEM, export_handle, given,
                           std::move(descriptor));
              });
}

void Sharing::imported_memory(const ExportHandle& export_handle, const PeerAnswer& answer,
                              uint64_t handle) {
  PhysicalMemory& physical = memory_.physical();
  if (export_handle.session == self_.session) {
    const auto own = exports_.find(export_handle.secret);
    if (own != exports_.end()) physical.imported_again(handle, own->second.object.second);
    return;
  }
  Import& import = imports_[export_handle.secret];
  if (import.memory != 0 && physical.imported_again(handle, import.memory)) return;
  const auto device = static_cast<size_t>(answer.device);
  import = {export_handle.session, physical.imported(handle, device), device, answer.bytes};
}

void Sharing::opened_memory(const ExportHandle& export_handle, CUdeviceptr pointer, size_t device,
                            uint64_t bytes, uint16_t context) {
  if (export_handle.session == self_.session) return;
  std::erase_if(opened_, [this](const auto& each) { return !memory_.is_open(each.second.number); });
  opened_[export_handle.secret] = {export_handle.session,
                                   memory_.opened(pointer, device, bytes, context)};
}

void Sharing::take_over(const Import& import) {
  memory_.take_over(import.memory, import.device, import.bytes);
}

bool Sharing::memory_ended(const PhysicalMemory::Refund& refund) {
  const uint64_t memory = refund.shared;
  std::erase_if(imports_, [memory](const auto& each) { return each.second.memory == memory; });
  ShareSecret secret{};
  std::vector<PeerLinks::LinkId> told = end_export({SharedKind::kMemory, memory}, &secret);
  if (told.empty() || refund.bytes == 0) return false;
  leaving_[secret] = {refund, std::move(told)};
  return true;
}

void Sharing::heard(PeerLinks::LinkId link, const ShareSecret* secret) {
  for (auto each = leaving_.begin(); each != leaving_.end();) {
    auto& [of, leaving] = *each;
    if (secret == nullptr || *secret == of) std::erase(leaving.unheard, link);
    if (!leaving.unheard.empty()) {
      ++each;
      continue;
    }
    memory_.refund(leaving.refund.device, leaving.refund.bytes);
    each = leaving_.erase(each);
  }
}

void Sharing::note_refusal(const ExportHandle& export_handle) {
  constexpr unsigned kMostLines = 8;
  if (++refusals_ > kMostLines) return;
  log::warn(
      "event=not-imported why=\"it was exported {}\"{}",
      export_handle.job == self_.job ? "at another server" : "in another job or at another server",
      refusals_ == kMostLines ? " further=\"not logged\"" : "");
}

}  // namespace fargpu::server
