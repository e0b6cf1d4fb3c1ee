// The image cache: module images by SHA-256, shared by all sessions of a daemon as files of one
// private folder.
//
// An image is announced by its hash and total size, arrives in pieces, and is kept only when its
// hash is right: no session can put anything under another's hash. Files appear by rename, so
// readers see whole images or none. The folder's size is capped; the least recently used images go
// first. Each worker has an object of its own over the same folder; one thread each.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "common/base/fd.h"
#include "common/base/sha256.h"
#include "common/base/status.h"

namespace fargpu::server {

// The bytes of one image, followed by a NUL (PTX text needs one). Freed with the object.
class Image {
 public:
  Image(std::unique_ptr<std::byte[]> bytes, size_t size) : bytes_(std::move(bytes)), size_(size) {}
  const void* data() const { return bytes_.get(); }
  size_t size() const { return size_; }

 private:
  std::unique_ptr<std::byte[]> bytes_;
  size_t size_;
};

class ImageCache {
 public:
  static constexpr size_t kMaxUploads = 16;  // under way at once in one session

  // `folder` exists and belongs to us alone.
  ImageCache(std::string folder, uint64_t cap_bytes)
      : folder_(std::move(folder)), cap_(cap_bytes) {}
  ~ImageCache();

  // A piece of the image `hash`, in order. kProtocol: pieces that do not fit together, a total over
  // the cap, too many uploads, or a wrong hash at the end. kSystem: the disk.
  Status put(const Sha256Digest& hash, uint64_t total_bytes, uint64_t offset,
             std::span<const std::byte> piece);
  // nullopt: not there. The file's hash is checked again: a damaged file is removed and counts as
  // not there.
  std::optional<Image> get(const Sha256Digest& hash);

 private:
  struct Upload {
    Fd file;
    std::string path;
    Sha256 hash;
    uint64_t total = 0, received = 0;
  };
  Status begin(const Sha256Digest& hash, uint64_t total_bytes);
  Status finish(const Sha256Digest& hash, Upload upload);
  void make_room(uint64_t bytes);
  std::string path_of(const Sha256Digest& hash) const { return folder_ + "/" + to_hex(hash); }

  const std::string folder_;
  const uint64_t cap_;
  uint64_t next_upload_ = 1;
  std::map<Sha256Digest, Upload> uploads_;
};

}  // namespace fargpu::server
