// The device code of the conformance programs, as PTX text, so that they need no nvcc.
#pragma once

//   add(a, b, c, n)            c[i] = a[i] + b[i] (u32)
//   fill(p, value, n)          p[i] = value
//   write_at(address, value)   one thread writes, also where it must not
//   trap()                     stops
//   shared_sum(in, out)        128 values through static and dynamic shared memory
//   spin(p, n)                 counts to n in p[0], slowly
//   scale(p)                   p[i] *= factor, a constant
//   bump()                     adds 1 to the global variable counter
inline const char* kKernels = R"ptx(
.version 7.5
.target sm_75
.address_size 64

.visible .const .align 4 .u32 factor = 3;
.visible .global .align 4 .u32 counter = 40;
.visible .global .align 8 .b8 area[1024];
.extern .shared .align 4 .b8 dynamic[];

.visible .entry add(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n)
{
  .reg .pred %p<2>;
  .reg .b32 %r<10>;
  .reg .b64 %rd<12>;
  ld.param.u64 %rd1, [a];
  ld.param.u64 %rd2, [b];
  ld.param.u64 %rd3, [c];
  ld.param.u32 %r1, [n];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.s32 %r5, %r2, %r3, %r4;
  setp.ge.s32 %p1, %r5, %r1;
  @%p1 bra done;
  cvta.to.global.u64 %rd4, %rd1;
  cvta.to.global.u64 %rd5, %rd2;
  cvta.to.global.u64 %rd6, %rd3;
  mul.wide.s32 %rd7, %r5, 4;
  add.s64 %rd8, %rd4, %rd7;
  add.s64 %rd9, %rd5, %rd7;
  add.s64 %rd10, %rd6, %rd7;
  ld.global.u32 %r6, [%rd8];
  ld.global.u32 %r7, [%rd9];
  add.s32 %r8, %r6, %r7;
  st.global.u32 [%rd10], %r8;
done:
  ret;
}

.visible .entry fill(.param .u64 p, .param .u32 value, .param .u32 n)
{
  .reg .pred %p<2>;
  .reg .b32 %r<8>;
  .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [p];
  ld.param.u32 %r1, [value];
  ld.param.u32 %r2, [n];
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %ntid.x;
  mov.u32 %r5, %tid.x;
  mad.lo.s32 %r6, %r3, %r4, %r5;
  setp.ge.s32 %p1, %r6, %r2;
  @%p1 bra done;
  cvta.to.global.u64 %rd2, %rd1;
  mul.wide.s32 %rd3, %r6, 4;
  add.s64 %rd4, %rd2, %rd3;
  st.global.u32 [%rd4], %r1;
done:
  ret;
}

.visible .entry write_at(.param .u64 address, .param .u32 value)
{
  .reg .b32 %r<2>;
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [address];
  ld.param.u32 %r1, [value];
  cvta.to.global.u64 %rd2, %rd1;
  st.global.u32 [%rd2], %r1;
  ret;
}

.visible .entry trap_now()
{
  trap;
  ret;
}

.visible .entry shared_sum(.param .u64 in, .param .u64 out)
{
  .reg .pred %p<2>;
  .reg .b32 %r<12>;
  .reg .b64 %rd<9>;
  .shared .align 4 .b8 fixed[512];
  ld.param.u64 %rd1, [in];
  ld.param.u64 %rd2, [out];
  cvta.to.global.u64 %rd3, %rd1;
  cvta.to.global.u64 %rd4, %rd2;
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd5, %r1, 4;
  add.s64 %rd6, %rd3, %rd5;
  ld.global.u32 %r2, [%rd6];
  shl.b32 %r3, %r1, 2;
  mov.u32 %r4, fixed;
  add.s32 %r5, %r4, %r3;
  st.shared.u32 [%r5], %r2;
  mov.u32 %r6, dynamic;
  add.s32 %r7, %r6, %r3;
  st.shared.u32 [%r7], %r1;
  bar.sync 0;
  xor.b32 %r8, %r3, 508;
  add.s32 %r9, %r4, %r8;
  ld.shared.u32 %r10, [%r9];
  add.s32 %r9, %r6, %r8;
  ld.shared.u32 %r11, [%r9];
  add.s32 %r10, %r10, %r11;
  add.s64 %rd7, %rd4, %rd5;
  st.global.u32 [%rd7], %r10;
  ret;
}

.visible .entry spin(.param .u64 p, .param .u32 n)
{
  .reg .pred %p<2>;
  .reg .b32 %r<4>;
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [p];
  ld.param.u32 %r1, [n];
  cvta.to.global.u64 %rd2, %rd1;
  mov.u32 %r2, 0;
again:
  add.s32 %r2, %r2, 1;
  st.volatile.global.u32 [%rd2], %r2;
  setp.lt.u32 %p1, %r2, %r1;
  @%p1 bra again;
  ret;
}

.visible .entry scale(.param .u64 p)
{
  .reg .b32 %r<5>;
  .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [p];
  cvta.to.global.u64 %rd2, %rd1;
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd3, %r1, 4;
  add.s64 %rd4, %rd2, %rd3;
  ld.global.u32 %r2, [%rd4];
  ld.const.u32 %r3, [factor];
  mul.lo.s32 %r4, %r2, %r3;
  st.global.u32 [%rd4], %r4;
  ret;
}

.visible .entry bump()
{
  .reg .b32 %r<2>;
  atom.global.add.u32 %r1, [counter], 1;
  ret;
}
)ptx";
