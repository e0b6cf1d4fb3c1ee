// What is destroyed is released: events may be made and destroyed without end, and nothing of them
// stays behind. 500000 of them, or what 8 s allow.
#include "tests/orderings/check.h"

namespace {

// Sanitizers keep freed memory for a while.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr long kMayGrowKib = 1 << 20;
#else
constexpr long kMayGrowKib = 2 << 10;
#endif

long resident_kib() {
  long size = 0, pages = 0;
  FILE* file = std::fopen("/proc/self/statm", "r");
  HOLDS(file != nullptr && std::fscanf(file, "%ld %ld", &size, &pages) == 2);
  std::fclose(file);
  return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

// fargpu takes the memory of its connection while a program does its first work.
long settled_kib() {
  constexpr long kSettled = 64;
  long before = resident_kib();
  for (;;) {
    usleep(200000);
    const long now = resident_kib();
    if (now - before < kSettled) return now;
    before = now;
  }
}

int make_and_destroy(int count) {
  const double end = now_seconds() + 8;
  int made = 0;
  for (; made < count && now_seconds() < end; made += 1000) {
    for (int i = 0; i < 1000; ++i) {
      const CUevent event = make_event();
      HOLDS(event != nullptr);
      CU(cuEventDestroy(event));
    }
  }
  CU(cuCtxSynchronize());
  return made;
}

}  // namespace

int main() {
  begin();
  use_primary();
  step("events made and destroyed");
  make_and_destroy(50000);
  const long before = settled_kib();
  const int made = make_and_destroy(500000);
  const long grown = resident_kib() - before;
  if (grown > kMayGrowKib) wrong("%d events have left %ld KiB", made, grown);
  right();
}
