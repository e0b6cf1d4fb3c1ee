// A kernel for driver_fatbin; compiled to a fatbin and to PTX, never linked.
extern "C" __global__ void triple(int* data, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) data[i] *= 3;
}
