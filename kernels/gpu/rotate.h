// Rotations of the values of a tile in the registers of a warp.
#pragma once
#include "../hb_rotate.h"
#include "warp.h"

// K: logarithm of the number of values that are rotated together; 0 for no rotation
template <int K, bool SIGNS, bool INVERSE, class TILE> HB_FN void hb_rotate(const TILE &t, float (*v)[4]) {
  if constexpr (K > 0) {
    typedef hb_lane<hb_u32> L;
    constexpr int R = TILE::VALUES / 128;
    static_assert((1 << K) <= TILE::VALUES, "values that turn together are in one tile");
    float turned[R][4];
#pragma unroll
    for (int r = 0; r < R; r++) {
      const hb_u32 at = (hb_u32)t.first + t.place(r), word = SIGNS && !INVERSE ? hb_rotation_signs(at >> 5) : 0u;
      for (int i = 0; i < 4; i++)
        turned[r][i] = L::as_float(L::as_bits(v[r][i]) ^ (word >> ((at + i) & 31u) & 1u) << 31) * hb_rotation_factor<K>();
#pragma unroll
      for (int step = 1; step < 4; step *= 2)
        for (int i = 0; i < 4; i++)
          if (!(i & step)) {
            const float a = turned[r][i], b = turned[r][i + step];
            turned[r][i] = a + b, turned[r][i + step] = a - b;
          }
#pragma unroll
      for (hb_u32 lanes = 1; lanes < 32u && lanes < (1u << K) / 4u; lanes *= 2)
        for (int i = 0; i < 4; i++) {
          const float own = turned[r][i], far = __shfl_xor_sync(HB_EVERY, own, lanes);
          turned[r][i] = t.me.lane & lanes ? far - own : far + own;
        }
    }
#pragma unroll
    for (int step = 1; step < (1 << K) / 128; step *= 2)
#pragma unroll
      for (int r = 0; r < R; r++)
        if (!(r & step))
          for (int i = 0; i < 4; i++) {
            const float a = turned[r][i], b = turned[r + step][i];
            turned[r][i] = a + b, turned[r + step][i] = a - b;
          }
#pragma unroll
    for (int r = 0; r < R; r++) {
      const hb_u32 at = (hb_u32)t.first + t.place(r), word = SIGNS && INVERSE ? hb_rotation_signs(at >> 5) : 0u;
      const bool whole = ((t.place(r) >> K) + 1u) << K <= t.count;
      for (int i = 0; i < 4; i++) {
        const hb_u32 bits = hb_rotated(L::as_bits(turned[r][i]) ^ (word >> ((at + i) & 31u) & 1u) << 31);
        v[r][i] = whole ? L::as_float(bits) : v[r][i];
      }
    }
  }
}
