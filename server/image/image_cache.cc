#include "server/image/image_cache.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include "common/base/log.h"
#include "common/host/sealed_file.h"

namespace fargpu::server {
namespace {

namespace fs = std::filesystem;

Status write_all(int descriptor, std::span<const std::byte> data) {
  while (!data.empty()) {
    const ssize_t written = ::write(descriptor, data.data(), data.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return system_error("cannot write to the image cache", errno);
    data = data.subspan(static_cast<size_t>(written));
  }
  return Status();
}

// When a file was last used is its time of access.
constexpr timespec kNow{0, UTIME_NOW}, kLeftAlone{0, UTIME_OMIT};

void is_used_now(int descriptor) {
  const timespec times[2] = {kNow, kLeftAlone};
  ::futimens(descriptor, times);
}

bool less(const timespec& a, const timespec& b) {
  return std::pair(a.tv_sec, a.tv_nsec) < std::pair(b.tv_sec, b.tv_nsec);
}

// A file of this cache that is whole, by its name: nothing else is ever removed.
bool is_image(const std::string& name) {
  return name.size() == 2 * sizeof(Sha256Digest) &&
         name.find_first_not_of("0123456789abcdef") == std::string::npos;
}

Status broken(const Sha256Digest& hash, const std::string& what) {
  return {StatusCode::kProtocol, fmt::format("image {}: {}", to_hex(hash), what)};
}

}  // namespace

ImageCache::~ImageCache() {
  for (const auto& [number, upload] : uploads_) ::unlink(upload.path.c_str());
}

Result<ImageCache::Upload> ImageCache::begin(const Sha256Digest& hash, uint64_t total_bytes) {
  if (total_bytes == 0 || total_bytes > cap_) {
    return broken(hash,
                  fmt::format("{} bytes announced; the image cache holds {}", total_bytes, cap_));
  }
  Upload upload;
  upload.expected = hash;
  upload.total = total_bytes;
  // A worker of another process namespace may have the same number.
  constexpr int kAttempts = 1000;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    upload.path = fmt::format("{}/upload-{}-{}", folder_, ::getpid(), next_file_++);
    upload.file.reset(::open(upload.path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (upload.file.valid() || errno != EEXIST) break;
  }
  if (!upload.file.valid()) return system_error("cannot create " + upload.path, errno);
  return upload;
}

Status ImageCache::put(uint64_t number, const Sha256Digest& hash, uint64_t total_bytes,
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
    status = finish(upload);
    if (status.ok()) uploads_.erase(found);
  }
  return status.ok() ? status : fail(number, std::move(status));
}

Status ImageCache::put(const Sha256Digest& hash, std::span<const std::byte> bytes) {
  FARGPU_ASSIGN_OR_RETURN(Upload upload, begin(hash, bytes.size()));
  Status status = add(upload, bytes.size(), 0, bytes);
  if (status.ok()) status = finish(upload);
  if (!status.ok()) ::unlink(upload.path.c_str());
  return status;
}

Status ImageCache::add(Upload& upload, uint64_t total_bytes, uint64_t offset,
                       std::span<const std::byte> piece) {
  if (total_bytes != upload.total || offset != upload.received || piece.empty() ||
      piece.size() > upload.total - upload.received) {
    return broken(upload.expected, fmt::format("{} bytes at {} of {}, after {} of {}", piece.size(),
                                               offset, total_bytes, upload.received, upload.total));
  }
  while (!piece.empty()) {
    const std::span<const std::byte> part = own_copy(piece);
    upload.hash.update(part);
    FARGPU_RETURN_IF_ERROR(write_all(upload.file.get(), part));
    upload.received += part.size();
    piece = piece.subspan(part.size());
  }
  return Status();
}

// The one read of the client's bytes: its kernels may write to the memory where they lie, also now.
std::span<const std::byte> ImageCache::own_copy(std::span<const std::byte> piece) {
  constexpr size_t kBytes = 128 << 10;
  if (own_.empty()) own_.resize(kBytes);
  const size_t bytes = std::min(piece.size(), kBytes);
  std::memcpy(own_.data(), piece.data(), bytes);
  return {own_.data(), bytes};
}

Status ImageCache::finish(Upload& upload) {
  const Sha256Digest real = upload.hash.finish();
  if (real != upload.expected)
    return broken(upload.expected, "the bytes have the hash " + to_hex(real));
  FARGPU_RETURN_IF_ERROR(seal_file(upload.file.get(), folder_));
  make_room(upload.total);
  if (::rename(upload.path.c_str(), path_of(upload.expected).c_str()) != 0)
    return system_error("cannot keep image " + to_hex(upload.expected), errno);
  return Status();
}

Status ImageCache::fail(uint64_t number, Status why) {
  if (const auto found = uploads_.find(number); found != uploads_.end()) {
    ::unlink(found->second.path.c_str());
    uploads_.erase(found);
  }
  failures_.emplace_back(number, why);
  if (failures_.size() > kMaxFailures) failures_.pop_front();
  return why;
}

void ImageCache::give_up_one() {
  const auto oldest = std::min_element(
      uploads_.begin(), uploads_.end(),
      [](const auto& a, const auto& b) { return a.second.last_piece < b.second.last_piece; });
  (void)fail(oldest->first, broken(oldest->second.expected, "given up for newer uploads"));
}

Status ImageCache::result_of(uint64_t number) {
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

std::optional<Image> ImageCache::get(const Sha256Digest& hash) {
  const std::string path = path_of(hash);
  const Fd file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  struct stat about {};
  if (!file.valid() || ::fstat(file.get(), &about) != 0) return std::nullopt;
  if (!is_sealed(about)) {
    log::warn("image {} is not as it was kept: removed", to_hex(hash));
    ::unlink(path.c_str());
    return std::nullopt;
  }
  Result<Image> image = Image::map(file.get(), static_cast<size_t>(about.st_size));
  if (!image.ok()) {
    log::warn("image {}: {}", to_hex(hash), image.status().message());
    return std::nullopt;
  }
  is_used_now(file.get());
  return std::move(*image);
}

void ImageCache::make_room(uint64_t bytes) {
  struct File {
    timespec used;
    uint64_t size;
    fs::path path;
  };
  std::vector<File> files;
  uint64_t total = bytes;
  std::error_code error;  // other workers remove files at the same time: what is gone is gone
  for (fs::directory_iterator entry(folder_, error), end; !error && entry != end;
       entry.increment(error)) {
    if (!is_image(entry->path().filename().string())) continue;
    struct stat about {};
    if (::lstat(entry->path().c_str(), &about) != 0) continue;
    files.push_back({about.st_atim, static_cast<uint64_t>(about.st_size), entry->path()});
    total += files.back().size;
  }
  std::sort(files.begin(), files.end(),
            [](const File& a, const File& b) { return less(a.used, b.used); });
  for (size_t i = 0; total > cap_ && i < files.size(); ++i) {
    if (fs::remove(files[i].path, error)) total -= files[i].size;
  }
}

Result<Image> ImageCache::find(std::span<const std::byte> hash) {
  Sha256Digest digest;
  if (hash.size() == sizeof(digest)) {
    std::memcpy(digest.data(), hash.data(), sizeof(digest));
    if (std::optional<Image> image = get(digest)) return std::move(*image);
  }
  return Status(StatusCode::kNotFound, "the image is not in the cache");
}

}  // namespace fargpu::server
