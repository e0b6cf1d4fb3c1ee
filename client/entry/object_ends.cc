#include "client/entry/object_ends.h"

#include <memory>
#include <vector>

#include "client/managed/managed_state.h"
#include "client/memory/reserve.h"
#include "client/object/image_records.h"
#include "client/process/process.h"
#include "client/process/session.h"
#include "generated/client/object_ends.h"
#include "generated/rpc/handle_rules.h"

namespace fargpu::client {
namespace {

// The session's memory by address. What the application has from cuMemHostAlloc stays, hidden from
// device code. Memory that it has registered is ordinary memory again.
class MemoryEnds {
 public:
  explicit MemoryEnds(Session& session) : session_(session) {}

  void context_ended(const Context& context) {
    for (const uint64_t base : session_.pages.forget_context(context.wire_id)) {
      if (const auto region = session_.find_host(base))
        session_.hidden_memory.add(region->base, region->bytes);
    }
    session_.host_memory.erase_if([&](const Region& region) {
      if (region.context != &context || region.kind != MemoryKind::kRegistered) return false;
      session_.hidden_memory.remove(region.base);
      session_.gated_host.remove(region.base);
      return true;
    });
    session_.host_memory.update([&](Region& region) {
      if (region.context != &context || region.shared_at == 0) return;
      region.shared_at = 0;
      session_.hidden_memory.add(region.base, region.bytes);
    });
    erase_if([&](const Region& region) {
      return region.context == &context && region.kind != MemoryKind::kManaged;
    });
  }
  void module_ended(const Object& module) { forget_globals(module.id); }
  void library_ended(const Object& library) { forget_globals(library.id); }

 private:
  void forget_globals(uint64_t image) {
    erase_if([image](const Region& region) {
      const bool is_variable =
          region.kind == MemoryKind::kGlobal || region.kind == MemoryKind::kManaged;
      return is_variable && region.owner == image;
    });
    if (session_.observers.any(Observers::kManagedMemory))
      session_.managed_state->variables.end_of(image);
  }
  template <typename Gone>
  void erase_if(Gone gone) {
    session_.device_memory.erase_if([&](const Region& region) {
      if (!gone(region)) return false;
      if (region.reserved) release_reserved(region.base, region.bytes);
      return true;
    });
  }

  Session& session_;
};

// The record stays readable for a while, so its image must go now.
struct LinkEnds {
  static void linkstate_ended(Object& link) {
    auto& record = static_cast<LinkRecord&>(link);
    const std::lock_guard lock(record.mutex);
    record.image = {};
  }
};

struct RecordEnds {
  static void graphexec_ended(Object& exec) { exec.ended(); }
};

// By the names of types.yml.
struct Parts {
  explicit Parts(Session& session)
      : memory(session),
        shared_host(session.shared_host),
        staging_rings(session.staging_rings),
        stream_words(session.stream_words),
        textures(Process::get().tables()->textures) {}
  MemoryEnds memory;
  SharedHost& shared_host;
  StagingRings& staging_rings;
  SessionStreamWords& stream_words;
  TextureTable& textures;
  LinkEnds links;
  RecordEnds records;
};

using Records = std::vector<std::unique_ptr<Object>>;

// These, which are in the table no more, and what was made from them. The last record is buried
// when all have been told: they refer to each other.
void end_all(Session& session, Records ended) {
  for (size_t i = 0; i < ended.size(); ++i) {
    if (!rpc::has_children(ended[i]->kind())) continue;
    Records children = session.handles.take_if(
        [parent = ended[i]->id](const Object& object) { return object.parent == parent; });
    for (auto& child : children) ended.push_back(std::move(child));
  }
  Parts parts(session);
  for (const auto& object : ended) tell_object_end(parts, *object);
  for (auto& object : ended) session.handles.bury(std::move(object));
}

}  // namespace

void end_object(Session& session, uint64_t id) {
  const rpc::HandleKind kind = rpc::handle_kind(id);
  if (!rpc::has_children(kind) && !is_told_end(kind)) {
    session.handles.erase(id);
    return;
  }
  Records ended;
  if (auto object = session.handles.take(id)) ended.push_back(std::move(object));
  end_all(session, std::move(ended));
}

void end_context(Context& context, ContextState now) {
  Session& session = *context.session;
  if (context.primary) {
    for (Context* const green : session.contexts.greens_of(context))
      end_context(*green, ContextState::kDestroyed);
  }
  session.contexts.retire(context, now);
  end_all(session, session.handles.take_if(
                       [&](const Object& object) { return object.context == &context; }));
  Parts parts(session);
  tell_context_end(parts, context);
}

}  // namespace fargpu::client
