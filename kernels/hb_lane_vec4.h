// 4 lanes in the vector extension of g++ and clang, lowered by the compiler: SSE2, NEON, VSX.
#pragma once
#include "hb_lane.h"

typedef hb_u32 hb_v __attribute__((vector_size(16)));
typedef hb_i32 hb_vi __attribute__((vector_size(16)));
typedef hb_u16 hb_vh __attribute__((vector_size(16)));
typedef float hb_vf __attribute__((vector_size(16)));
#define HB_LANES 4

template <> struct hb_lane<hb_v> {
  typedef hb_vi I;
  typedef hb_vf F;
  typedef hb_vi M;
  static constexpr bool single = false;
  static constexpr bool halves = false;
  static HB_FN bool any(hb_vi m) {
    typedef __UINT64_TYPE__ pair __attribute__((vector_size(16)));
    pair p = (pair)m;
    return (p[0] | p[1]) != 0;
  }
  static HB_FN F as_float(hb_v u) { return (hb_vf)u; }
  static HB_FN hb_v as_bits(F f) { return (hb_v)f; }
  static HB_FN I to_int(F f) { return __builtin_convertvector(f, hb_vi); }
  static HB_FN F to_float(I i) { return __builtin_convertvector(i, hb_vf); }
  static HB_FN hb_v max(hb_v a, hb_v b) { return a > b ? a : b; }
  static HB_FN hb_v look80(const hb_u16 *t, hb_v i) { return hb_v{t[i[0]], t[i[1]], t[i[2]], t[i[3]]}; }
  static HB_FN hb_v look256(const hb_u16 *t, hb_v i) { return look80(t, i); }
  static HB_FN hb_v brev(hb_v x) { return hb_brev_by_swaps(x); }
  static HB_FN hb_v shl(hb_v x, hb_v s) { return s < 32u ? x << (s & 31u) : x * 0u; }
  static HB_FN hb_v shr(hb_v x, hb_v s) { return s < 32u ? x >> (s & 31u) : x * 0u; }

  static HB_FN hb_v load(const hb_u32 *p) {
    hb_v x;
    __builtin_memcpy(&x, p, 16);
    return x;
  }
  static HB_FN void store(hb_u32 *p, hb_v x) { __builtin_memcpy(p, &x, 16); }
  // lane i gets the value of lane i ^ s, for s below the number of lanes
  template <int s> static HB_FN hb_v swap(hb_v x) { return hb_v{x[s], x[1 ^ s], x[2 ^ s], x[3 ^ s]}; }
  static HB_FN hb_v index() { return hb_v{0, 1, 2, 3}; }
  // shifts left by the count of each lane, 0 to 31
  static HB_FN hb_v rotate(hb_v x, hb_v n) { return x << n | x >> ((32u - n) & 31u); }
  // bits of a where the mask has ones, otherwise of b
  static HB_FN hb_v blend(hb_v mask, hb_v a, hb_v b) { return (a & mask) | (b & ~mask); }
  // lane i gets lane from[i], or 0 if from[i] is negative
  static HB_FN hb_v rise(hb_v x, hb_v from) {
    return (hb_v)__builtin_shuffle(x, from & 3u) & ((from >> 31) - 1u);
  }
  static HB_FN hb_v add16(hb_v a, hb_v b) { return (hb_v)((hb_vh)a + (hb_vh)b); }
  static HB_FN hb_v subtract16(hb_v a, hb_v b) { return (hb_v)((hb_vh)a - (hb_vh)b); }
  static HB_FN hb_v load8(const unsigned char *p) { return hb_v{p[0], p[1], p[2], p[3]}; }
  static HB_FN hb_v load8s(const unsigned char *p) { return (load8(p) ^ 0x80u) - 0x80u; }
  static HB_FN void store8(unsigned char *p, hb_v x) {
    for (int i = 0; i < 4; i++) p[i] = (unsigned char)x[i];
  }
  static HB_FN hb_v load16(const unsigned char *p) {
    hb_u16 t[4];
    __builtin_memcpy(t, p, 8);
    return hb_v{t[0], t[1], t[2], t[3]};
  }
  static HB_FN void store16(unsigned char *p, hb_v x) {
    hb_u16 t[4] = {(hb_u16)x[0], (hb_u16)x[1], (hb_u16)x[2], (hb_u16)x[3]};
    __builtin_memcpy(p, t, 8);
  }
  static HB_FN void store16(unsigned char *p, hb_v a, hb_v b) {  // one after the other
    store16(p, a);
    store16(p + 2 * 4, b);
  }
  static HB_FN hb_u32 bits(M m) {
    return ((hb_u32)m[0] & 1u) | ((hb_u32)m[1] & 2u) | ((hb_u32)m[2] & 4u) | ((hb_u32)m[3] & 8u);
  }
  static HB_FN M mask(hb_u32 bits) { return (bits & hb_v{1, 2, 4, 8}) != 0u; }
  static HB_FN hb_u32 top(hb_v x) {
    hb_u32 a = x[0] > x[1] ? x[0] : x[1], b = x[2] > x[3] ? x[2] : x[3];
    return a > b ? a : b;
  }
  // Stores the nonzero lanes in order at p, which needs space for a full vector. Returns a mask with one bit per lane.
  static HB_FN hb_u32 compress(hb_v x, hb_u32 *p) {
    hb_u32 mask = 0, n = 0;
    for (int i = 0; i < 4; i++) {
      p[n] = x[i];
      n += x[i] != 0u;
      mask |= (hb_u32)(x[i] != 0u) << i;
    }
    return mask;
  }
  // The same as `compress`, but for the lanes that a mask selects.
  static HB_FN hb_u32 pack(M m, hb_v x, hb_u32 *p) {
    hb_u32 mask = bits(m), n = 0;
    for (int i = 0; i < 4; i++) {
      __builtin_memcpy(p + n, (hb_u32 *)&x + i, 4);
      n += mask >> i & 1u;
    }
    return mask;
  }
  // Inverse operation. Reads a full vector from p.
  static HB_FN hb_v expand(hb_u32 mask, const hb_u32 *p) {
    hb_u32 r[4], n = 0;
    for (int i = 0; i < 4; i++) {
      r[i] = p[n] & (0u - (mask >> i & 1u));
      n += mask >> i & 1u;
    }
    return load(r);
  }
  // Running sum over the lanes, starting with `sum`, which is updated. All lanes of `sum` are equal.
  static HB_FN hb_v scan(hb_v x, hb_v &sum) {
    x += hb_v{0, x[0], x[1], x[2]};
    x += hb_v{0, 0, x[0], x[1]};
    x += sum;
    sum = hb_v{x[3], x[3], x[3], x[3]};
    return x;
  }
  // moves 16 consecutive values (loaded with any alignment) to and from 4 vectors, whose lane l holds block l
  static HB_FN void load_blocks(const void *p, F *f) {
    F r[4];
    __builtin_memcpy(r, p, sizeof r);
    for (int i = 0; i < 4; i++) f[i] = F{r[0][i], r[1][i], r[2][i], r[3][i]};
  }
  static HB_FN void store_blocks(float *p, const F *f) {
    for (int l = 0; l < 4; l++) {
      F block = {f[0][l], f[1][l], f[2][l], f[3][l]};
      __builtin_memcpy(p + 4 * l, &block, 16);
    }
  }
};
