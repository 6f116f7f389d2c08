// MPC, lossless: 32-bit words in independent chunks of 1024 (Yang et al., Cluster 2015), written from its description.
//   LNV(dim)s  d[i] = v[i] - v[i-dim], d[i] = v[i] for i < dim; words past the end of the data count as 0
//   BIT        32 x 32 bit transposition of each 32 words: bit i of word 32g+b is bit b of d[32g+i]
//   LNV1s      q[i] = t[i] - t[i-1] across the chunk
//   ZE         a bitmap of 1024 bits, bit i set for q[i] != 0, then those q[i] in order
// The chunk functions work on whole chunks in local memory, with vectors U of HB_LANES words.
#pragma once
#include "hb_lane.h"

#define HB_MPC_CHUNK 1024
#define HB_MPC_BITMAP 32
#define HB_MPC_SLACK 16  // words that a vector store or load may reach past its data

// Transposition as a butterfly: at each of 5 steps a word keeps half its bits and takes the others from the word s
// places away. Steps as long as the vector or longer go between vectors, the shorter ones between lanes.
template <class U, int s> HB_FN void hb_mpc_between_vectors(U *a, hb_u32 m) {
  for (int k = 0; k < 32 / HB_LANES; k++) {
    if (k * HB_LANES & s) continue;
    U &low = a[k], &high = a[k + s / HB_LANES];
    U t = ((low >> s) ^ high) & m;
    low ^= t << s;
    high ^= t;
  }
}
template <class U, int s> HB_FN void hb_mpc_between_lanes(U *a, hb_u32 m) {
  U lane = hb_lane<U>::index();
  U upper = 0u - ((lane >> (s == 1 ? 0 : s == 2 ? 1 : s == 4 ? 2 : 3)) & 1u);  // all ones where lane & s
  U keep = (upper & ~m) | (~upper & m);
  U up = (upper & (hb_u32)(32 - s)) | (~upper & (hb_u32)s), down = 32u - up;
  for (int k = 0; k < 32 / HB_LANES; k++) {
    U y = hb_lane<U>::template swap<s>(a[k]);
    a[k] = (a[k] & keep) | (((y << up) | (y >> down)) & ~keep);
  }
}
template <class U> HB_FN void hb_mpc_transpose(hb_u32 *words) {
  typedef hb_lane<U> L;
  U a[32 / HB_LANES];
  for (int k = 0; k < 32 / HB_LANES; k++) a[k] = L::load(words + k * HB_LANES);
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
  for (int k = 0; k < 32 / HB_LANES; k++) L::store(words + k * HB_LANES, a[k]);
}

// v: 1024 words, preceded by 32 zero words; dim 1..32. coded: bitmap and non-zero words, at most 1056 + slack.
// Returns the number of non-zero words.
template <class U> HB_FN hb_u32 hb_mpc_encode_chunk(const hb_u32 *v, int dim, hb_u32 *coded) {
  typedef hb_lane<U> L;
  alignas(64) hb_u32 before[HB_MPC_SLACK + HB_MPC_CHUNK];
  hb_u32 *t = before + HB_MPC_SLACK;
  t[-1] = 0;
  hb_u32 *next = coded + HB_MPC_BITMAP;
  for (int g = 0; g < 32; g++) {
    for (int i = 32 * g; i < 32 * g + 32; i += HB_LANES) L::store(t + i, L::load(v + i) - L::load(v + i - dim));
    hb_mpc_transpose<U>(t + 32 * g);
  }
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

// The inverse. coded: bitmap, then as many words as it has bits, then readable slack; v: 1024 words out, preceded by
// 32 zero words.
template <class U> HB_FN void hb_mpc_decode_chunk(const hb_u32 *coded, int dim, hb_u32 *v) {
  typedef hb_lane<U> L;
  const hb_u32 *next = coded + HB_MPC_BITMAP;
  U sum = L::index() * 0u;
  for (int g = 0; g < 32; g++) {
    for (int i = 0; i < 32; i += HB_LANES) {
      hb_u32 mask = coded[g] >> i & (0xffffffffu >> (32 - HB_LANES));
      L::store(v + 32 * g + i, L::scan(L::expand(mask, next), sum));
      next += __builtin_popcount(mask);
    }
    hb_mpc_transpose<U>(v + 32 * g);
  }
  if (dim == 1) {
    sum = sum * 0u;
    for (int i = 0; i < HB_MPC_CHUNK; i += HB_LANES) L::store(v + i, L::scan(L::load(v + i), sum));
  } else if (dim >= HB_LANES) {
    for (int i = 0; i < HB_MPC_CHUNK; i += HB_LANES) L::store(v + i, L::load(v + i) + L::load(v + i - dim));
  } else {
    for (int i = 0; i < HB_MPC_CHUNK; i++) v[i] += v[i - dim];
  }
}
