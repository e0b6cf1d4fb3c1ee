// User objects: resources of the application whose destructor runs when the last reference to them
// has gone. Graphs and executable graphs hold references; references of a launch are released when
// it has ended. A destructor runs on the thread that takes the last reference away, or on one of
// its own.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>

#include "client/object/object.h"

namespace fargpu::client {

struct UserObject final : Object {
  CUhostFn destroy = nullptr;
  void* data = nullptr;
  std::atomic<uint64_t> references{0};  // of graphs and of the application
};

// CUDA_ERROR_OUT_OF_MEMORY: the program has as many objects as there may be.
CUresult make_user_object(void* data, CUhostFn destroy, unsigned references, UserObject** object);
UserObject* find_user_object(CUuserObject object);  // nullptr: there is none
// Owners of references know the object by its handle: an application may release references of
// others, and the object ends early. Then these do nothing.
void retain(CUuserObject object, unsigned count);
void release(CUuserObject object, unsigned count);  // of the existing references

}  // namespace fargpu::client
