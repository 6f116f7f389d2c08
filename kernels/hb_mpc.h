// MPC, lossless: 32-bit words in independent chunks of 1024 (Yang et al., Cluster 2015), implemented from the paper's
// description. 16-bit values are packed two per word.
//   LNV(dim)s  d[i] = v[i] - v[i-dim] for values of 32 or 16 bits, d[i] = v[i] for i < dim; positions after the end of
//              the data are treated as 0
//   BIT        32 x 32 bit transposition of each group of 32 words: bit i of word 32g+b is bit b of d[32g+i]; for
//              16-bit values, bit i of word 32g+b is bit b of d[64g+i], and bit i of word 32g+16+b is bit b of
//              d[64g+32+i]
//   LNV1s      q[i] = t[i] - t[i-1] over the words of the chunk
//   ZE         a bitmap of 1024 bits, where bit i is set if q[i] != 0, followed by the nonzero q[i] in order
// The chunk functions work on complete chunks in local memory, with vectors U of HB_LANES words.
#pragma once
#include "hb_lane.h"

#define HB_MPC_CHUNK 1024
#define HB_MPC_BITMAP 32
#define HB_MPC_SLACK 16  // number of words after the data that a vector load or store may access

// Transposition as a butterfly: in each of 5 steps, a word keeps half of its bits and takes the other half from the
// word at distance s. Steps of at least the vector length exchange words between vectors. Shorter steps exchange words
// between lanes.
template <class U, int s> HB_FN void hb_mpc_between_vectors(U *a, hb_u32 m) {
  typedef hb_lane<U> L;
  for (int k = 0; k < 32 / HB_LANES; k++) {
    if (k * HB_LANES & s) continue;
    U low = a[k], high = a[k + s / HB_LANES], mask = low * 0u + m;
    a[k] = L::blend(mask, low, high << s);
    a[k + s / HB_LANES] = L::blend(mask, low >> s, high);
  }
}
template <class U, int s> HB_FN void hb_mpc_between_lanes(U *a, hb_u32 m) {
  typedef hb_lane<U> L;
  U upper = 0u - ((L::index() / (hb_u32)s) & 1u);  // all ones where lane & s
  U keep = upper ^ m, turn = (upper & (hb_u32)(32 - s)) | (~upper & (hb_u32)s);
  for (int k = 0; k < 32 / HB_LANES; k++)
    a[k] = L::blend(keep, a[k], L::rotate(L::template swap<s>(a[k]), turn));
}
template <class U> HB_FN void hb_mpc_transpose(U *a) {
  hb_mpc_between_vectors<U, 16>(a, 0x0000ffffu);
#if HB_LANES > 8
  hb_mpc_between_lanes<U, 8>(a, 0x00ff00ffu);
#else
  hb_mpc_between_vectors<U, 8>(a, 0x00ff00ffu);
#endif
#if HB_LANES > 4
  hb_mpc_between_lanes<U, 4>(a, 0x0f0f0f0fu);
#else
  hb_mpc_between_vectors<U, 4>(a, 0x0f0f0f0fu);
#endif
#if HB_LANES > 1
  hb_mpc_between_lanes<U, 2>(a, 0x33333333u);
  hb_mpc_between_lanes<U, 1>(a, 0x55555555u);
#else
  hb_mpc_between_vectors<U, 2>(a, 0x33333333u);
  hb_mpc_between_vectors<U, 1>(a, 0x55555555u);
#endif
}

// Values of 32 bits, or of 16 bits with two per word (HALVES).
template <class U, bool HALVES> struct hb_mpc_values {
  typedef hb_lane<U> L;
  static constexpr int BYTES = HALVES ? 2 : 4;
  static HB_FN U add(U a, U b) { return HALVES ? L::add16(a, b) : a + b; }
  static HB_FN U subtract(U a, U b) { return HALVES ? L::subtract16(a, b) : a - b; }
  // Loads the 32 words that are transposed together from p. With HALVES, the first 32 values are the low halves of the
  // words, the others the high halves.
  static HB_FN U load(const unsigned char *p, int k) {
    if (!HALVES) return L::load((const hb_u32 *)p + k * HB_LANES);
    return L::load16(p + 2 * k * HB_LANES) | L::load16(p + 64 + 2 * k * HB_LANES) << 16;
  }
  static HB_FN void store(unsigned char *p, int k, U x) {
    if (!HALVES) return L::store((hb_u32 *)p + k * HB_LANES, x);
    L::store16(p + 2 * k * HB_LANES, x);
    L::store16(p + 64 + 2 * k * HB_LANES, x >> 16);
  }
};

// v: 1024 words; dim 1..32. coded: bitmap and non-zero words, at most 1056 + slack.
// Returns the number of non-zero words.
template <class U, bool HALVES> HB_FN hb_u32 hb_mpc_encode_chunk(const hb_u32 *v, int dim, hb_u32 *coded) {
  typedef hb_lane<U> L;
  typedef hb_mpc_values<U, HALVES> values;
  alignas(64) hb_u32 first[64] = {}, memory[HB_MPC_SLACK + HB_MPC_CHUNK];
  hb_u32 *t = memory + HB_MPC_SLACK, *next = coded + HB_MPC_BITMAP;
  for (int i = 0; i < 32; i += HB_LANES) L::store(first + 32 + i, L::load(v + i));
  for (int g = 0; g < 32; g++) {
    const unsigned char *from = (const unsigned char *)(g ? v + 32 * g : first + 32);
    U a[32 / HB_LANES];
    for (int k = 0; k < 32 / HB_LANES; k++)
      a[k] = values::subtract(values::load(from, k), values::load(from - values::BYTES * dim, k));
    hb_mpc_transpose<U>(a);
    for (int k = 0; k < 32 / HB_LANES; k++) L::store(t + 32 * g + k * HB_LANES, a[k]);
  }
  t[-1] = 0;
  for (int g = 0; g < 32; g++) {
    hb_u32 bits = 0;
    for (int i = 0; i < 32; i += HB_LANES) {
      const hb_u32 *p = t + 32 * g + i;
      hb_u32 mask = L::compress(L::load(p) - L::load(p - 1), next);
      next += __builtin_popcount(mask);
      bits |= mask << i;
    }
    coded[g] = bits;
  }
  return (hb_u32)(next - coded) - HB_MPC_BITMAP;
}

// v[i] = t[i] + v[i-dim] for words; dim up to HB_LANES. Within a vector, each step doubles the number of summed values.
// Then the last dim sums of the previous vector are added.
template <class U, bool HALVES> HB_FN void hb_mpc_sums(const hb_u32 *t, int dim, hb_u32 *v) {
  typedef hb_lane<U> L;
  typedef hb_mpc_values<U, HALVES> values;
  const U lane = L::index();
  // The lane of the previous vector whose sum a lane continues: lane modulo dim, counted from the last dim lanes.
  U ends = lane;
  for (int i = 0; i < HB_LANES / dim; i++) ends = ends < (hb_u32)dim ? ends : ends - (hb_u32)dim;
  ends += (hb_u32)(HB_LANES - dim);
  U sum = lane * 0u;
  for (int i = 0; i < HB_MPC_CHUNK; i += HB_LANES) {
    U x = L::load(t + i);
    for (int s = dim; s < HB_LANES; s *= 2) x = values::add(x, L::rise(x, lane - (hb_u32)s));
    x = values::add(x, sum);
    L::store(v + i, x);
    sum = L::rise(x, ends);
  }
}

// Inverse operation. coded: bitmap, one word per set bit, and readable slack; v: 1024 words (output).
template <class U, bool HALVES> HB_FN void hb_mpc_decode_chunk(const hb_u32 *coded, int dim, hb_u32 *v) {
  typedef hb_lane<U> L;
  typedef hb_mpc_values<U, HALVES> values;
  alignas(64) hb_u32 memory[32 + HB_MPC_CHUNK];
  hb_u32 *t = memory + 32;
  for (int i = 0; i < 32; i++) memory[i] = 0;
  const hb_u32 *next = coded + HB_MPC_BITMAP;
  // This is a separate pass, because with AVX-512, expansions are slow if mixed with other work.
  for (int g = 0; g < 32; g++) {
    for (int i = 0; i < 32; i += HB_LANES) {
      hb_u32 mask = coded[g] >> i & (0xffffffffu >> (32 - HB_LANES));
      L::store(t + 32 * g + i, L::expand(mask, next));
      next += __builtin_popcount(mask);
    }
  }
  U sum = L::index() * 0u;
  for (int g = 0; g < 32; g++) {
    U a[32 / HB_LANES];
    for (int k = 0; k < 32 / HB_LANES; k++) a[k] = L::scan(L::load(t + 32 * g + k * HB_LANES), sum);
    hb_mpc_transpose<U>(a);
    for (int k = 0; k < 32 / HB_LANES; k++) values::store((unsigned char *)(t + 32 * g), k, a[k]);
  }
  if (HALVES) {  // v[i] = d[i] + d[i-dim] + v[i-2dim]: with that sum the stride is of whole words
    for (int i = HB_MPC_CHUNK - HB_LANES; i >= 0; i -= HB_LANES)
      L::store(t + i, values::add(L::load(t + i), L::load((const hb_u32 *)((const hb_u16 *)(t + i) - dim))));
  }
  if (dim == 1) {
    hb_mpc_sums<U, HALVES>(t, 1, v);
  } else if (dim <= HB_LANES) {
    hb_mpc_sums<U, HALVES>(t, dim, v);
  } else {
    for (int i = 0; i < HB_MPC_CHUNK; i += HB_LANES) {
      U x = values::add(L::load(t + i), L::load(t + i - dim));
      L::store(t + i, x);
      L::store(v + i, x);
    }
  }
}
