#include "server/job/image_broker.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <utility>

#include "common/base/id_text.h"
#include "common/base/log.h"
#include "server/job/image_files.h"

namespace fargpu::server {
namespace {

// A disk that takes longer for one image gets no more of them until it is done.
constexpr auto kLongestCopy = std::chrono::seconds(30);

Fd memory_of(uint64_t bytes) {
  Fd memory(::memfd_create("fargpu-image", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory.valid() || ::ftruncate(memory.get(), static_cast<off_t>(bytes)) != 0 ||
      ::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK) != 0)
    return Fd();
  return memory;
}

}  // namespace

// The broker may have gone when a thread is done, and the loop with it.
struct ImageBroker::Back {
  std::mutex mutex;
  boost::asio::io_context* loop;  // guarded by mutex; null: they have gone

  explicit Back(boost::asio::io_context& with) : loop(&with) {}
  bool gone() {
    const std::lock_guard lock(mutex);
    return loop == nullptr;
  }
  void post(std::function<void()> task) {
    const std::lock_guard lock(mutex);
    if (loop != nullptr) boost::asio::post(*loop, std::move(task));
  }
};

uint64_t ImageBroker::Session::charge() const {
  uint64_t sum = 0;
  for (const auto& [number, upload] : uploads) sum += upload.charge;
  return sum;
}

ImageBroker::ImageBroker(boost::asio::io_context& loop, Rules rules)
    : rules_(std::move(rules)), back_(std::make_shared<Back>(loop)) {}

ImageBroker::~ImageBroker() {
  const std::lock_guard lock(back_->mutex);
  back_->loop = nullptr;
}

ImageBroker::Session* ImageBroker::find(uint64_t session) {
  const auto found = sessions_.find(session);
  return found == sessions_.end() ? nullptr : &found->second;
}

ImageBroker::Upload* ImageBroker::find(uint64_t session, uint32_t upload) {
  Session* const of = find(session);
  if (of == nullptr) return nullptr;
  const auto found = of->uploads.find(upload);
  return found == of->uploads.end() ? nullptr : &found->second;
}

void ImageBroker::session_begins(uint64_t session, const TenantId& tenant, OnRevoked on_revoked) {
  sessions_[session] = {tenant, std::move(on_revoked), {}, {}};
}

void ImageBroker::session_ended(uint64_t id) {
  Session* const session = find(id);
  if (session == nullptr) return;
  session->ended = true;
  session->on_revoked = nullptr;
  for (const Sha256Digest& hash : session->images) {
    auto& images = tenants_[session->tenant].images;
    if (const auto image = images.find(hash); image != images.end())
      image->second.sessions.erase(id);
  }
  session->images.clear();
  std::vector<uint32_t> open;
  for (const auto& [number, upload] : session->uploads) open.push_back(number);
  for (const uint32_t number : open) end(id, number);
  forget(id);
}

// What a session leaves goes with the last copy of its uploads.
void ImageBroker::forget(uint64_t id) {
  const auto session = sessions_.find(id);
  if (session == sessions_.end() || !session->second.ended || !session->second.uploads.empty())
    return;
  const auto tenant = tenants_.find(session->second.tenant);
  sessions_.erase(session);
  if (tenant != tenants_.end() && tenant->second.disk == nullptr && tenant->second.uploads == 0)
    tenants_.erase(tenant);
}

void ImageBroker::give(uint64_t session, const Sha256Digest& hash, Image& image) {
  image.used = ++clock_;
  image.sessions.insert(session);
  sessions_[session].images.insert(hash);
}

int ImageBroker::find(uint64_t id, const Sha256Digest& hash) {
  const Session* const session = find(id);
  if (session == nullptr) return -1;
  const auto tenant = tenants_.find(session->tenant);
  if (tenant == tenants_.end()) return -1;
  const auto image = tenant->second.images.find(hash);
  if (image == tenant->second.images.end() || !image->second.file.valid()) return -1;
  give(id, hash, image->second);
  return image->second.file.get();
}

int ImageBroker::begin(uint64_t id, uint32_t number, uint64_t bytes) {
  Session* const session = find(id);
  if (session == nullptr || session->uploads.size() >= kMostUploads ||
      session->uploads.contains(number) || bytes == 0 || bytes > rules_.bytes)
    return -1;
  Tenant& tenant = tenants_[session->tenant];
  const uint64_t charge = disk_bytes_of(bytes);
  if (!make_room_for_upload(*session, tenant, charge)) return -1;
  Fd memory = memory_of(bytes);
  if (!memory.valid()) return -1;
  tenant.upload_bytes += charge;
  ++tenant.uploads;
  const auto shared = std::make_shared<Fd>(std::move(memory));
  session->uploads[number] = {shared, bytes, charge, ++clock_, false, false};
  return shared->get();
}

// Of the tenant's sessions, the one with most bytes, or most uploads, loses the oldest; but not for
// one that would have more.
bool ImageBroker::make_room_for_upload(const Session& asking, Tenant& tenant, uint64_t charge) {
  // One image of the largest size fits.
  const uint64_t most = disk_bytes_of(rules_.bytes);
  const size_t files = std::max<size_t>(rules_.files / 4, 1);
  for (;;) {
    const bool too_many = tenant.uploads >= files;
    if (!too_many && tenant.upload_bytes + charge <= most) return true;
    const auto share = [too_many](const Session& session) {
      return too_many ? session.uploads.size() : session.charge();
    };
    Session* largest = nullptr;
    uint64_t most_share = share(asking) + (too_many ? 1 : charge);
    for (auto& [id, session] : sessions_) {
      if (session.tenant != asking.tenant || share(session) <= most_share) continue;
      if (std::all_of(session.uploads.begin(), session.uploads.end(),
                      [](const auto& each) { return each.second.copying; }))
        continue;
      largest = &session;
      most_share = share(session);
    }
    if (largest == nullptr) return false;
    auto oldest = largest->uploads.end();
    for (auto each = largest->uploads.begin(); each != largest->uploads.end(); ++each) {
      if (!each->second.copying &&
          (oldest == largest->uploads.end() || each->second.number < oldest->second.number))
        oldest = each;
    }
    const uint32_t number = oldest->first;
    release(*largest, number);
    if (largest->on_revoked) largest->on_revoked(number);
  }
}

void ImageBroker::release(Session& session, uint32_t number) {
  auto ended = session.uploads.extract(number);
  if (ended.empty()) return;
  Tenant& tenant = tenants_[session.tenant];
  tenant.upload_bytes -= ended.mapped().charge;
  --tenant.uploads;
  (void)closing_.run([memory = std::move(ended.mapped().memory)](const std::atomic<bool>&) {});
}

void ImageBroker::end(uint64_t id, uint32_t number) {
  Upload* const upload = find(id, number);
  if (upload == nullptr) return;
  upload->ended = true;
  if (!upload->copying) release(*find(id), number);
}

bool ImageBroker::may_keep(Tenant& tenant) {
  if (tenant.disk == nullptr && !rules_.folder.empty() && keeping_ < rules_.tenants) {
    ++keeping_;
    tenant.disk = std::make_unique<WorkThread>();
  }
  return tenant.disk != nullptr && tenant.disk->busy() < kLongestCopy &&
         tenant.disk->open() < kMostCopies;
}

bool ImageBroker::make_room_on_disk(Tenant& tenant, uint64_t charge) {
  const auto fits = [&](uint64_t bytes, size_t files) {
    return tenant.disk_bytes - bytes + charge <= rules_.bytes &&
           tenant.images.size() - files < rules_.files;
  };
  if (fits(0, 0)) return true;
  using Entry = std::map<Sha256Digest, Image>::iterator;
  std::vector<Entry> unused;
  uint64_t bytes = 0;
  for (auto each = tenant.images.begin(); each != tenant.images.end(); ++each) {
    if (!each->second.file.valid() || !each->second.sessions.empty()) continue;
    unused.push_back(each);
    bytes += each->second.bytes;
  }
  if (!fits(bytes, unused.size())) return false;
  std::sort(unused.begin(), unused.end(),
            [](Entry a, Entry b) { return a->second.used < b->second.used; });
  for (const Entry each : unused) {
    if (fits(0, 0)) break;
    tenant.disk_bytes -= each->second.bytes;
    const auto file = std::make_shared<Fd>(std::move(each->second.file));
    tenant.images.erase(each);
    (void)tenant.disk->run([file](const std::atomic<bool>&) { empty_file(*file); });
  }
  return true;
}

void ImageBroker::keep(uint64_t id, uint32_t number, const Sha256Digest& hash,
                       const OnKept& on_kept) {
  Upload* const upload = find(id, number);
  if (upload == nullptr || upload->copying || upload->ended) return on_kept(false);
  Session& session = *find(id);
  Tenant& tenant = tenants_[session.tenant];
  if (const auto known = tenant.images.find(hash); known != tenant.images.end()) {
    const bool there = known->second.file.valid();
    if (there) {
      give(id, hash, known->second);
      release(session, number);
    }
    return on_kept(there);
  }
  // With a writable mapping of it this fails.
  const bool closed = ::fcntl(upload->memory->get(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SEAL) == 0;
  if (!closed || !may_keep(tenant) || !make_room_on_disk(tenant, upload->charge))
    return on_kept(false);
  auto job = [this, back = back_, id, number, hash, folder = rules_.folder, bytes = upload->bytes,
              memory = upload->memory, on_kept](const std::atomic<bool>& ending) {
    const auto file =
        std::make_shared<Result<Fd>>(copy_to_file(folder, memory->get(), bytes, hash, ending));
    back->post([this, back, id, number, hash, file, on_kept] {
      if (!back->gone()) copied(id, number, hash, std::move(*file), on_kept);
    });
  };
  if (!tenant.disk->run(std::move(job))) return on_kept(false);
  upload->copying = true;
  tenant.disk_bytes += upload->charge;
  tenant.images[hash] = {Fd(), upload->charge, ++clock_, {}};
}

void ImageBroker::copied(uint64_t id, uint32_t number, const Sha256Digest& hash, Result<Fd> file,
                         const OnKept& on_kept) {
  Upload* const upload = find(id, number);
  if (upload == nullptr) return;  // it stays until it is copied
  Session& session = *find(id);
  Tenant& tenant = tenants_[session.tenant];
  const auto image = tenant.images.find(hash);
  const bool kept = file.ok();
  upload->copying = false;
  if (kept) {
    image->second.file = std::move(*file);
    image->second.used = ++clock_;
    if (!session.ended) give(id, hash, image->second);
  } else {
    tenant.disk_bytes -= image->second.bytes;
    tenant.images.erase(image);
    if (!std::exchange(session.told, true))
      log::warn("event=image-not-kept session={} why=\"{}\"", id_text(id), file.status().message());
  }
  if (kept || upload->ended) release(session, number);
  const bool over = session.ended;
  forget(id);
  if (!over) on_kept(kept);
}

uint64_t ImageBroker::disk_bytes(const TenantId& tenant) const {
  const auto found = tenants_.find(tenant);
  return found == tenants_.end() ? 0 : found->second.disk_bytes;
}

uint64_t ImageBroker::upload_bytes(const TenantId& tenant) const {
  const auto found = tenants_.find(tenant);
  return found == tenants_.end() ? 0 : found->second.upload_bytes;
}

}  // namespace fargpu::server
