#include "server/image_cache.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <vector>

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

bool read_all(int descriptor, std::span<std::byte> room) {
  while (!room.empty()) {
    const ssize_t got = ::read(descriptor, room.data(), room.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    room = room.subspan(static_cast<size_t>(got));
  }
  return true;
}

Status broken(const Sha256Digest& hash, const std::string& what) {
  return {StatusCode::kProtocol, fmt::format("image {}: {}", to_hex(hash), what)};
}

}  // namespace

ImageCache::~ImageCache() {
  for (const auto& [hash, upload] : uploads_) ::unlink(upload.path.c_str());
}

Status ImageCache::begin(const Sha256Digest& hash, uint64_t total_bytes) {
  if (total_bytes == 0 || total_bytes > cap_) {
    return broken(hash,
                  fmt::format("{} bytes announced; the image cache holds {}", total_bytes, cap_));
  }
  if (uploads_.size() >= kMaxUploads) return broken(hash, "too many images are being sent at once");
  Upload upload;
  upload.total = total_bytes;
  upload.path = fmt::format("{}/upload-{}-{}", folder_, ::getpid(), next_upload_++);
  upload.file.reset(::open(upload.path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!upload.file.valid()) return system_error("cannot create " + upload.path, errno);
  uploads_[hash] = std::move(upload);
  return Status();
}

Status ImageCache::put(const Sha256Digest& hash, uint64_t total_bytes, uint64_t offset,
                       std::span<const std::byte> piece) {
  auto found = uploads_.find(hash);
  if (offset == 0) {
    // From the start again: two threads of the client may send the same image. The first of them to
    // finish wins.
    if (found != uploads_.end()) {
      ::unlink(found->second.path.c_str());
      uploads_.erase(found);
    }
    FARGPU_RETURN_IF_ERROR(begin(hash, total_bytes));
    found = uploads_.find(hash);
  } else if (found == uploads_.end()) {
    // The other thread's upload of the same image came to its end: nothing is missing.
    if (fs::exists(path_of(hash))) return Status();
    return broken(hash, fmt::format("a piece at {} without a beginning", offset));
  }
  Upload& upload = found->second;
  if (offset < upload.received && total_bytes == upload.total &&
      piece.size() <= upload.received - offset) {
    return Status();  // the same bytes once more
  }
  if (total_bytes != upload.total || offset != upload.received || piece.empty() ||
      piece.size() > upload.total - upload.received) {
    return broken(hash, fmt::format("{} bytes at {} of {}, after {} of {}", piece.size(), offset,
                                    total_bytes, upload.received, upload.total));
  }
  FARGPU_RETURN_IF_ERROR(write_all(upload.file.get(), piece));
  upload.hash.update(piece);
  upload.received += piece.size();
  if (upload.received < upload.total) return Status();
  auto done = std::move(upload);
  uploads_.erase(found);
  return finish(hash, std::move(done));
}

Status ImageCache::finish(const Sha256Digest& hash, Upload upload) {
  const Sha256Digest real = upload.hash.finish();
  if (real != hash) {
    ::unlink(upload.path.c_str());
    return broken(hash, "the bytes have the hash " + to_hex(real));
  }
  make_room(upload.total);
  if (::rename(upload.path.c_str(), path_of(hash).c_str()) != 0) {
    const int error = errno;
    ::unlink(upload.path.c_str());
    return system_error("cannot keep image " + to_hex(hash), error);
  }
  return Status();
}

std::optional<Image> ImageCache::get(const Sha256Digest& hash) {
  const std::string path = path_of(hash);
  Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat about {};
  if (!file.valid() || ::fstat(file.get(), &about) != 0 || about.st_size <= 0) return std::nullopt;
  const size_t size = static_cast<size_t>(about.st_size);
  auto bytes = std::make_unique_for_overwrite<std::byte[]>(size + 1);
  const std::span room(bytes.get(), size);
  if (!read_all(file.get(), room) || sha256(room) != hash) {
    ::unlink(path.c_str());
    return std::nullopt;
  }
  bytes[size] = std::byte{0};
  ::futimens(file.get(), nullptr);  // used just now: make_room takes the oldest first
  return Image(std::move(bytes), size);
}

void ImageCache::make_room(uint64_t bytes) {
  struct File {
    fs::file_time_type used;
    uint64_t size;
    fs::path path;
  };
  std::vector<File> files;
  uint64_t total = bytes;
  std::error_code error;  // other workers remove files at the same time: what is gone is gone
  for (fs::directory_iterator entry(folder_, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().filename().string().starts_with("upload-")) continue;
    std::error_code gone;
    File file{entry->last_write_time(gone), entry->file_size(gone), entry->path()};
    if (gone) continue;
    total += file.size;
    files.push_back(std::move(file));
  }
  std::sort(files.begin(), files.end(),
            [](const File& a, const File& b) { return a.used < b.used; });
  for (size_t i = 0; total > cap_ && i < files.size(); ++i) {
    if (fs::remove(files[i].path, error)) total -= files[i].size;
  }
}

}  // namespace fargpu::server
