// The kernels of all programs in this folder.

// Keeps one thread busy by the wall clock, which means the same on every device.
extern "C" __global__ void spin(unsigned microseconds) {
  unsigned long long begin, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  while (now - begin < microseconds * 1000ull);
}

extern "C" __global__ void store(int* to, int value) { *to = value; }
extern "C" __global__ void load(int* to, const int* from) { *to = *from; }

// One block, whatever its size.
extern "C" __global__ void fill_words(unsigned* to, unsigned value, unsigned words) {
  for (unsigned i = threadIdx.x; i < words; i += blockDim.x) to[i] = value;
}
extern "C" __global__ void copy_words(unsigned* to, const unsigned* from, unsigned words) {
  for (unsigned i = threadIdx.x; i < words; i += blockDim.x) to[i] = from[i];
}
extern "C" __global__ void fault() { *reinterpret_cast<volatile int*>(8) = 1; }
