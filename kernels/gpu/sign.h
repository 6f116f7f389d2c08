// Signs with one mean magnitude per block.
#pragma once
#include "../hb_sign.h"
#include "tiles.h"

template <hb_u32 B> struct hb_sign_codec {
  // a block is processed in DEEP rounds of WIDE threads
  static constexpr hb_u32 WIDE = B < 128 ? B / 4 : 32, DEEP = B < 128 ? 1 : B / 128;
  static constexpr int ROUNDS = DEEP < 2 ? 2 : DEEP, SETS = ROUNDS / DEEP;
  typedef hb_lane<hb_u32> L;
  typedef hb_tile<ROUNDS> tile;
  struct code {
    hb_u32 signs[ROUNDS], scale[SETS];  // 4 signs per round
  };

  hb_byte *signs, *scales;
  HB_FN hb_sign_codec(const hb_byte *wire, hb_u64 n, bool, bool)
      : signs((hb_byte *)wire), scales(signs + (n + 31) / 32 * 4) {}

  HB_FN code encode(const tile &t, const float (*v)[4]) const {
    code c;
#pragma unroll
    for (int r = 0; r < ROUNDS; r++) {
      c.signs[r] = 0;
      for (int i = 0; i < 4; i++) c.signs[r] |= L::as_bits(v[r][i]) >> 31 << i;
    }
#pragma unroll
    for (int s = 0; s < SETS; s++) {
      float sum = hb_sign_sum4<hb_u32>(v[DEEP * s]);
#pragma unroll
      for (int r = 1; r < (int)DEEP; r++) sum = sum + hb_sign_sum4<hb_u32>(v[DEEP * s + r]);
      sum = hb_group_sum<WIDE>(sum);
      const hb_u32 first = begins(t, s);
      if (first + B <= t.count)  // a division by a power of two, known here, is a multiplication
        c.scale[s] = hb_sign_scale(sum, B);
      else
        c.scale[s] = first < t.count ? hb_sign_scale(sum, t.count - first) : 0u;
    }
    return c;
  }
  HB_FN void decode(const tile &, const code &c, float (*v)[4]) const {
#pragma unroll
    for (int r = 0; r < ROUNDS; r++)
      for (int i = 0; i < 4; i++) v[r][i] = L::as_float(c.scale[r / DEEP] | (c.signs[r] >> i & 1u) << 31);
  }

  HB_FN code load(const tile &t) const {
    code c;
    hb_load_nibbles<ROUNDS>(t.me, signs + t.first / 8, t.template bytes<1, 4>(), c.signs);
#pragma unroll
    for (int s = 0; s < SETS; s++) c.scale[s] = begins(t, s) < t.count ? hb_load_word(scale(t, s)) : 0u;
    return c;
  }
  HB_FN void store(const tile &t, const code &c) const {
    hb_store_nibbles<ROUNDS>(t.me, signs + t.first / 8, t.template bytes<1, 4>(), c.signs);
#pragma unroll
    for (int s = 0; s < SETS; s++)
      if (t.me.lane % WIDE == 0u && begins(t, s) < t.count) hb_store_word(scale(t, s), c.scale[s]);
  }

 private:
  // index of the first value of the thread's block in a set, relative to the tile
  static HB_FN hb_u32 begins(const tile &t, int s) { return 128u * DEEP * s + t.me.lane / WIDE * B; }
  HB_FN hb_byte *scale(const tile &t, int s) const {
    return scales + t.first / B * 4 + 4u * (128u * DEEP * s / B + t.me.lane / WIDE);
  }
};
