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
// The same of `value` and how often it has been done with this counter; one warp.
extern "C" __global__ void fill_counted(unsigned* to, unsigned value, unsigned words,
                                        unsigned* counter) {
  const unsigned count = *counter;
  for (unsigned i = threadIdx.x; i < words; i += blockDim.x) to[i] = value + count;
  __syncthreads();
  if (threadIdx.x == 0) *counter = count + 1;
}
extern "C" __global__ void copy_words(unsigned* to, const unsigned* from, unsigned words) {
  for (unsigned i = threadIdx.x; i < words; i += blockDim.x) to[i] = from[i];
}
extern "C" __global__ void fault() { *reinterpret_cast<volatile int*>(8) = 1; }

extern "C" __global__ void increment(int* value) { ++*value; }

// bytes[first + step * i] = value + i, by as many threads as there are.
extern "C" __global__ void store_bytes(unsigned char* bytes, int count, int first, int step,
                                       int value) {
  for (int i = threadIdx.x; i < count; i += blockDim.x)
    bytes[first + step * i] = static_cast<unsigned char>(value + i);
}

// Adds up bytes; one thread.
extern "C" __global__ void add_bytes(int* sum, const unsigned char* bytes, int count) {
  int total = 0;
  for (int i = 0; i < count; ++i) total += bytes[i];
  *sum = total;
}

// Stores 1, 2, 3 ... into one word for a while, then `last`.
extern "C" __global__ void keep_storing(volatile int* to, int last, unsigned microseconds) {
  unsigned long long begin, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  int value = 0;
  do {
    *to = ++value;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - begin < microseconds * 1000ull);
  *to = last;
}

// What the pointer in device memory points to; and the other way round.
extern "C" __global__ void load_through(int* to, const int* const* pointer) { *to = **pointer; }
// The first word before the second one.
extern "C" __global__ void load_both(unsigned* to, const volatile unsigned* first,
                                     const volatile unsigned* second) {
  to[0] = *first;
  __threadfence_system();
  to[1] = *second;
}
extern "C" __global__ void store_through(int* const* pointer, int value) { **pointer = value; }

// Loads when the host, or another stream, has written the word.
extern "C" __global__ void load_when_told(const volatile int* told, int* to,
                                          const volatile int* from) {
  while (*told == 0) {
  }
  __threadfence_system();
  *to = *from;
}

// Waits for `value` in the flag, `microseconds` at most, and then counts the words that are not
// `value` behind it. seen: 0 where the flag never came, 1, how many, and the first of them.
extern "C" __global__ void words_behind_flag(const volatile unsigned* flag, unsigned value,
                                             const volatile unsigned* data, unsigned words,
                                             unsigned stride, unsigned* seen,
                                             unsigned microseconds) {
  unsigned long long begin, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  now = begin;
  while (*flag != value && now - begin < microseconds * 1000ull)
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  if (*flag != value) {
    seen[0] = 0;
    return;
  }
  __threadfence_system();
  unsigned old = 0, first = 0;
  for (unsigned i = words; i-- > 0;) {
    if (data[i * stride] == value) continue;
    ++old;
    first = i;
  }
  seen[1] = old;
  seen[2] = first;
  seen[0] = 1;
}

// to[i * stride] = value + i.
extern "C" __global__ void store_strided(int* to, unsigned count, unsigned stride, int value) {
  for (unsigned i = threadIdx.x; i < count; i += blockDim.x) to[i * stride] = value + i;
}

// Round by round stores its number into all words and then, behind them, into the flag.
extern "C" __global__ void publish(volatile int* data, unsigned count, unsigned stride,
                                   volatile int* flag, int rounds, unsigned microseconds) {
  for (int round = 1; round <= rounds; ++round) {
    for (unsigned i = 0; i < count; ++i) data[i * stride] = round;
    __threadfence_system();
    *flag = round;
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    while (now - begin < microseconds * 1000ull);
  }
}

// Element `index` of a texture over memory or an array of ints, and of a surface.
extern "C" __global__ void read_linear_texture(int* to, cudaTextureObject_t texture, int index) {
  *to = tex1Dfetch<int>(texture, index);
}
extern "C" __global__ void read_array_texture(int* to, cudaTextureObject_t texture, int index) {
  *to = tex1D<int>(texture, static_cast<float>(index));
}
extern "C" __global__ void read_surface(int* to, cudaSurfaceObject_t surface, int index) {
  *to = surf1Dread<int>(surface, index * static_cast<int>(sizeof(int)));
}

// to[i] = from[i] * factor + add, by one block; `to` may be `from`.
extern "C" __global__ void scale_words(unsigned* to, const unsigned* from, unsigned words,
                                       unsigned factor, unsigned add) {
  for (unsigned i = threadIdx.x; i < words; i += blockDim.x) to[i] = from[i] * factor + add;
}

extern "C" {
__device__ int variable = 7;
}
