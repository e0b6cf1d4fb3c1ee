// Tables: handles, contexts, addresses and printed output of all sessions of the process. Each
// record knows its session.
//
// Made with the first session, never destroyed. A forked child leaves its parent's tables as they
// are and begins with none. Any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "client/memory/address_map.h"
#include "client/object/context.h"
#include "client/object/handle_table.h"
#include "client/object/texture_table.h"
#include "client/object/value_table.h"
#include "client/process/output.h"

namespace fargpu::client {

struct Tables {
  HandleTable handles;
  ContextTable contexts{handles};
  AddressMap device_memory;
  AddressMap host_memory;
  TextureTable textures;
  ValueTable graphs_for_kernels;
  AddressMap reservations;  // of cuMemAddressReserve, with memory or without
  Output output;
  std::atomic<uint64_t> next_buffer_id{1};
};

}  // namespace fargpu::client
