// The image cache: module images by SHA-256, as files of one private folder that all sessions of a
// daemon share.
//
// An image is announced by its hash and total size and arrives in pieces. It is kept only when its
// hash is right, so no session can store anything under another hash: the written bytes are the
// hashed ones, a copy, since the piece may change while it is read. Files appear by rename, so
// readers see a whole image or none. A file that is kept is sealed (common/host/sealed_file.h), so
// that a load need not read it again. Uploads are independent of each other, also those of the same
// image: the last one to finish replaces the others, which makes no difference. The folder's size
// is limited; the least recently used images go first. Each worker has its own object over the same
// folder; one thread each.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/base/fd.h"
#include "common/base/status.h"
#include "common/host/sha256.h"
#include "server/image/mapped_image.h"

namespace fargpu::server {

class ImageCache {
 public:
  // More uploads in one session than this: the upload without a piece for the longest time is
  // dropped.
  static constexpr size_t kMaxUploads = 16;
  static constexpr size_t kMaxFailures = 64;  // that are remembered; the oldest go first

  // `folder` exists and belongs to us alone.
  ImageCache(std::string folder, uint64_t cap_bytes)
      : folder_(std::move(folder)), cap_(cap_bytes) {}
  ~ImageCache();

  // A piece of the image `hash`, in order; `upload` is any number that stays the same for all of
  // them. kProtocol: pieces that do not fit together, a total over the cap, or a wrong hash at the
  // end. kSystem: the disk. A failure ends the upload; its later pieces are ignored.
  Status put(uint64_t upload, const Sha256Digest& hash, uint64_t total_bytes, uint64_t offset,
             std::span<const std::byte> piece);
  // A whole image.
  Status put(const Sha256Digest& hash, std::span<const std::byte> bytes);
  // Why an upload has failed, asked once; OK for every other number. The upload is at its end.
  Status result_of(uint64_t upload);
  // nullopt: not there. A file that is not sealed any more is removed and counts as not there.
  std::optional<Image> get(const Sha256Digest& hash);
  // The same for a hash of a request. kNotFound: the client must bring the image first.
  Result<Image> find(std::span<const std::byte> hash);

 private:
  struct Upload {
    Sha256Digest expected;
    Fd file;
    std::string path;
    Sha256 hash;
    uint64_t total = 0, received = 0;
    uint64_t last_piece = 0;  // of pieces_, when the last one came
  };
  using Uploads = std::map<uint64_t, Upload>;
  Result<Upload> begin(const Sha256Digest& hash, uint64_t total_bytes);
  Status add(Upload& upload, uint64_t total_bytes, uint64_t offset,
             std::span<const std::byte> piece);
  std::span<const std::byte> own_copy(std::span<const std::byte> piece);  // until the next one
  Status finish(Upload& upload);
  Status fail(uint64_t upload, Status why);
  void give_up_one();
  void make_room(uint64_t bytes);
  std::string path_of(const Sha256Digest& hash) const { return folder_ + "/" + to_hex(hash); }

  const std::string folder_;
  const uint64_t cap_;
  uint64_t next_file_ = 1;
  uint64_t pieces_ = 0;  // that have come
  Uploads uploads_;
  std::vector<std::byte> own_;
  std::deque<std::pair<uint64_t, Status>> failures_;  // oldest first
};

}  // namespace fargpu::server
