// Memory at device addresses that no other server of the program has given out.
//
// A device address must name one server's memory: copies and kernels' host halves find the server
// by it. Servers choose their addresses by themselves, and two may choose the same. Then the memory
// is allocated again while the first is held, a few times, and what collided is freed. An
// allocation that always collides is refused, and the log says which servers it is about. Any
// thread.
#pragma once

#include <cuda.h>

#include <functional>

namespace fargpu::client {

class Session;

// How an allocation of one kind is made and taken back.
struct Allocation {
  const char* name;                            // of the call, for the log
  std::function<CUresult()> allocate;          // sets `*address`
  std::function<bool()> is_entered;            // the tables have it as this session's
  std::function<void(CUdeviceptr)> give_back;  // one that is in no table
};

// What allocation.allocate() returns; CUDA_ERROR_OUT_OF_MEMORY when all addresses collide. With one
// server it is nothing but that call.
CUresult allocate_apart(Session& session, const CUdeviceptr* address, const Allocation& allocation);

// Whether the memory at `address` is in the table of device memory as this session's.
bool is_own(Session& session, CUdeviceptr address);

// Says that `name` is refused because `session` has memory at an address of another server.
CUresult refuse_address(Session& session, const char* name, CUdeviceptr address);

}  // namespace fargpu::client
