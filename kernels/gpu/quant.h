// Integers of 8 or 4 bits with one scale per block.
#pragma once
#include "../hb_quant.h"
#include "tiles.h"

template <hb_i32 M, hb_u64 PARAM> struct hb_quant_codec {
  static constexpr hb_u32 B = (hb_u32)PARAM, BITS = M > 7 ? 8 : 4;
  static constexpr bool STOCHASTIC = PARAM & HB_STOCHASTIC, CORRELATED = PARAM & HB_CORRELATED;
  // a block is processed in DEEP rounds of WIDE threads
  static constexpr hb_u32 WIDE = B < 128 ? B / 4 : 32, DEEP = B < 128 ? 1 : B / 128;
  static constexpr int ROUNDS = DEEP < 2 ? 2 : DEEP, SETS = ROUNDS / DEEP, PIECE = BITS / 2;
  typedef hb_lane<hb_u32> L;
  typedef hb_tile<ROUNDS> tile;
  struct code {
    hb_u32 words[ROUNDS][1];
    float scale[SETS];
  };

  hb_byte *codes, *scales;
  bool aligned;
  HB_FN hb_quant_codec(const hb_byte *wire, hb_u64 n, bool, bool)
      : codes((hb_byte *)wire), scales(codes + (n * BITS + 31) / 32 * 4), aligned(((hb_u64)wire & (PIECE - 1)) == 0u) {}

  HB_FN code encode(const tile &t, const float (*v)[4]) const {
    hb_key key = {};
    if (STOCHASTIC) key = hb_key_of(CORRELATED ? hb_shared_seed(t.seed) : t.seed, (hb_u32)(t.first >> 32));
    const hb_u32 offset = CORRELATED ? hb_noise_offset(t.seed) << 16 : 0u;
    code c;
#pragma unroll
    for (int s = 0; s < SETS; s++) {
      const float(*block)[4] = v + DEEP * s;
      hb_u32 top = 0;
#pragma unroll
      for (int r = 0; r < (int)DEEP; r++)
        for (int i = 0; i < 4; i++) top = L::max(top, L::as_bits(block[r][i]) & HB_MAGNITUDE);
      top = hb_group_max<WIDE>(top);
      const hb_quant q = hb_quant_of<M>(top);
      c.scale[s] = q.scale;
#pragma unroll
      for (int r = 0; r < (int)DEEP; r++) {
        hb_u32 k[4];
        const hb_u32 at = (hb_u32)t.first + t.place(DEEP * s + r);
        if (top >= HB_INFINITY) {
          for (int i = 0; i < 4; i++) k[i] = hb_quant_special<M>(L::as_bits(block[r][i]));
        } else if (STOCHASTIC) {
          for (int i = 0; i < 4; i++) k[i] = hb_quant_stochastic<M>(block[r][i], q, hb_random(at + i, key) + offset);
        } else {
          for (int i = 0; i < 4; i++) k[i] = hb_quant_nearest<hb_u32>(block[r][i], q);
        }
        c.words[DEEP * s + r][0] = join(k);
      }
    }
    return c;
  }
  HB_FN void decode(const tile &, const code &c, float (*v)[4]) const {
#pragma unroll
    for (int r = 0; r < ROUNDS; r++) {
      const float scale = c.scale[r / DEEP];
      hb_u32 k[4];
      // the sign of an integer is its highest bit
      for (int i = 0; i < 4; i++) k[i] = (hb_u32)((hb_i32)(c.words[r][0] << (32 - BITS * (i + 1))) >> (32 - BITS));
      if (L::as_bits(scale) == HB_INFINITY) {
        for (int i = 0; i < 4; i++) v[r][i] = hb_quant_decode_special(k[i]);
      } else {
        for (int i = 0; i < 4; i++) v[r][i] = hb_quant_decode(k[i], scale);
      }
    }
  }

  HB_FN code load(const tile &t) const {
    const hb_byte *from = codes + t.first / 8 * BITS;
    code c;
    hb_load_rows<PIECE, ROUNDS>(t.me, from, aligned & t.full, t.template bytes<BITS, 4>(), c.words);
#pragma unroll
    for (int s = 0; s < SETS; s++)
      c.scale[s] = begins(t, s) < t.count ? L::as_float(hb_load_word(scale(t, s))) : 0.0f;
    return c;
  }
  HB_FN void store(const tile &t, const code &c) const {
    hb_byte *to = codes + t.first / 8 * BITS;
    hb_store_rows<PIECE, ROUNDS>(t.me, to, aligned & t.full, t.template bytes<BITS, 4>(), c.words);
#pragma unroll
    for (int s = 0; s < SETS; s++)
      if (t.me.lane % WIDE == 0u && begins(t, s) < t.count) hb_store_word(scale(t, s), L::as_bits(c.scale[s]));
  }

 private:
  static HB_FN hb_u32 join(const hb_u32 *k) {
    const hb_u32 mask = (1u << BITS) - 1u;
    return (k[0] & mask) | (k[1] & mask) << BITS | (k[2] & mask) << (2 * BITS) | (k[3] & mask) << (3 * BITS);
  }
  // index of the first value of the thread's block in a set, relative to the tile
  static HB_FN hb_u32 begins(const tile &t, int s) { return 128u * DEEP * s + t.me.lane / WIDE * B; }
  HB_FN hb_byte *scale(const tile &t, int s) const {
    return scales + t.first / B * 4 + 4u * (128u * DEEP * s / B + t.me.lane / WIDE);
  }
};
