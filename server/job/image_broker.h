// ImageBroker: the images that a daemon keeps for later sessions of the same tenant, and the memory
// into which sessions bring new ones.
//
// A session begins an upload: it is charged to its tenant, and gets memory of that size, which
// neither grows nor shrinks. When it is whole, the memory is closed against writing, and a thread
// copies it to a nameless file on the disk and verifies the copy. A session that asks for an image
// gets the file for reading. No two tenants have anything in common here: budgets, images, threads.
//
// What a tenant keeps is limited by its blocks on the disk and by its number of files; the least
// recently used go first. An image that a session has been given, or has brought, stays until that
// session has ended; so nobody's mapping is taken away when an image that goes gives back its
// blocks. What has no room, or no disk, is not kept, and its session uses its memory.
//
// The daemon's event loop's; no call waits for a worker or for the disk.
#pragma once

#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "common/base/fd.h"
#include "common/base/status.h"
#include "common/host/sha256.h"
#include "server/job/tenant_id.h"
#include "server/job/work_thread.h"

namespace fargpu::server {

class ImageBroker {
 public:
  struct Rules {
    std::string folder;    // on the disk; empty: nothing is kept
    uint64_t bytes = 0;    // of a tenant: on the disk, and as much in memory for uploads
    uint32_t files = 0;    // of a tenant, on the disk; a quarter as many uploads
    uint32_t tenants = 0;  // that may keep images: the first ones that do
  };
  static constexpr size_t kMostUploads = 64;  // of a session
  static constexpr size_t kMostCopies = 64;   // of a tenant that wait for the disk
  using OnKept = std::function<void(bool kept)>;
  using OnRevoked = std::function<void(uint32_t upload)>;

  ImageBroker(boost::asio::io_context& loop, Rules rules);
  ~ImageBroker();
  ImageBroker(const ImageBroker&) = delete;
  ImageBroker& operator=(const ImageBroker&) = delete;

  // `on_revoked`: an upload has ended to make room for one of another session of the tenant.
  void session_begins(uint64_t session, const TenantId& tenant, OnRevoked on_revoked);
  // Its worker's process is gone.
  void session_ended(uint64_t session);

  // A descriptor of the broker's, to be passed on at once: the image, for reading. -1: not there.
  int find(uint64_t session, const Sha256Digest& hash);
  // Likewise: the memory, for writing. -1: the tenant has no room, or the number is in use.
  int begin(uint64_t session, uint32_t upload, uint64_t bytes);
  // The upload is whole. `on_kept` is called once, perhaps at once: the upload has ended, and the
  // image is there; or it is not kept, and the upload goes on until end().
  void keep(uint64_t session, uint32_t upload, const Sha256Digest& hash, const OnKept& on_kept);
  void end(uint64_t session, uint32_t upload);

  // Of a tenant, for tests: blocks on the disk, and of uploads.
  uint64_t disk_bytes(const TenantId& tenant) const;
  uint64_t upload_bytes(const TenantId& tenant) const;

 private:
  struct Image {
    Fd file;  // not valid: it is being copied
    uint64_t bytes = 0, used = 0;
    std::set<uint64_t> sessions;  // that have it
  };
  struct Tenant {
    std::map<Sha256Digest, Image> images;
    uint64_t disk_bytes = 0, upload_bytes = 0;
    size_t uploads = 0;
    std::unique_ptr<WorkThread> disk;  // of one that may keep images
  };
  struct Upload {
    std::shared_ptr<Fd> memory;
    uint64_t bytes = 0, charge = 0, number = 0;  // number: in the order of their beginnings
    bool copying = false, ended = false;
  };
  struct Session {
    TenantId tenant;
    OnRevoked on_revoked;
    std::map<uint32_t, Upload> uploads;
    std::set<Sha256Digest> images;  // that it has
    bool ended = false;             // a copy of an upload is under way
    bool told = false;              // the log, that an image was not kept
    uint64_t charge() const;
  };
  struct Back;  // from a thread to the loop
  Session* find(uint64_t session);
  Upload* find(uint64_t session, uint32_t upload);
  bool make_room_for_upload(const Session& asking, Tenant& tenant, uint64_t charge);
  bool make_room_on_disk(Tenant& tenant, uint64_t charge);
  bool may_keep(Tenant& tenant);
  void give(uint64_t session, const Sha256Digest& hash, Image& image);
  void release(Session& session, uint32_t upload);
  void copied(uint64_t session, uint32_t upload, const Sha256Digest& hash, Result<Fd> file,
              const OnKept& on_kept);
  void forget(uint64_t session);

  const Rules rules_;
  const std::shared_ptr<Back> back_;
  std::map<TenantId, Tenant> tenants_;
  std::map<uint64_t, Session> sessions_;
  size_t keeping_ = 0;  // tenants with a disk
  uint64_t clock_ = 0;  // of uses and uploads
  WorkThread closing_;  // of memory: a large one takes its time
};

}  // namespace fargpu::server
