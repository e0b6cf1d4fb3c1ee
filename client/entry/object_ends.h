// Where objects of the application end in the client: a destroyed one with what was made from it, a
// context with what lives in it. The records go, and who has to know is told: `client` of each kind
// in schema/api/types.yml, from which generated/client/object_ends.h is made. Nobody else takes
// records of objects that the application knows out of the table.
//
// After the worker's answer. Nothing here calls the worker or waits. Any thread.
#pragma once

#include <cstdint>

#include "client/object/context.h"

namespace fargpu::client {

class Session;

// Does nothing if there is no such object any more.
void end_object(Session& session, uint64_t id);
// `now`: what becomes of the context. A call that is under way in it enters nothing any more.
// A primary context takes its green ones with it. Streams of a green one are refused from its end
// on, until their primary context ends.
void end_context(Context& context, ContextState now);

}  // namespace fargpu::client
