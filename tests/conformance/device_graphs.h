// Kernels that launch graphs and update nodes, for conformance programs.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "tests/conformance/conformance.h"

// Each has a log as its first parameter: a count, then the values that were noted.
// mark(log, value): each block notes value + its number.
// launch(log, exec, stream, value): notes value and 1000 + what cudaGraphLaunch returned.
// relaunch(log, left): notes *left, takes 1 from it and launches its own graph as a tail as long as
// something is left; a launch that fails is noted as 1000 + the result.
// which(log, exec): notes 1 in the graph `exec`, 0 in none, else 2.
// update(log, node, offset, value, what): notes 1000 + the result of setting 4 bytes of the node's
// parameters (what 0), enabling it (1), or giving it `value` blocks (2).
// update_all(log, node, offset, value): parameter, blocks and enabling in one call.
inline const char* kGraphKernels = R"ptx(
.version 8.4
.target sm_75
.address_size 64

.extern .func (.param .b32 result) cudaGraphLaunch(.param .b64 exec, .param .b64 stream);
.extern .func (.param .b32 result) cudaGraphKernelNodeSetParam(
    .param .b64 node, .param .b64 offset, .param .b64 value, .param .b64 size);
.extern .func (.param .b32 result) cudaGraphKernelNodeSetEnabled(
    .param .b64 node, .param .b32 enable);
.extern .func (.param .b32 result) cudaGraphKernelNodeSetGridDim(
    .param .b64 node, .param .align 4 .b8 dim[12]);
.extern .func (.param .b32 result) cudaGraphKernelNodeUpdatesApply(
    .param .b64 updates, .param .b64 count);

.func note(.param .b64 log, .param .b32 value)
{
  .reg .b32 %r<3>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [log];
  ld.param.u32 %r1, [value];
  cvta.to.global.u64 %rd1, %rd1;
  atom.global.add.u32 %r2, [%rd1], 1;
  mul.wide.u32 %rd2, %r2, 4;
  add.s64 %rd3, %rd1, %rd2;
  st.global.u32 [%rd3+4], %r1;
  membar.gl;
  ret;
}

.func note_result(.param .b64 log, .param .b32 value)
{
  .reg .b32 %r<2>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [log];
  ld.param.u32 %r1, [value];
  add.s32 %r1, %r1, 1000;
  {
    .param .b64 first;
    st.param.b64 [first], %rd1;
    .param .b32 second;
    st.param.b32 [second], %r1;
    call.uni note, (first, second);
  }
  ret;
}

.visible .entry mark(.param .u64 log, .param .u32 value)
{
  .reg .b32 %r<3>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [log];
  ld.param.u32 %r1, [value];
  mov.u32 %r2, %ctaid.x;
  add.s32 %r1, %r1, %r2;
  {
    .param .b64 first;
    st.param.b64 [first], %rd1;
    .param .b32 second;
    st.param.b32 [second], %r1;
    call.uni note, (first, second);
  }
  ret;
}

.visible .entry launch(.param .u64 log, .param .u64 exec, .param .u64 stream, .param .u32 value)
{
  .reg .b32 %r<3>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [log];
  ld.param.u64 %rd2, [exec];
  ld.param.u64 %rd3, [stream];
  ld.param.u32 %r1, [value];
  {
    .param .b64 first;
    st.param.b64 [first], %rd1;
    .param .b32 second;
    st.param.b32 [second], %r1;
    call.uni note, (first, second);
  }
  {
    .param .b64 first;
    st.param.b64 [first], %rd2;
    .param .b64 second;
    st.param.b64 [second], %rd3;
    .param .b32 back;
    call.uni (back), cudaGraphLaunch, (first, second);
    ld.param.b32 %r2, [back];
  }
  {
    .param .b64 first;
    st.param.b64 [first], %rd1;
    .param .b32 second;
    st.param.b32 [second], %r2;
    call.uni note_result, (first, second);
  }
  ret;
}

.visible .entry relaunch(.param .u64 log, .param .u64 left)
{
  .reg .pred %p<3>;
  .reg .b32 %r<4>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [log];
  ld.param.u64 %rd2, [left];
  cvta.to.global.u64 %rd2, %rd2;
  ld.global.u32 %r1, [%rd2];
  {
    .param .b64 first;
    st.param.b64 [first], %rd1;
    .param .b32 second;
    st.param.b32 [second], %r1;
    call.uni note, (first, second);
  }
  sub.s32 %r1, %r1, 1;
  st.global.u32 [%rd2], %r1;
  setp.le.s32 %p1, %r1, 0;
  @%p1 bra done;
  mov.u64 %rd3, %current_graph_exec;
  {
    .param .b64 first;
    st.param.b64 [first], %rd3;
    .param .b64 second;
    st.param.b64 [second], 0x0100000000000000;
    .param .b32 back;
    call.uni (back), cudaGraphLaunch, (first, second);
    ld.param.b32 %r2, [back];
  }
  setp.eq.s32 %p2, %r2, 0;
  @%p2 bra done;
  {
    .param .b64 first;
    st.param.b64 [first], %rd1;
    .param .b32 second;
    st.param.b32 [second], %r2;
    call.uni note_result, (first, second);
  }
done:
  ret;
}

.visible .entry which(.param .u64 log, .param .u64 exec)
{
  .reg .pred %p<3>;
  .reg .b32 %r<2>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [log];
  ld.param.u64 %rd2, [exec];
  mov.u64 %rd3, %current_graph_exec;
  setp.eq.u64 %p1, %rd2, %rd3;
  setp.eq.u64 %p2, %rd3, 0;
  selp.b32 %r1, 1, 2, %p1;
  selp.b32 %r1, 0, %r1, %p2;
  {
    .param .b64 first;
    st.param.b64 [first], %rd1;
    .param .b32 second;
    st.param.b32 [second], %r1;
    call.uni note, (first, second);
  }
  ret;
}

.visible .entry update(.param .u64 log, .param .u64 node, .param .u64 offset, .param .u32 value,
                       .param .u32 what)
{
  .local .align 8 .b8 room[8];
  .reg .pred %p<3>;
  .reg .b32 %r<5>;
  .reg .b64 %rd<6>;
  ld.param.u64 %rd1, [log];
  ld.param.u64 %rd2, [node];
  ld.param.u64 %rd3, [offset];
  ld.param.u32 %r1, [value];
  ld.param.u32 %r2, [what];
  setp.eq.u32 %p1, %r2, 1;
  @%p1 bra enable;
  setp.eq.u32 %p2, %r2, 2;
  @%p2 bra grid;
  mov.u64 %rd4, room;
  cvta.local.u64 %rd5, %rd4;
  st.local.u32 [room], %r1;
  {
    .param .b64 p0;
    st.param.b64 [p0], %rd2;
    .param .b64 p1;
    st.param.b64 [p1], %rd3;
    .param .b64 p2;
    st.param.b64 [p2], %rd5;
    .param .b64 p3;
    st.param.b64 [p3], 4;
    .param .b32 back;
    call.uni (back), cudaGraphKernelNodeSetParam, (p0, p1, p2, p3);
    ld.param.b32 %r3, [back];
  }
  bra.uni done;
enable:
  {
    .param .b64 p0;
    st.param.b64 [p0], %rd2;
    .param .b32 p1;
    st.param.b32 [p1], %r1;
    .param .b32 back;
    call.uni (back), cudaGraphKernelNodeSetEnabled, (p0, p1);
    ld.param.b32 %r3, [back];
  }
  bra.uni done;
grid:
  {
    .param .b64 p0;
    st.param.b64 [p0], %rd2;
    .param .align 4 .b8 p1[12];
    st.param.b32 [p1], %r1;
    st.param.b32 [p1+4], 1;
    st.param.b32 [p1+8], 1;
    .param .b32 back;
    call.uni (back), cudaGraphKernelNodeSetGridDim, (p0, p1);
    ld.param.b32 %r3, [back];
  }
done:
  {
    .param .b64 first;
    st.param.b64 [first], %rd1;
    .param .b32 second;
    st.param.b32 [second], %r3;
    call.uni note_result, (first, second);
  }
  ret;
}

.visible .entry update_all(.param .u64 log, .param .u64 node, .param .u64 offset,
                           .param .u32 value)
{
  .local .align 8 .b8 updates[128];
  .reg .b32 %r<5>;
  .reg .b64 %rd<8>;
  ld.param.u64 %rd1, [log];
  ld.param.u64 %rd2, [node];
  ld.param.u64 %rd3, [offset];
  ld.param.u32 %r1, [value];
  mov.u64 %rd4, updates;
  cvta.local.u64 %rd5, %rd4;
  add.s64 %rd6, %rd5, 120;
  mov.u64 %rd7, 4;
  st.local.u32 [updates+120], %r1;
  st.local.u64 [updates], %rd2;
  mov.u32 %r2, 2;
  st.local.u32 [updates+8], %r2;
  st.local.u64 [updates+16], %rd6;
  st.local.u64 [updates+24], %rd3;
  st.local.u64 [updates+32], %rd7;
  st.local.u64 [updates+40], %rd2;
  mov.u32 %r3, 1;
  st.local.u32 [updates+48], %r3;
  st.local.u32 [updates+56], %r2;
  st.local.u32 [updates+60], %r3;
  st.local.u32 [updates+64], %r3;
  st.local.u64 [updates+80], %rd2;
  mov.u32 %r4, 3;
  st.local.u32 [updates+88], %r4;
  st.local.u32 [updates+96], %r3;
  {
    .param .b64 p0;
    st.param.b64 [p0], %rd5;
    .param .b64 p1;
    st.param.b64 [p1], 3;
    .param .b32 back;
    call.uni (back), cudaGraphKernelNodeUpdatesApply, (p0, p1);
    ld.param.b32 %r3, [back];
  }
  {
    .param .b64 first;
    st.param.b64 [first], %rd1;
    .param .b32 second;
    st.param.b32 [second], %r3;
    call.uni note_result, (first, second);
  }
  ret;
}
)ptx";

inline CUmodule module;    // of kGraphKernels
inline CUdeviceptr notes;  // the log

inline CUfunction kernel(const char* name) {
  CUfunction function;
  NEED(cuModuleGetFunction(&function, module, name));
  return function;
}

// Every parameter of the kernels, in 8 bytes each.
struct Arguments {
  uint64_t values[5];
  void* pointers[5] = {&values[0], &values[1], &values[2], &values[3], &values[4]};
};

// One thread.
inline CUDA_KERNEL_NODE_PARAMS node_params(const char* name, Arguments& arguments) {
  CUDA_KERNEL_NODE_PARAMS params{};
  params.func = kernel(name);
  params.gridDimX = params.gridDimY = params.gridDimZ = 1;
  params.blockDimX = params.blockDimY = params.blockDimZ = 1;
  params.kernelParams = arguments.pointers;
  return params;
}
