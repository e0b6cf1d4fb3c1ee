#include "client/transfer/frame_read.h"

#include <cstring>

#include "client/entry/to_wire.h"
#include "client/transfer/submission.h"
#include "common/wire/fixed_message.h"
#include "generated/schema/internal.capnp.h"
#include "generated/schema/opcodes.h"

namespace fargpu::client {
namespace {

constexpr const char* kName = "fgCopyWait";

}  // namespace

bool FrameRead::begin(const Transfer& transfer, const copy::Piece& piece) {
  const copy::Rows rows = piece.of(transfer.host.rows);
  if (!is_dense(piece.shape, rows)) return false;
  const copy::Words words =
      encode(transfer.piece(piece, copy::Location::frame(), {copy::Completion::Kind::kReply}));
  const Submission work(transfer.session, transfer.context, transfer.stream,
                        Submission::kQueuePlace);
  refused_ = work.result();
  if (refused_ != CUDA_SUCCESS) return true;
  wire::FixedMessage<schema::FgCopyWaitParams, sizeof words.words> message;
  auto params = message.root();
  params.setCopyBytes(words.bytes());
  params.setStream(work.stream());
  params.setDstBytes(piece.bytes);
  std::memcpy(message.data(), words.data(), words.bytes());
  message.set_data(0, words.bytes());
  bytes_ = piece.bytes;
  return transfer.session.channel().call_later(
      schema::op_fgCopyWait, transfer.context, message.bytes(), reply_,
      {reinterpret_cast<std::byte*>(rows.address), piece.bytes}, later_);
}

CUresult FrameRead::finish() {
  if (const CUresult refused = std::exchange(refused_, CUDA_SUCCESS); refused != CUDA_SUCCESS)
    return refused;
  if (!later_.under_way()) return CUDA_SUCCESS;
  if (const Status status = later_.wait(); !status.ok()) return from_status(status);
  if (reply_.result != CUDA_SUCCESS) return static_cast<CUresult>(reply_.result);
  return reply_.bulk_bytes == bytes_ ? CUDA_SUCCESS : malformed(kName);
}

}  // namespace fargpu::client
