#include "client/manual/context_end.h"

#include "client/object/context.h"
#include "client/object/context_storage.h"
#include "client/servers/cross_server_work.h"
#include "client/transfer/coherence.h"
#include "client/transfer/managed.h"
#include "client/transfer/pinned_memory.h"
#include "generated/client/object_ends.h"

namespace fargpu::client {
namespace {

struct CrossServerWorkBefore {
  static void context_ends(const Context& context) { CrossServerWork::finish_in(context); }
};

struct MappedMemoryBefore {
  static void context_ends(Context& context) {
    end_variables_of(context);
    if (context.usable()) free_managed_of(context);
    if (context.usable()) before_context_ends(*context.session, context);
    if (context.usable()) end_registrations_of(context);
  }
};

// By the names of types.yml.
struct PartsBefore {
  interop::ContextStorage& context_storage = interop::ContextStorage::get_instance();
  CrossServerWorkBefore cross_server_work;
  MappedMemoryBefore mapped_memory;
};

}  // namespace

void begin_context_end(Context& context) {
  PartsBefore parts;
  tell_context_ends(parts, context);
}

}  // namespace fargpu::client
