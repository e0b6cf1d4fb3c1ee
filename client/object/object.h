// The client's record of one live CUDA object (stream, event, module, ...): the base of the records
// in the handle table.
//
// A record is written before it is published and is immutable afterwards, but for the atomics that
// a derived record says it has. The handle table owns all records; a record found there stays
// readable for a while after its object was destroyed (handle_table.h).
#pragma once

#include <cstdint>

#include "common/rpc/handle_kind.h"

namespace fargpu::client {

struct Context;
class Session;

// A session, as the records name it that are made in it.
struct Owner {
  Session* session = nullptr;
  unsigned number = 0;  // number of the session in the process; part of every id
};

struct Object {
  uint64_t id = 0;  // the application's handle value
  Session* session = nullptr;
  // the context it lives and dies with; null: none (libraries, kernels, contexts)
  Context* context = nullptr;
  // id of the object that it was made from, and ends with: a function's module, a kernel's library;
  // 0: none
  uint64_t parent = 0;

  Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() = default;
  // It is in the table no more: releases resources that must not wait until the record is freed.
  // Only for kinds whose ends the part `records` is notified of (schema/api/types.yml).
  virtual void ended() {}
  rpc::HandleKind kind() const { return rpc::handle_kind(id); }
};

}  // namespace fargpu::client
