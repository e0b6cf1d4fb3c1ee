#include "client/transfer/remote_copy.h"

#include "client/copy/pieces.h"
#include "client/entry/here.h"
#include "common/rpc/copy_order.h"

namespace fargpu::client {

std::optional<RemoteHost::Place> remote_place(Session& session, const Side& host, const Box& box) {
  const size_t bytes = box.width * box.height * box.depth;
  if (bytes < RemoteHost::kFrom || session.host_memory.empty() || !is_packed(box, host))
    return std::nullopt;
  const auto region = session.find_host(host.address);
  if (!region || bytes > region->base + region->bytes - host.address) return std::nullopt;
  return remote_host(session).find(session, *region, host.address);
}

CUresult remote_to_device(Session& session, const RemoteHost::Place& place, const Side& dst,
                          const Side& src, const Box& box, CUstream stream) {
  const transport::RemoteKey& key = place.key;
  const CUresult result =
      for_each_piece(box, dst, src, RemoteHost::kPieceBytes,
                     [&](const Box& piece, const Side& to, const Side& from) {
                       return call_fgCopyFromRemote(
                           session, current_context_id(), key.address, key.bytes, key.key,
                           place.offset + (from.address - src.address), to.address, to.pitch,
                           to.slice, piece.width, piece.height, piece.depth, stream, /*ticket=*/0,
                           static_cast<int>(rpc::CopyOrder::kStream));
                     });
  remote_host(session).sent(place);
  return result;
}

CUresult remote_to_host(Session& session, const RemoteHost::Place& place, const Side& dst,
                        const Side& src, const Box& box, CUstream stream) {
  const transport::RemoteKey& key = place.key;
  return for_each_piece(box, src, dst, RemoteHost::kPieceBytes,
                        [&](const Box& piece, const Side& from, const Side& to) {
                          return call_fgCopyToRemote(
                              session, current_context_id(), key.address, key.bytes, key.key,
                              place.offset + (to.address - dst.address), from.address, from.pitch,
                              from.slice, piece.width, piece.height, piece.depth, stream);
                        });
}

}  // namespace fargpu::client
