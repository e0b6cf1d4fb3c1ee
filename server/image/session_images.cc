#include "server/image/session_images.h"

#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "common/base/log.h"

namespace fargpu::server {
namespace {

Status write_all(int memory, std::span<const std::byte> data, uint64_t offset) {
  while (!data.empty()) {
    const ssize_t written = ::pwrite(memory, data.data(), data.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return system_error("no memory for an image", written < 0 ? errno : ENOMEM);
    data = data.subspan(static_cast<size_t>(written));
    offset += static_cast<uint64_t>(written);
  }
  return Status();
}

std::optional<uint64_t> size_of(int descriptor) {
  struct stat about {};
  if (::fstat(descriptor, &about) != 0 || about.st_size <= 0) return std::nullopt;
  return static_cast<uint64_t>(about.st_size);
}

Status broken(const Sha256Digest& hash, const std::string& what) {
  return {StatusCode::kProtocol, fmt::format("image {}: {}", to_hex(hash), what)};
}

std::optional<Sha256Digest> digest_of(std::span<const std::byte> hash) {
  Sha256Digest digest;
  if (hash.size() != sizeof(digest)) return std::nullopt;
  std::memcpy(digest.data(), hash.data(), sizeof(digest));
  return digest;
}

Result<Image> there(std::optional<Image> image) {
  if (image) return std::move(*image);
  return Status(StatusCode::kNotFound, "the image is not there");
}

}  // namespace

Result<Fd> ImageSource::begin(uint32_t, uint64_t bytes) {
  Fd memory(::memfd_create("fargpu-image", MFD_CLOEXEC));
  if (!memory.valid() || ::ftruncate(memory.get(), static_cast<off_t>(bytes)) != 0)
    return system_error("no memory for an image", errno);
  return memory;
}

bool ImageSource::keep(uint32_t, const Sha256Digest&) { return false; }
void ImageSource::end(uint32_t) {}
Fd ImageSource::find(const Sha256Digest&) { return Fd(); }

Result<SessionImages::Upload> SessionImages::begin(const Sha256Digest& hash, uint64_t total_bytes) {
  if (total_bytes == 0 || total_bytes > cap_) {
    return broken(hash, fmt::format("{} bytes announced; an image may have {} (--image-cache)",
                                    total_bytes, cap_));
  }
  make_room_for(total_bytes);
  Upload upload;
  upload.expected = hash;
  upload.total = total_bytes;
  upload.number = next_number_++;
  FARGPU_ASSIGN_OR_RETURN(Fd memory, source_.begin(upload.number, total_bytes));
  upload.memory = std::make_shared<Fd>(std::move(memory));
  return upload;
}

Status SessionImages::put(uint64_t number, const Sha256Digest& hash, uint64_t total_bytes,
                          uint64_t offset, std::span<const std::byte> piece) {
  for (const auto& [failed, why] : failures_) {
    if (failed == number) return why;
  }
  auto found = uploads_.find(number);
  if (found == uploads_.end()) {
    if (offset != 0)
      return fail(number, broken(hash, fmt::format("a piece at {} without a beginning", offset)));
    if (uploads_.size() >= kMaxUploads) give_up_one();
    Result<Upload> begun = begin(hash, total_bytes);
    if (!begun.ok()) return fail(number, begun.status());
    found = uploads_.emplace(number, std::move(*begun)).first;
  }
  Upload& upload = found->second;
  if (hash != upload.expected)
    return fail(number, broken(hash, "a piece in the upload of " + to_hex(upload.expected)));
  upload.last_piece = ++pieces_;
  Status status = add(upload, total_bytes, offset, piece);
  if (status.ok() && upload.received == upload.total) {
    status = finish(upload, /*linked=*/false);
    if (status.ok()) uploads_.erase(found);
  }
  return status.ok() ? status : fail(number, std::move(status));
}

Status SessionImages::put_linked(const Sha256Digest& hash, std::span<const std::byte> bytes) {
  FARGPU_ASSIGN_OR_RETURN(Upload upload, begin(hash, bytes.size()));
  Status status = add(upload, bytes.size(), 0, bytes);
  if (status.ok()) status = finish(upload, /*linked=*/true);
  if (!status.ok()) source_.end(upload.number);
  return status;
}

Status SessionImages::add(Upload& upload, uint64_t total_bytes, uint64_t offset,
                          std::span<const std::byte> piece) {
  if (total_bytes != upload.total || offset != upload.received || piece.empty() ||
      piece.size() > upload.total - upload.received) {
    return broken(upload.expected, fmt::format("{} bytes at {} of {}, after {} of {}", piece.size(),
                                               offset, total_bytes, upload.received, upload.total));
  }
  while (!piece.empty()) {
    const std::span<const std::byte> part = own_copy(piece);
    upload.hash.update(part);
    FARGPU_RETURN_IF_ERROR(write_all(upload.memory->get(), part, upload.received));
    upload.received += part.size();
    piece = piece.subspan(part.size());
  }
  return Status();
}

// The one read of the client's bytes: its kernels may write to the memory where they lie, also now.
std::span<const std::byte> SessionImages::own_copy(std::span<const std::byte> piece) {
  constexpr size_t kBytes = 128 << 10;
  if (own_.empty()) own_.resize(kBytes);
  const size_t bytes = std::min(piece.size(), kBytes);
  std::memcpy(own_.data(), piece.data(), bytes);
  return {own_.data(), bytes};
}

Status SessionImages::finish(Upload& upload, bool linked) {
  const Sha256Digest real = upload.hash.finish();
  if (real != upload.expected)
    return broken(upload.expected, "the bytes have the hash " + to_hex(real));
  Whole whole{upload.expected, upload.memory, upload.number, upload.total, linked};
  whole.answered = linked || !source_.keep(upload.number, upload.expected);
  whole_.push_back(std::move(whole));
  keep_within_limits();
  return Status();
}

// All that the session has in memory is no more than the largest image may be.
void SessionImages::make_room_for(uint64_t bytes) {
  const auto used = [this] {
    uint64_t sum = 0;
    for (const auto& [number, upload] : uploads_) sum += upload.total;
    for (const Whole& whole : whole_) sum += whole.bytes;
    return sum;
  };
  while (used() > cap_ - bytes) whole_.empty() ? give_up_one() : (void)drop(whole_.begin(), true);
}

void SessionImages::keep_within_limits() {
  const auto linked =
      std::count_if(whole_.begin(), whole_.end(), [](const Whole& each) { return each.linked; });
  if (static_cast<size_t>(linked) > kMaxLinked) {
    drop(std::find_if(whole_.begin(), whole_.end(), [](const Whole& each) { return each.linked; }),
         true);
  }
  if (whole_.size() <= kMaxWhole) return;
  const auto loaded = std::find_if(whole_.begin(), whole_.end(),
                                   [](const Whole& each) { return each.loaded && !each.linked; });
  drop(loaded != whole_.end() ? loaded : whole_.begin(), true);
}

SessionImages::Wholes::iterator SessionImages::drop(Wholes::iterator whole, bool at_source) {
  if (at_source) source_.end(whole->number);
  std::erase_if(loading_, [](const auto& each) { return each.second.expired(); });
  loading_.emplace_back(whole->hash, whole->memory);
  return whole_.erase(whole);
}

void SessionImages::kept(uint32_t upload, bool kept) {
  const auto whole = std::find_if(whole_.begin(), whole_.end(),
                                  [upload](const Whole& each) { return each.number == upload; });
  if (whole == whole_.end()) return;
  whole->answered = true;
  if (kept || whole->loaded) drop(whole, !kept);
}

void SessionImages::revoked(uint32_t number) {
  for (auto& [id, upload] : uploads_) {
    if (upload.number != number) continue;
    (void)fail(id, {StatusCode::kNoCapacity, "an upload was given up for those of other sessions"});
    return;
  }
  const auto whole = std::find_if(whole_.begin(), whole_.end(),
                                  [number](const Whole& each) { return each.number == number; });
  if (whole != whole_.end()) drop(whole, false);
}

Status SessionImages::fail(uint64_t number, Status why) {
  if (const auto found = uploads_.find(number); found != uploads_.end()) {
    source_.end(found->second.number);
    uploads_.erase(found);
  }
  failures_.emplace_back(number, why);
  if (failures_.size() > kMaxFailures) failures_.pop_front();
  return why;
}

void SessionImages::give_up_one() {
  const auto oldest = std::min_element(
      uploads_.begin(), uploads_.end(),
      [](const auto& a, const auto& b) { return a.second.last_piece < b.second.last_piece; });
  (void)fail(oldest->first, broken(oldest->second.expected, "given up for newer uploads"));
}

Status SessionImages::result_of(uint64_t number) {
  const auto failed = std::find_if(failures_.begin(), failures_.end(),
                                   [&](const auto& failure) { return failure.first == number; });
  if (failed == failures_.end()) {
    if (const auto found = uploads_.find(number); found != uploads_.end()) {
      (void)fail(number, broken(found->second.expected, "the image is not complete"));
      return result_of(number);
    }
    return Status();
  }
  Status why = std::move(failed->second);
  failures_.erase(failed);
  return why;
}

std::optional<Image> SessionImages::mapped(const std::shared_ptr<Fd>& memory, uint64_t bytes) {
  Result<Image> image = Image::map(memory, static_cast<size_t>(bytes));
  if (image.ok()) return std::move(*image);
  log::warn("image of {} bytes: {}", bytes, image.status().message());
  return std::nullopt;
}

std::optional<Image> SessionImages::get_own(const Sha256Digest& hash) {
  const auto whole = std::find_if(whole_.rbegin(), whole_.rend(),
                                  [&](const Whole& each) { return each.hash == hash; });
  return whole == whole_.rend() ? std::nullopt : mapped(whole->memory, whole->bytes);
}

std::optional<Image> SessionImages::get(const Sha256Digest& hash) {
  for (auto whole = whole_.begin(); whole != whole_.end(); ++whole) {
    if (whole->hash != hash) continue;
    std::optional<Image> image = mapped(whole->memory, whole->bytes);
    whole->loaded = true;
    if (whole->answered && !whole->linked) drop(whole, true);
    return image;
  }
  for (const auto& [name, weak] : loading_) {
    const auto memory = name == hash ? weak.lock() : nullptr;
    if (memory == nullptr) continue;
    if (const auto bytes = size_of(memory->get())) return mapped(memory, *bytes);
  }
  const auto file = std::make_shared<Fd>(source_.find(hash));
  const auto bytes = file->valid() ? size_of(file->get()) : std::nullopt;
  return bytes ? mapped(file, *bytes) : std::nullopt;
}

Result<Image> SessionImages::find(std::span<const std::byte> hash) {
  const auto digest = digest_of(hash);
  return there(digest ? get(*digest) : std::nullopt);
}

Result<Image> SessionImages::find_own(std::span<const std::byte> hash) {
  const auto digest = digest_of(hash);
  return there(digest ? get_own(*digest) : std::nullopt);
}

}  // namespace fargpu::server
