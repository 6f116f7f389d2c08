// Common header of the CPU front end. Each file is compiled once per instruction set, with HB_BUILD set to its name.
// All code that depends on the instruction set is in an unnamed namespace, so that the linker does not merge code from
// different builds. A file defines the `hb_ops` of its families, named HB_NAME(hb_ops_family).
#pragma once
#include "../hb_kernels.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#ifndef HB_BUILD
#define HB_BUILD generic
#define HB_SCALAR
#endif
#define HB_STRING2(x) #x
#define HB_STRING(x) HB_STRING2(x)
#define HB_JOIN2(a, b) a##_##b
#define HB_JOIN(a, b) HB_JOIN2(a, b)
#define HB_NAME(name) HB_JOIN(name, HB_BUILD)

#define HB_EVERY_FAMILY(X) \
  X(zfp) X(mpc) X(xpk) X(fp16) X(bf16) X(fp8_e4m3) X(fp8_e5m2) X(int8) X(int4) X(sign) X(topk) X(threshold) \
  X(rowsparse) X(2of4) X(grouped) X(mx) X(nvfp4)
#define X(family) extern "C" const hb_ops HB_NAME(hb_ops_##family);
HB_EVERY_FAMILY(X)
#undef X
extern "C" const hb_flat HB_NAME(hb_flat);
extern "C" const hb_halves HB_NAME(hb_halves);

namespace {
#include "../hb_lane.h"
#if defined(HB_SCALAR)
typedef hb_u32 hb_v;
typedef float hb_vf;
#define HB_LANES 1
#elif defined(__AVX512F__)
#include "../hb_lane_avx512.h"
#elif defined(__AVX2__)
#include "../hb_lane_avx2.h"
#else
#include "../hb_lane_vec4.h"
#endif
typedef hb_lane<hb_v> lanes;
typedef unsigned char byte;

constexpr uint64_t size_of(uint32_t type) { return type == HB_F32 ? 4 : type == HB_F64 ? 8 : type == HB_BYTES ? 1 : 2; }
}  // namespace
