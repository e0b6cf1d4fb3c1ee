// Memory at device addresses that no other server of the program has given out.
//
// A device address must name one server's memory: copies and kernels' host halves find the server
// by it. Servers choose their addresses by themselves, and two may choose the same. Then the memory
// is allocated again while the first is held, a few times, and colliding memory is freed. An
// allocation that always collides is refused, and the log says which servers it is about. Any
// thread.
#pragma once

#include <cuda.h>

#include <vector>

namespace fargpu::client {

class Session;

// Whether the memory at `address` is in the table of device memory as this session's.
bool is_own(Session& session, CUdeviceptr address);

// Says that `name` is refused because `session` has memory at an address of another server.
CUresult refuse_address(Session& session, const char* name, CUdeviceptr address);

// Returns the result of allocate(), which sets `*address`; CUDA_ERROR_OUT_OF_MEMORY when all
// addresses collide. `name`: of the call, for the log. is_entered(): whether the tables have the
// memory as this session's; give_back(address): frees memory that is in no table. With one server
// it is nothing but one allocation.
template <typename Allocate, typename IsEntered, typename GiveBack>
CUresult allocate_apart(Session& session, const char* name, const CUdeviceptr* address,
                        Allocate&& allocate, IsEntered&& is_entered, GiveBack&& give_back) {
  // Blocks of one size follow each other, so each try is beyond one more of the other server's.
  constexpr size_t kTries = 8;
  CUresult result = allocate();
  std::vector<CUdeviceptr> held;
  while (result == CUDA_SUCCESS && !is_entered()) {
    held.push_back(*address);
    result = held.size() == kTries ? refuse_address(session, name, *address) : allocate();
  }
  for (const CUdeviceptr each : held) give_back(each);
  return result;
}

}  // namespace fargpu::client
