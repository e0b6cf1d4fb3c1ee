// SessionImages: the module images that a session brings and loads, by their SHA-256.
//
// An image is announced by its hash and total size and arrives in pieces, into memory that the
// ImageSource gives for it. Its hash is verified: the stored bytes are the hashed ones, a copy,
// since the piece may change while it is read. Then the source is asked to keep it. The session has
// its memory until the source has the image, or has not kept it and it has been loaded; so a load
// never depends on what the source keeps. Uploads are independent of each other, also those of the
// same image. One thread.
#pragma once

#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/base/fd.h"
#include "common/base/status.h"
#include "common/host/sha256.h"
#include "server/image/image_source.h"
#include "server/image/mapped_image.h"

namespace fargpu::server {

class SessionImages {
 public:
  // More uploads than this: the one without a piece for the longest time is dropped.
  static constexpr size_t kMaxUploads = 16;
  static constexpr size_t kMaxFailures = 64;  // that are remembered; the oldest go first
  static constexpr size_t kMaxWhole = 16;     // in memory; loaded ones go first, then the oldest
  static constexpr size_t kMaxLinked = 4;     // of these; the oldest go first

  // `source` outlives it. No image is larger than `cap_bytes`.
  SessionImages(ImageSource& source, uint64_t cap_bytes) : source_(source), cap_(cap_bytes) {}
  SessionImages(const SessionImages&) = delete;
  SessionImages& operator=(const SessionImages&) = delete;

  // A piece of the image `hash`, in order; `upload` is any number that stays the same for all of
  // them. kProtocol: pieces that do not fit together, a total over the cap, or a wrong hash at the
  // end. kNoCapacity: no memory. A failure ends the upload; its later pieces are ignored.
  Status put(uint64_t upload, const Sha256Digest& hash, uint64_t total_bytes, uint64_t offset,
             std::span<const std::byte> piece);
  // A whole image that this session has linked.
  Status put_linked(const Sha256Digest& hash, std::span<const std::byte> bytes);
  // Why an upload has failed, asked once; OK for every other number. The upload is at its end.
  Status result_of(uint64_t upload);
  // To be loaded. nullopt: not there.
  std::optional<Image> get(const Sha256Digest& hash);
  // The same for a hash of a request. kNotFound: the client must bring the image first.
  Result<Image> find(std::span<const std::byte> hash);
  // Only one that is in the session's own memory: its bytes are for its client.
  Result<Image> find_own(std::span<const std::byte> hash);

  // The source's answer to keep(); it takes back the memory of an upload.
  void kept(uint32_t upload, bool kept);
  void revoked(uint32_t upload);

 private:
  struct Upload {
    Sha256Digest expected{};
    std::shared_ptr<Fd> memory;
    uint32_t number = 0;  // at the source
    Sha256 hash;
    uint64_t total = 0, received = 0;
    uint64_t last_piece = 0;  // of pieces_, when the last one came
  };
  struct Whole {
    Sha256Digest hash{};
    std::shared_ptr<Fd> memory;
    uint32_t number = 0;
    uint64_t bytes = 0;
    bool linked = false, answered = false, loaded = false;
  };
  using Wholes = std::list<Whole>;  // oldest first
  Result<Upload> begin(const Sha256Digest& hash, uint64_t total_bytes);
  Status add(Upload& upload, uint64_t total_bytes, uint64_t offset,
             std::span<const std::byte> piece);
  std::span<const std::byte> own_copy(std::span<const std::byte> piece);  // until the next one
  Status finish(Upload& upload, bool linked);
  Status fail(uint64_t upload, Status why);
  void give_up_one();
  void make_room_for(uint64_t bytes);
  void keep_within_limits();
  Wholes::iterator drop(Wholes::iterator whole, bool at_source);
  std::optional<Image> mapped(const std::shared_ptr<Fd>& memory, uint64_t bytes);
  std::optional<Image> get_own(const Sha256Digest& hash);

  ImageSource& source_;
  const uint64_t cap_;
  uint32_t next_number_ = 1;
  uint64_t pieces_ = 0;  // that have come
  std::map<uint64_t, Upload> uploads_;
  Wholes whole_;
  // Dropped, but perhaps being loaded: until that has ended, another load finds it.
  std::vector<std::pair<Sha256Digest, std::weak_ptr<Fd>>> loading_;
  std::vector<std::byte> own_;
  std::deque<std::pair<uint64_t, Status>> failures_;  // oldest first
};

}  // namespace fargpu::server
