// C++ on the device: recursion, virtual functions, function pointers, switches, structures by
// value, printf, malloc, constant and global symbols, 64-bit arithmetic, half precision.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cassert>
#include <cstdio>

__constant__ float weights[8] = {1, 2, 3, 4, 5, 6, 7, 8};
__device__ int table[4] = {10, 20, 30, 40};

struct Point {
  double x, y;
  int tag;
};

__device__ __noinline__ Point mirrored(Point p) { return Point{p.y, p.x, p.tag + 1}; }
__device__ __noinline__ int ackermann(int m, int n) {
  if (m == 0) return n + 1;
  if (n == 0) return ackermann(m - 1, 1);
  return ackermann(m - 1, ackermann(m, n - 1));
}

struct Shape {
  __device__ virtual float area() const = 0;
  __device__ virtual ~Shape() {}
};
struct Square final : Shape {
  float a;
  __device__ explicit Square(float v) : a(v) {}
  __device__ float area() const override { return a * a; }
};
struct Circle final : Shape {
  float r;
  __device__ explicit Circle(float v) : r(v) {}
  __device__ float area() const override { return 3.0f * r * r; }
};

extern "C" __global__ void language(float* out, Point point, int n) {
  const int i = threadIdx.x;
  const Point m = mirrored(point);
  float result = static_cast<float>(m.x - m.y) + m.tag;
  result += weights[i % 8] + table[i % 4];
  switch (i % 7) {
    case 0:
      result += 100;
      break;
    case 1:
      result *= 2;
      break;
    case 2:
      result -= 3;
      break;
    case 3:
      result += weights[3];
      [[fallthrough]];
    case 4:
      result += 0.5f;
      break;
    default:
      result = -result;
      break;
  }
  Shape* shape = nullptr;
  if (i % 2 == 0)
    shape = new Square(static_cast<float>(i));
  else
    shape = new Circle(static_cast<float>(i));
  result += shape->area();
  delete shape;
  result += ackermann(2, i % 4);
  out[i] = result;
  assert(i < n);
}

extern "C" __global__ void say(int n) {
  if (threadIdx.x < n)
    printf("thread %d of %u: %5.2f %s %c %llx\n", threadIdx.x, blockDim.x, threadIdx.x * 0.5,
           "text", 'a' + threadIdx.x, 0x123456789abcdefULL);
}

extern "C" __global__ void big_numbers(const unsigned long long* a, const unsigned long long* b,
                                       unsigned long long* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const unsigned __int128 product = static_cast<unsigned __int128>(a[i]) * b[i];
  out[4 * i] =
      static_cast<unsigned long long>(product >> 64) ^ static_cast<unsigned long long>(product);
  out[4 * i + 1] = b[i] != 0 ? a[i] / b[i] + a[i] % b[i] : 0;
  out[4 * i + 2] =
      __umul64hi(a[i], b[i]) + __popcll(a[i]) + __clzll(b[i]) + __ffsll(a[i]) + __brevll(b[i]);
  out[4 * i + 3] = static_cast<unsigned long long>(static_cast<long long>(a[i]) /
                                                   (static_cast<long long>(b[i]) | 1));
}

extern "C" __global__ void halves(const float* in, float* out, int n) {
  const int i = threadIdx.x;
  const __half h = __float2half(in[i]), k = __float2half(0.5f);
  const __half2 pair = __halves2half2(h, k);
  const __half2 sum = __hfma2(pair, pair, __float2half2_rn(1.0f));
  const __nv_bfloat16 b = __float2bfloat16(in[i]);
  out[3 * i] = __half2float(__low2half(sum)) + __half2float(__high2half(sum));
  out[3 * i + 1] = __bfloat162float(__hmul(b, b)) + (__hgt(h, k) ? 1.0f : 0.0f);
  out[3 * i + 2] = static_cast<float>(__half2int_rn(__hadd(h, k)));
}

extern "C" __global__ void mathematics(const double* in, double* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const double v = in[i];
  double* o = out + 16 * i;
  o[0] = sin(v);
  o[1] = cos(v);
  o[2] = exp(v * 0.1);
  o[3] = log(v + 20);
  o[4] = pow(v + 20, 1.5);
  o[5] = sqrt(v + 20) / (v + 21);
  o[6] = atan2(v, 2.0);
  o[7] = erf(v * 0.1);
  const float f = static_cast<float>(v);
  o[8] = sinf(f);
  o[9] = expf(f * 0.1f);
  o[10] = logf(f + 20);
  o[11] = powf(f + 20, 1.5f);
  o[12] = fmodf(f, 3.0f);
  o[13] = cbrt(v);
  o[14] = tgamma(v * 0.1 + 3);
  o[15] = rint(v) + floor(v) + trunc(v) + static_cast<double>(static_cast<long long>(v)) +
          __double2uint_rz(v + 20);
}

// Quotient and remainder of n divisions; low words first.
extern "C" __global__ void divide_128(const unsigned long long* a, const unsigned long long* b,
                                      unsigned long long* out, unsigned n) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const auto wide = [i](const unsigned long long* words) {
    return static_cast<unsigned __int128>(words[2 * i + 1]) << 64 | words[2 * i];
  };
  const unsigned __int128 quotient = wide(a) / wide(b), rest = wide(a) % wide(b);
  out[4 * i] = static_cast<unsigned long long>(quotient);
  out[4 * i + 1] = static_cast<unsigned long long>(quotient >> 64);
  out[4 * i + 2] = static_cast<unsigned long long>(rest);
  out[4 * i + 3] = static_cast<unsigned long long>(rest >> 64);
}
