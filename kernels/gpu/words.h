// A chunk in the registers of a warp: 1024 words of 4 bytes, word 32 r + lane in row r. The memory of a chunk needs no
// alignment.
#pragma once
#include "values.h"
#include "warp.h"

#define HB_ROWS 32
#define HB_CHUNK 4096

HB_FN constexpr hb_u32 hb_size_of(int type) { return type == HB_F32 ? 4 : type == HB_F64 ? 8 : type == HB_BYTES ? 1 : 2; }

HB_FN hb_u32 hb_load_half(const hb_byte *p) { return p[0] | (hb_u32)p[1] << 8; }
HB_FN void hb_store_half(hb_byte *p, hb_u32 x) {
  p[0] = (hb_byte)x;
  p[1] = (hb_byte)(x >> 8);
}

HB_FN void hb_to_stage(const hb_warp &me, const hb_u32 *v) {
  __syncwarp();
#pragma unroll
  for (int r = 0; r < HB_ROWS; r++) me.stage[32 * r + me.lane] = v[r];
  __syncwarp();
}
HB_FN void hb_from_stage(const hb_warp &me, hb_u32 *v) {
  __syncwarp();
#pragma unroll
  for (int r = 0; r < HB_ROWS; r++) v[r] = me.stage[32 * r + me.lane];
  __syncwarp();
}

// Loads the first `bytes` bytes of a chunk; the remaining bytes are zeros. Only aligned memory is loaded directly into
// registers. The code for unaligned memory is written to be short, not fast.
HB_FN void hb_load_chunk(const hb_warp &me, const hb_byte *p, hb_u32 bytes, hb_u32 *v) {
  if ((((hb_u64)p | bytes) & 3u) == 0u) {
#pragma unroll
    for (int r = 0; r < HB_ROWS; r++) v[r] = 32u * r + me.lane < bytes / 4u ? ((const hb_u32 *)p)[32 * r + me.lane] : 0u;
  } else {
    hb_stage_in(me, p, bytes, HB_CHUNK);
#pragma unroll
    for (int r = 0; r < HB_ROWS; r++) v[r] = me.stage[32 * r + me.lane];
    __syncwarp();
  }
}
HB_FN void hb_store_chunk(const hb_warp &me, hb_byte *p, hb_u32 bytes, const hb_u32 *v) {
  if ((((hb_u64)p | bytes) & 3u) == 0u) {
#pragma unroll
    for (int r = 0; r < HB_ROWS; r++)
      if (32u * r + me.lane < bytes / 4u) ((hb_u32 *)p)[32 * r + me.lane] = v[r];
  } else {
    hb_to_stage(me, v);
    hb_stage_out(me, p, bytes);
  }
}

// Returns an unaligned value of a type as float32.
template <int T> HB_FN float hb_load_value(const hb_byte *p) {
  const hb_u32 w = hb_size_of(T) == 4 ? hb_load_word(p) : hb_load_half(p);
  float f[2];
  hb_type<T>::template widen<hb_size_of(T) == 4 ? 1 : 2>(&w, f);
  return f[0];
}
template <int T> HB_FN void hb_store_value(hb_byte *p, float value) {
  const float f[2] = {value, 0.0f};
  hb_u32 w;
  hb_type<T>::template narrow<hb_size_of(T) == 4 ? 1 : 2>(f, &w);
  hb_size_of(T) == 4 ? hb_store_word(p, w) : hb_store_half(p, w);
}

// Adds two words, which contain values of type T.
template <int T> HB_FN hb_u32 hb_sum_words(hb_u32 a, hb_u32 b) {
  constexpr int N = 4 / hb_size_of(T);
  float x[N], y[N];
  hb_type<T>::template widen<N>(&a, x);
  hb_type<T>::template widen<N>(&b, y);
  for (int i = 0; i < N; i++) x[i] = hb_add(x[i], y[i]);
  hb_type<T>::template narrow<N>(x, &a);
  return a;
}
// Adds two float64. The low half of each value is in an even lane, and the high half is in the next lane.
HB_FN hb_u32 hb_sum_doubles(hb_u32 a, hb_u32 b, hb_u32 lane) {
  const hb_u32 c = __shfl_xor_sync(HB_EVERY, a, 1), d = __shfl_xor_sync(HB_EVERY, b, 1);
  const bool low = !(lane & 1u);
  const double sum = __hiloint2double((int)(low ? c : a), (int)(low ? a : c)) +
                     __hiloint2double((int)(low ? d : b), (int)(low ? b : d));
  if (sum != sum) return low ? 0u : 0x7ff80000u;
  return (hb_u32)(low ? __double2loint(sum) : __double2hiint(sum));
}
// Adds two words, which contain values of type T, for a lane of a row.
template <int T> HB_FN hb_u32 hb_sum_in_row(hb_u32 a, hb_u32 b, hb_u32 lane) {
  if constexpr (T == HB_F64) return hb_sum_doubles(a, b, lane);
  else return hb_sum_words<T>(a, b);
}
// Adds the values at p to a chunk. Loops are not unrolled completely, because some types take many instructions to add.
template <int T> HB_FN void hb_add_chunk(const hb_warp &me, const hb_byte *p, hb_u32 bytes, hb_u32 *v) {
  hb_to_stage(me, v);
  if ((((hb_u64)p | bytes) & 3u) == 0u) {
#pragma unroll 8
    for (hb_u32 i = me.lane; i < HB_CHUNK / 4; i += 32u)
      me.stage[i] = hb_sum_in_row<T>(4u * i < bytes ? ((const hb_u32 *)p)[i] : 0u, me.stage[i], me.lane);
  } else {
#pragma unroll 1
    for (hb_u32 i = me.lane; i < HB_CHUNK / 4; i += 32u) {
      hb_u32 own = 0;
      for (hb_u32 k = 0; k < 4u; k++)
        if (4u * i + k < bytes) own |= (hb_u32)p[4u * i + k] << (8u * k);
      me.stage[i] = hb_sum_in_row<T>(own, me.stage[i], me.lane);
    }
  }
  hb_from_stage(me, v);
}
// Overwrites values of type O at p with `count` values of type T from the stage, or adds the latter to the former.
template <int T, int O, bool ADD> HB_FN void hb_put_values(const hb_warp &me, hb_byte *p, hb_u32 count) {
  const hb_byte *stage = (const hb_byte *)me.stage;
#pragma unroll 4
  for (hb_u32 i = me.lane; i < count; i += 32u) {
    const float x = hb_load_value<T>(stage + hb_size_of(T) * i);
    hb_byte *to = p + hb_size_of(O) * i;
    hb_store_value<O>(to, ADD ? hb_add(hb_load_value<O>(to), x) : x);
  }
  __syncwarp();
}
// Adds a residual to the values in the stage, and stores the rounding errors in the residual.
template <int T> HB_FN void hb_keep_residual(const hb_warp &me, hb_byte *residual, hb_u32 count) {
  hb_byte *stage = (hb_byte *)me.stage;
#pragma unroll 4
  for (hb_u32 i = me.lane; i < count; i += 32u) {
    hb_byte *value = stage + hb_size_of(T) * i, *kept = residual + 4u * i;
    const float x = hb_add(hb_load_value<T>(value), hb_load_value<HB_F32>(kept));
    hb_store_value<T>(value, x);
    hb_store_value<HB_F32>(kept, hb_finite_or_0(x - hb_load_value<T>(value)));
  }
  __syncwarp();
}
