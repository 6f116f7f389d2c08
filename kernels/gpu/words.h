// A chunk in the registers of a warp: 1024 words of 4 bytes, word 32 r + lane in row r. Its memory may begin anywhere.
#pragma once
#include "values.h"
#include "warp.h"

#define HB_ROWS 32
#define HB_CHUNK 4096

constexpr hb_u32 hb_size_of(int type) { return type == HB_F32 ? 4 : type == HB_F64 ? 8 : type == HB_BYTES ? 1 : 2; }

HB_FN hb_u32 hb_load_half(const hb_byte *p) { return p[0] | (hb_u32)p[1] << 8; }
HB_FN void hb_store_half(hb_byte *p, hb_u32 x) {
  p[0] = (hb_byte)x;
  p[1] = (hb_byte)(x >> 8);
}

// The first `bytes` bytes of a chunk; the others are zeros. Loads of aligned words do not wait for each other.
HB_FN void hb_load_chunk(const hb_byte *p, hb_u32 bytes, hb_u32 lane, hb_u32 *v) {
  const bool aligned = ((hb_u64)p & 3u) == 0u;
  const hb_u32 words = aligned ? bytes / 4u : 0u;
#pragma unroll
  for (int r = 0; r < HB_ROWS; r++) v[r] = 32u * r + lane < words ? ((const hb_u32 *)p)[32 * r + lane] : 0u;
  if (4u * words == bytes) return;
#pragma unroll
  for (int r = 0; r < HB_ROWS; r++) {
    const hb_u32 word = 32u * r + lane, end = 4u * word + 4u < bytes ? 4u * word + 4u : bytes;
    for (hb_u32 i = 4u * (word < words ? bytes : word); i < end; i++) v[r] |= (hb_u32)p[i] << (8u * (i & 3u));
  }
}
HB_FN void hb_store_chunk(hb_byte *p, hb_u32 bytes, hb_u32 lane, const hb_u32 *v) {
  if (bytes == HB_CHUNK && ((hb_u64)p & 3u) == 0u) {
#pragma unroll
    for (int r = 0; r < HB_ROWS; r++) ((hb_u32 *)p)[32 * r + lane] = v[r];
  } else {
#pragma unroll
    for (int r = 0; r < HB_ROWS; r++) {
      const hb_u32 at = 4u * (32u * r + lane);
      if (at + 4u <= bytes) hb_store_word(p + at, v[r]);
      else
        for (hb_u32 i = at; i < bytes; i++) p[i] = (hb_byte)(v[r] >> (8u * (i - at)));
    }
  }
}

// One value of a type anywhere, as float32.
template <int T> HB_FN float hb_load_value(const hb_byte *p) {
  hb_u32 w = hb_size_of(T) == 4 ? hb_load_word(p) : hb_load_half(p);
  float f[2];
  hb_type<T>::template widen<hb_size_of(T) == 4 ? 1 : 2>(&w, f);
  return f[0];
}
template <int T> HB_FN void hb_store_value(hb_byte *p, float value) {
  hb_u32 w;
  const float f[2] = {value, 0.0f};
  hb_type<T>::template narrow<hb_size_of(T) == 4 ? 1 : 2>(f, &w);
  hb_size_of(T) == 4 ? hb_store_word(p, w) : hb_store_half(p, w);
}

// What a word of a chunk holds of a type, and sums.
template <int T> struct hb_words {
  static constexpr hb_u32 SIZE = hb_size_of(T), N = SIZE < 4 ? 4 / SIZE : 1;  // values in a word
  static HB_FN hb_u32 sum(hb_u32 a, hb_u32 b) {
    float x[N], y[N];
    hb_type<T>::template widen<N>(&a, x);
    hb_type<T>::template widen<N>(&b, y);
    for (hb_u32 i = 0; i < N; i++) x[i] = hb_add(x[i], y[i]);
    hb_type<T>::template narrow<N>(x, &a);
    return a;
  }
  // Values of this type that lie in words, onto or instead of those of another type at p, of which there are `count`.
  template <int O, bool ADD> static HB_FN void put(hb_byte *p, hb_u32 count, hb_u32 lane, const hb_u32 *v) {
#pragma unroll
    for (int r = 0; r < HB_ROWS; r++) {
      float x[N];
      hb_type<T>::template widen<N>(v + r, x);
#pragma unroll
      for (hb_u32 i = 0; i < N; i++) {
        const hb_u32 at = (32u * r + lane) * N + i;
        if (at >= count) continue;
        hb_byte *to = p + hb_size_of(O) * at;
        hb_store_value<O>(to, ADD ? hb_add(hb_load_value<O>(to), x[i]) : x[i]);
      }
    }
  }
  // v: values, to which a residual is added; what rounding to the type takes away is left in it
  static HB_FN void keep(hb_byte *residual, hb_u32 count, hb_u32 lane, hb_u32 *v) {
#pragma unroll
    for (int r = 0; r < HB_ROWS; r++) {
      float x[N], sent[N];
      hb_type<T>::template widen<N>(v + r, x);
#pragma unroll
      for (hb_u32 i = 0; i < N; i++) {
        const hb_u32 at = (32u * r + lane) * N + i;
        x[i] = at < count ? hb_add(x[i], hb_load_value<HB_F32>(residual + 4 * at)) : 0.0f;
      }
      hb_type<T>::template narrow<N>(x, v + r);
      hb_type<T>::template widen<N>(v + r, sent);
#pragma unroll
      for (hb_u32 i = 0; i < N; i++) {
        const hb_u32 at = (32u * r + lane) * N + i;
        if (at < count) hb_store_value<HB_F32>(residual + 4 * at, hb_finite_or_0(x[i] - sent[i]));
      }
    }
  }
};
// The sum of two float64 whose halves lie in a lane of even number and the next.
HB_FN hb_u32 hb_sum_doubles(hb_u32 a, hb_u32 b, hb_u32 lane) {
  const hb_u32 c = __shfl_xor_sync(HB_EVERY, a, 1), d = __shfl_xor_sync(HB_EVERY, b, 1);
  const bool low = !(lane & 1u);
  const double sum = __hiloint2double((int)(low ? c : a), (int)(low ? a : c)) +
                     __hiloint2double((int)(low ? d : b), (int)(low ? b : d));
  if (sum != sum) return low ? 0u : 0x7ff80000u;
  return (hb_u32)(low ? __double2loint(sum) : __double2hiint(sum));
}
