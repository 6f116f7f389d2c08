// Integers of 4, 3 or 2 bits with two-level scales. A tile is one group.
#pragma once
#include "../hb_group.h"
#include "tiles.h"

template <hb_u64 PARAM> struct hb_grouped_codec {
  static constexpr hb_u32 B = (hb_u32)PARAM & 0xffffu, BITS = (hb_u32)PARAM >> 16, LOW = BITS == 4 ? 4 : 2;
  static constexpr bool STOCHASTIC = PARAM & HB_STOCHASTIC, CORRELATED = PARAM & HB_CORRELATED;
  static constexpr hb_u32 WIDE = B / 4, BLOCKS = HB_GROUP / B, IN_ROUND = BLOCKS / 2;
  static constexpr int ROUNDS = 2, PIECE = LOW / 2;
  static_assert(HB_GROUP == 128 * ROUNDS, "a tile is a group");
  typedef hb_levels<BITS, (PARAM & HB_UNEVEN) != 0> levels;
  typedef hb_lane<hb_u32> L;
  typedef hb_tile<ROUNDS> tile;
  struct code {
    hb_u32 low[ROUNDS][1], high[ROUNDS], scale[ROUNDS], maximum;
  };

  hb_byte *lows, *highs, *maxima, *scales;
  hb_u64 padded;  // the last group if their number is odd: its maximum is followed by two zeros
  bool aligned;
  HB_FN hb_grouped_codec(const hb_byte *wire, hb_u64 n, bool, bool)
      : lows((hb_byte *)wire), highs(lows + (n * LOW + 31) / 32 * 4), maxima(highs + (BITS == 3 ? (n + 31) / 32 * 4 : 0)),
        scales(maxima + (n + 2 * HB_GROUP - 1) / (2 * HB_GROUP) * 4),
        padded((n - 1) & HB_GROUP ? ~0ull : (n - 1) / HB_GROUP), aligned(((hb_u64)wire & (PIECE - 1)) == 0u) {}

  HB_FN code encode(const tile &t, const float (*v)[4]) const {
    hb_u32 tops[ROUNDS], top = 0;
#pragma unroll
    for (int r = 0; r < ROUNDS; r++) {
      tops[r] = 0;
      for (int i = 0; i < 4; i++) tops[r] = L::max(tops[r], L::as_bits(v[r][i]) & HB_MAGNITUDE);
      tops[r] = hb_group_max<WIDE>(tops[r]);
      top = L::max(top, tops[r]);
    }
    code c;
    c.maximum = hb_group_code(hb_group_max<32>(top));
    const bool special = c.maximum == HB_GROUP_INFINITY;
    const hb_group group = hb_group_of(c.maximum);
    const float ratio = c.maximum ? 255.0f / group.maximum : 0.0f;
    hb_key key = {};
    if (STOCHASTIC) key = hb_key_of(CORRELATED ? hb_shared_seed(t.seed) : t.seed, (hb_u32)(t.first >> 32));
    const hb_u32 offset = CORRELATED ? hb_noise_offset(t.seed) : 0u;
#pragma unroll
    for (int r = 0; r < ROUNDS; r++) {
      hb_u32 k[4];
      if (special) {
        c.scale[r] = 0;
        for (int i = 0; i < 4; i++) k[i] = hb_group_special<levels>(L::as_bits(v[r][i]));
      } else {
        c.scale[r] = hb_group_scale<hb_u32>(L::as_float(tops[r]), group, ratio);
        const float inverse = hb_group_inverse<hb_u32>(hb_group_unit<levels>(c.scale[r], group));
        for (int i = 0; i < 4; i++) {
          const float y = v[r][i] * group.before * inverse;
          const hb_u32 at = (hb_u32)t.first + t.place(r) + i;
          if (STOCHASTIC)
            k[i] = hb_group_stochastic<levels, hb_u32>(
                y, (hb_group_noise(at, hb_random(hb_group_word(at), key)) + offset) & 0xffffu, CORRELATED ? 0xffffu : 0u);
          else
            k[i] = hb_group_nearest<levels, hb_u32>(y);
        }
      }
      c.low[r][0] = join<LOW>(k, 0);
      c.high[r] = BITS == 3 ? join<1>(k, 2) : 0u;
    }
    return c;
  }
  HB_FN void decode(const tile &, const code &c, float (*v)[4]) const {
    const bool special = (c.maximum & 0x7fffu) >= HB_GROUP_INFINITY;
    const hb_group group = hb_group_of(c.maximum);
#pragma unroll
    for (int r = 0; r < ROUNDS; r++) {
      const float unit = hb_group_decode_unit<levels>(hb_group_unit<levels>(c.scale[r], group), group);
      for (int i = 0; i < 4; i++) {
        hb_u32 k = c.low[r][0] >> (LOW * i) & ((1u << LOW) - 1u);
        if (BITS == 3) k |= (c.high[r] >> i & 1u) << 2;
        k = (hb_u32)((hb_i32)(k << (32 - BITS)) >> (32 - BITS));
        v[r][i] = special ? hb_group_decode_special(k) : hb_group_decode<levels>(k, unit, group);
      }
    }
  }

  HB_FN code load(const tile &t) const {
    code c;
    hb_load_rows<PIECE, ROUNDS>(t.me, lows + t.first / 8 * LOW, aligned & t.full, t.template bytes<LOW, 4>(), c.low);
    for (int r = 0; r < ROUNDS; r++) c.high[r] = 0;
    if (BITS == 3) hb_load_nibbles<ROUNDS>(t.me, highs + t.first / 8, t.template bytes<1, 4>(), c.high);
    const hb_byte *maximum = maxima + t.first / HB_GROUP * 2, *from = scales + t.first / B;
    c.maximum = maximum[0] | (hb_u32)maximum[1] << 8;
#pragma unroll
    for (int r = 0; r < ROUNDS; r++) {
      const hb_u32 block = IN_ROUND * r + t.me.lane / WIDE;
      c.scale[r] = block * B < t.count ? from[block] : 0u;
    }
    return c;
  }
  HB_FN void store(const tile &t, const code &c) const {
    hb_store_rows<PIECE, ROUNDS>(t.me, lows + t.first / 8 * LOW, aligned & t.full, t.template bytes<LOW, 4>(), c.low);
    if (BITS == 3) hb_store_nibbles<ROUNDS>(t.me, highs + t.first / 8, t.template bytes<1, 4>(), c.high);
    const hb_u64 group = t.first / HB_GROUP;
    if (t.me.lane < (group == padded ? 4u : 2u)) maxima[2 * group + t.me.lane] = (hb_byte)(c.maximum >> (8u * t.me.lane));
#pragma unroll
    for (int r = 0; r < ROUNDS; r++) {
      const hb_u32 block = IN_ROUND * r + t.me.lane / WIDE;
      if (t.me.lane % WIDE == 0u && block * B < t.count) scales[t.first / B + block] = (hb_byte)c.scale[r];
    }
  }

 private:
  // N bits of each of four codes, starting from bit `from`
  template <hb_u32 N> static HB_FN hb_u32 join(const hb_u32 *k, int from) {
    const hb_u32 mask = (1u << N) - 1u;
    hb_u32 all = 0;
    for (int i = 0; i < 4; i++) all |= (k[i] >> from & mask) << (N * i);
    return all;
  }
};
