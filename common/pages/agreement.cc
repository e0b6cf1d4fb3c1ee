#include "common/pages/agreement.h"

#include <sys/mman.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <utility>

namespace fargpu::pages {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

// Copies memory that others may write meanwhile. Each byte is read once and only the copy is used,
// so this is no data race that ThreadSanitizer should report.
void sample(std::byte* to, const std::byte* from, size_t bytes) {
#if defined(__SANITIZE_THREAD__) && defined(__x86_64__)
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
#else
  std::memcpy(to, from, bytes);
#endif
}

bool is_unchanged(const std::byte* memory, const std::byte* agreed, size_t bytes) {
#if defined(__SANITIZE_THREAD__)
  (void)memory, (void)agreed, (void)bytes;
  return false;  // the sample tells
#else
  return std::memcmp(memory, agreed, bytes) == 0;
#endif
}

uint64_t difference(const std::byte* a, const std::byte* b) {
  uint64_t x, y;
  std::memcpy(&x, a, sizeof x);
  std::memcpy(&y, b, sizeof y);
  return x ^ y;
}

// Whether one of the eight bytes is zero.
bool has_zero_byte(uint64_t word) {
  return ((word - 0x0101010101010101u) & ~word & 0x8080808080808080u) != 0;
}

// Loops over so many bytes have no way out in the middle, so that they become vector code.
constexpr size_t kStep = 64;

bool any_equal(const std::byte* a, const std::byte* b) {
  uint8_t any = 0;
  for (size_t i = 0; i < kStep; ++i) any |= static_cast<uint8_t>(a[i] == b[i]);
  return any != 0;
}

// The first place from `at` on where the two differ, or `end`.
size_t first_changed(const std::byte* a, const std::byte* b, size_t at, size_t end) {
  while (at + kStep <= end && std::memcmp(a + at, b + at, kStep) == 0) at += kStep;
  while (at + sizeof(uint64_t) <= end && difference(a + at, b + at) == 0) at += sizeof(uint64_t);
  while (at < end && a[at] == b[at]) ++at;
  return at;
}

// The first place from `at` on where the two are equal, or `end`.
size_t first_equal(const std::byte* a, const std::byte* b, size_t at, size_t end) {
  while (at + kStep <= end && !any_equal(a + at, b + at)) at += kStep;
  while (at + sizeof(uint64_t) <= end && !has_zero_byte(difference(a + at, b + at)))
    at += sizeof(uint64_t);
  while (at < end && a[at] != b[at]) ++at;
  return at;
}

// The end of a run that begins at `at` and may have gaps: behind the last changed byte before a
// word without any. Words are counted from `at` on.
size_t end_with_gaps(const std::byte* a, const std::byte* b, size_t at, size_t end) {
  size_t next = at;
  while (next + sizeof(uint64_t) <= end && difference(a + next, b + next) != 0)
    next += sizeof(uint64_t);
  if (next + sizeof(uint64_t) > end) next = end;
  while (a[next - 1] == b[next - 1]) --next;
  return next;
}

// Whether the changed bytes from `at` to `end` lie in one word, without others in its line. The
// piece begins at `address`; changes of it are known up to `known`.
bool is_alone(uint64_t address, const std::byte* now, const std::byte* agreed, size_t at,
              size_t end, size_t known, size_t bytes) {
  const uint64_t begin = address + at;
  if (begin / LateWords::kWord != (address + end - 1) / LateWords::kWord) return false;
  const uint64_t line = begin / LateWords::kLine * LateWords::kLine;
  const size_t first = line > address ? line - address : 0;
  const size_t last = std::min<size_t>(line + LateWords::kLine - address, bytes);
  const uint64_t word = begin / LateWords::kWord * LateWords::kWord;
  const size_t word_end = std::min<size_t>(word + LateWords::kWord - address, bytes);
  return known <= first && std::memcmp(now + word_end, agreed + word_end, last - word_end) == 0;
}

// Where a run that goes over the end of a line is divided, if it has one word at most in its first
// line or in its last one: that word may be a flag, although its neighbours in the other line were
// changed as well.
size_t end_at_line(uint64_t address, size_t at, size_t end) {
  constexpr uint64_t kLine = LateWords::kLine;
  const uint64_t first_end = (address + at) / kLine * kLine + kLine;
  if (first_end >= address + end) return end;
  if (first_end - address - at <= LateWords::kWord) return first_end - address;
  const uint64_t last = (address + end - 1) / kLine * kLine;
  return address + end - last <= LateWords::kWord ? last - address : end;
}

#if defined(__x86_64__)
// merge_changed() for whole lines; returns how much that is. Stores with a mask write the bytes of
// the mask alone.
[[gnu::target("avx512bw")]] size_t merge_lines(std::byte* here, const std::byte* agreed,
                                               const std::byte* theirs, size_t bytes) {
  size_t at = 0;
  for (; at + sizeof(__m512i) <= bytes; at += sizeof(__m512i)) {
    const __m512i old = _mm512_loadu_si512(agreed + at), now = _mm512_loadu_si512(theirs + at);
    const __mmask64 changed = _mm512_cmpneq_epi8_mask(now, old) &
                              _mm512_cmpeq_epi8_mask(_mm512_loadu_si512(here + at), old);
    _mm512_mask_storeu_epi8(here + at, changed, now);
  }
  return at;
}

bool merges_lines() {
  static const bool result = __builtin_cpu_supports("avx512bw") != 0;
  return result;
}
#else
size_t merge_lines(std::byte*, const std::byte*, const std::byte*, size_t) { return 0; }
bool merges_lines() { return false; }
#endif

// The bytes of `theirs` that differ from the agreed ones replace those here that do not.
void merge_changed(std::byte* here, const std::byte* agreed, const std::byte* theirs,
                   size_t bytes) {
  const auto one = [&](size_t i) {
    if (theirs[i] != agreed[i] && here[i] == agreed[i]) here[i] = theirs[i];
  };
  size_t at = merges_lines() ? merge_lines(here, agreed, theirs, bytes) : 0;
  for (; at + sizeof(uint64_t) <= bytes; at += sizeof(uint64_t)) {
    const uint64_t changed = difference(theirs + at, agreed + at);
    if (changed == 0) continue;
    if (!has_zero_byte(changed) && difference(here + at, agreed + at) == 0) {
      std::memcpy(here + at, theirs + at, sizeof(uint64_t));
      continue;
    }
    for (size_t i = at; i < at + sizeof(uint64_t); ++i) one(i);
  }
  for (; at < bytes; ++at) one(at);
}

}  // namespace

Agreement::Agreement(uint64_t address, size_t bytes) : address_(address), bytes_(bytes) {
  if (bytes == 0) return;
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  // Most of it is written when the region is sent for the first time.
  if (bytes >= kHugePage) ::madvise(memory, bytes, MADV_HUGEPAGE);
  agreed_ = static_cast<std::byte*>(memory);
}

Agreement::~Agreement() {
  if (agreed_ != nullptr) ::munmap(agreed_, bytes_);
}

void Agreement::swap(Agreement& other) noexcept {
  std::swap(address_, other.address_);
  std::swap(bytes_, other.bytes_);
  std::swap(agreed_, other.agreed_);
}

size_t Agreement::collect(const std::byte* memory, size_t from, size_t until, RunWriter& runs,
                          const Visit& visit, Gaps gaps, LateWords* late) {
  std::array<std::byte, kPage> now;
  while (from < until) {
    const size_t to_boundary = kPage - (address_ + from) % kPage;
    const size_t bytes = std::min(until - from, to_boundary);
    std::byte* const agreed = agreed_ + from;
    if (is_unchanged(memory + from, agreed, bytes)) {
      from += bytes;
      continue;
    }
    sample(now.data(), memory + from, bytes);
    if (visit) visit(address_ + from, std::span(now).first(bytes));
    // The end of the last change that went into `runs`, or of what is not known of its line.
    size_t known = (address_ + from) % LateWords::kLine != 0 ? 1 : 0;
    for (size_t at = first_changed(now.data(), agreed, 0, bytes); at < bytes;
         at = first_changed(now.data(), agreed, at, bytes)) {
      size_t end = bytes;
      if (gaps != Gaps::kBehind)
        end = gaps == Gaps::kInside ? end_with_gaps(now.data(), agreed, at, bytes)
                                    : first_equal(now.data(), agreed, at, bytes);
      if (late != nullptr) end = end_at_line(address_ + from, at, end);
      if (late != nullptr && is_alone(address_ + from, now.data(), agreed, at, end, known, bytes)) {
        if (late->full()) return from + at;
        end = first_equal(now.data(), agreed, at, end);
        late->add(address_ + from + at, end - at);
        std::memcpy(agreed + at, now.data() + at, end - at);
        at = end;
        continue;
      }
      // A word is not divided between two messages.
      const size_t whole = end;
      if (end - at > runs.room()) {
        const uint64_t reached = address_ + from + at + runs.room();
        const uint64_t boundary = reached / LateWords::kWord * LateWords::kWord;
        end = boundary > address_ + from + at ? boundary - address_ - from : at;
      }
      runs.add(address_ + from + at, std::span(now).subspan(at, end - at));
      std::memcpy(agreed + at, now.data() + at, end - at);
      if (end < whole) return from + end;
      at = end;
      known = end;
    }
    from += bytes;
  }
  return from;
}

bool Agreement::differs(size_t offset, std::span<const std::byte> now) const {
  return std::memcmp(now.data(), agreed_ + offset, now.size()) != 0;
}

bool Agreement::collect_word(size_t offset, std::span<const std::byte> now, RunWriter& runs) {
  std::byte* const agreed = agreed_ + offset;
  if (!differs(offset, now)) return true;
  if (!runs.has_room(now.size())) return false;
  runs.add(address_ + offset, now);
  std::memcpy(agreed, now.data(), now.size());
  return true;
}

void Agreement::agree(const ByteRun& run) {
  std::memcpy(agreed_ + (run.address - address_), run.data.data(), run.data.size());
}

void Agreement::merge(const ByteRun& run, std::byte* memory) {
  const size_t offset = run.address - address_;
  for (size_t at = 0; at < run.data.size(); at += kPage) {
    const size_t n = std::min(kPage, run.data.size() - at);
    std::byte* const here = memory + offset + at;
    std::byte* const agreed = agreed_ + offset + at;
    const std::byte* const theirs = run.data.data() + at;
    merge_changed(here, agreed, theirs, n);
    std::memcpy(agreed, theirs, n);
  }
}

}  // namespace fargpu::pages
