// An rdma_cm id that is being connected, with its events. Used inside the rdma transport only; one
// thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/transport/rdma/rdma_domain.h"
#include "common/transport/socket_address.h"
#include "common/transport/transport.h"

namespace fargpu::transport {

// Acknowledged; the private data is a copy.
struct CmEvent {
  rdma_cm_event_type event;
  int status = 0;
  rdma_cm_id* id = nullptr;
  std::vector<std::byte> private_data;
  Status error(const std::string& what) const;
};

class CmId {
 public:
  // kUnsupported without rdma-core, kNotFound without a device.
  static Result<CmId> create();
  // Adopts the id of a connection request. It uses the listener's event channel until it gets its
  // own.
  static CmId adopt(rdma_cm_id* id) { return CmId(nullptr, id); }
  CmId(CmId&& other) noexcept;
  CmId& operator=(CmId&&) = delete;
  ~CmId();

  rdma_cm_id* get() const { return id_; }
  Status bind(const SocketAddress& local);
  // Finds the device and port on the route.
  Status resolve(const SocketAddress& remote, Deadline deadline);
  Status resolve_route(const std::string& where, Deadline deadline);
  Status move_to_own_channel();
  // kTimeout with this text.
  Result<CmEvent> next_event(Deadline deadline, const std::string& otherwise);
  // The domain owns id and channel from then on; this object still uses them until release().
  Result<std::shared_ptr<RdmaDomain>> make_domain();
  void release();

 private:
  CmId(rdma_event_channel* channel, rdma_cm_id* id) : channel_(channel), id_(id) {}
  static Result<rdma_event_channel*> create_channel();

  rdma_event_channel* channel_ = nullptr;  // null: the listener's
  rdma_cm_id* id_ = nullptr;
  std::shared_ptr<RdmaDomain> domain_;  // once made, it owns both
};

}  // namespace fargpu::transport
