// The first half of a context's end: while it still works, parts that must use it once more are
// notified (`client_before` of its kind in schema/api/types.yml). Every call that ends a context
// begins with this; the other half is end_context() (client/entry/object_ends.h), after the
// worker's answer.
//
// May wait for work, and calls functions of NVIDIA's runtime that make calls. No lock is held.
#pragma once

namespace fargpu::client {

struct Context;

// Does no harm to a context that goes on after all.
void begin_context_end(Context& context);

}  // namespace fargpu::client
