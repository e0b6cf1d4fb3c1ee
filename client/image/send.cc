#include "client/image/send.h"

#include <algorithm>
#include <optional>

#include "client/call/report.h"
#include "client/entry/call.h"
#include "client/link/input.h"
#include "client/object/context.h"
#include "client/process/session.h"
#include "common/base/log.h"
#include "common/wire/image_piece.h"
#include "generated/client/wire/internal.h"

namespace fargpu::client {
namespace {

constexpr size_t kLeastPackedBytes = 4 << 10;  // below, a packet more or less
// The server verifies and writes a piece while the next one is on its way, and its other calls wait
// for one piece at most.
constexpr uint64_t kMostPieceBytes = 1 << 20;

// One image on its way to the server, piece by piece.
class ImageSender {
 public:
  ImageSender(Session& session, const Sha256Digest& hash, uint64_t bytes, uint64_t upload)
      : session_(session), hash_(hash), bytes_(bytes), upload_(upload) {
    if (session.packs_images()) packer_.emplace();
  }
  // What follows what was sent before.
  CUresult send(std::span<const std::byte> bytes) {
    const uint64_t most = std::min(session_.piece_bytes(), kMostPieceBytes);
    while (!bytes.empty()) {
      const auto piece = bytes.first(std::min<uint64_t>(most, bytes.size()));
      if (const CUresult result = send_piece(piece); result != CUDA_SUCCESS) return result;
      bytes = bytes.subspan(piece.size());
    }
    return CUDA_SUCCESS;
  }
  uint64_t sent() const { return sent_; }

 private:
  CUresult send_piece(std::span<const std::byte> piece) {
    const bool packs = packer_ && piece.size() >= kLeastPackedBytes;
    const auto frame = packs ? packer_->pack(piece) : std::span<const std::byte>();
    // What does not shrink was packed before (nvcc does so): the rest of it will not shrink either.
    if (packs && frame.empty()) packer_.reset();
    const Input plain(frame.empty() ? piece.data() : nullptr, piece.size());
    const CUresult result =
        frame.empty()
            ? wire::fgImagePut(session_, current_context_id(), hash_.data(), bytes_, offset_,
                               plain.data(), piece.size(), upload_)
            : wire::fgImagePutPacked(session_, current_context_id(), hash_.data(), bytes_, offset_,
                                     piece.size(), frame.data(), frame.size(), upload_);
    offset_ += piece.size();
    sent_ += frame.empty() ? piece.size() : frame.size();
    return result;
  }

  Session& session_;
  const Sha256Digest& hash_;
  const uint64_t bytes_, upload_;
  std::optional<wire::PiecePacker> packer_;
  uint64_t offset_ = 0, sent_ = 0;
};

}  // namespace

uint64_t size_of(ImageBytes bytes) {
  uint64_t size = 0;
  for (const auto& place : bytes) size += place.size();
  return size;
}

Sha256Digest hash_of(ImageBytes bytes) {
  Sha256 hash;
  for (const auto& place : bytes) hash.update(place);
  return hash.finish();
}

CUresult send_image(Session& session, const Sha256Digest& hash, ImageBytes bytes, uint64_t upload) {
  const uint64_t size = size_of(bytes);
  ImageSender sender(session, hash, size, upload);
  for (const auto& place : bytes)
    if (const CUresult result = sender.send(place); result != CUDA_SUCCESS) return result;
  if (report::enabled()) report::count_image_sent(size, sender.sent());
  log::debug("image {} of {} bytes sent as {}", to_hex(hash), size, sender.sent());
  return CUDA_SUCCESS;
}

}  // namespace fargpu::client
