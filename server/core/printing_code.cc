#include "server/core/printing_code.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <new>
#include <string_view>
#include <utility>

#include "common/fatbin/contents.h"
#include "common/fatbin/prelinked.h"

namespace fargpu::server {
namespace {

// An entry that is larger is not unpacked. The largest of CUDA's libraries for one GPU has 105 MB.
constexpr uint64_t kMostUnpacked = 256 << 20;
constexpr std::string_view kPtxVersion = ".version";

// Of a cubin or PTX text.
bool may_print(std::string_view code) {
  const bool is_known = code.starts_with(kElfMagic) || code.find(kPtxVersion) != code.npos;
  return !is_known || code.find("vprintf") != code.npos;
}

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

bool may_print(const FatbinEntry& entry) {
  const auto kind = static_cast<EntryKind>(entry.kind);
  if (kind != EntryKind::kPtx && kind != EntryKind::kCubin) return true;
  if ((entry.flags & (kFatbinLz4 | kFatbinZstd)) == 0) return may_print(text_of(entry.payload));
  if (entry.uncompressed_bytes > kMostUnpacked) return true;
  const auto code = entry_contents(entry);
  return !code.ok() || may_print(std::string_view(*code));
}

}  // namespace

bool may_print(std::span<const std::byte> image, const std::atomic<bool>& stop) {
  const auto containers = read_prelinked(image);
  if (!containers.ok()) return true;
  if (!containers->empty()) {
    return std::any_of(containers->begin(), containers->end(),
                       [&stop](const auto& container) { return may_print(container, stop); });
  }
  const auto size = fatbin_size(image.first(std::min(image.size(), kFatbinHeaderBytes)));
  if (!size.ok()) return may_print(text_of(image));
  const auto entries = read_fatbin(image);
  if (!entries.ok() || text_of(image.subspan(*size)).find_first_not_of('\0') != std::string::npos)
    return true;
  return std::any_of(entries->begin(), entries->end(), [&stop](const FatbinEntry& entry) {
    return stop.load(std::memory_order_relaxed) || may_print(entry);
  });
}

PrintingCode::~PrintingCode() {
  {
    std::lock_guard lock(mutex_);
    stopping_.store(true, std::memory_order_relaxed);
  }
  more_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void PrintingCode::loads(std::span<const std::byte> image, std::shared_ptr<const void> owner) {
  suspects_.fetch_add(1, std::memory_order_relaxed);
  if (prints_.load(std::memory_order_relaxed)) return;
  {
    std::lock_guard lock(mutex_);
    images_.push_back({image, std::move(owner)});
  }
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  more_.notify_one();
}

// Without memory to unpack the image the answer is not known.
bool PrintingCode::looks_quiet(std::span<const std::byte> image) const {
  try {
    return !prints_.load(std::memory_order_relaxed) && !server::may_print(image, stopping_);
  } catch (const std::bad_alloc&) {
    return false;
  }
}

void PrintingCode::run() {
  // What it finds is in no hurry.
  constexpr int kNice = 10;
  (void)::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kNice);
  std::unique_lock lock(mutex_);
  for (;;) {
    more_.wait(lock, [this] { return stopping_.load() || !images_.empty(); });
    if (stopping_.load()) return;
    Image image = std::move(images_.front());
    images_.pop_front();
    lock.unlock();
    if (looks_quiet(image.bytes)) {
      suspects_.fetch_sub(1, std::memory_order_relaxed);
    } else {
      prints_.store(true, std::memory_order_relaxed);
    }
    image.owner.reset();
    lock.lock();
  }
}

}  // namespace fargpu::server
