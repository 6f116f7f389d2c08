// Casts, with or without a power-of-two scale for each round.
#pragma once
#include "../hb_cast.h"
#include "tiles.h"

struct hb_bf16_codec {
  static constexpr int ROUNDS = 2;
  typedef hb_tile<ROUNDS> tile;
  struct code {
    hb_u32 words[ROUNDS][2];
  };
  hb_values<HB_BF16, ROUNDS> wire;
  HB_FN hb_bf16_codec(const hb_byte *at, hb_u64, bool, bool) : wire(at) {}

  HB_FN code encode(const tile &, const float (*v)[4]) const {
    code c;
    for (int r = 0; r < ROUNDS; r++) hb_type<HB_BF16>::narrow<4>(v[r], c.words[r]);
    return c;
  }
  HB_FN void decode(const tile &, const code &c, float (*v)[4]) const {
    for (int r = 0; r < ROUNDS; r++) hb_type<HB_BF16>::widen<4>(c.words[r], v[r]);
  }
  HB_FN code load(const tile &t) const {
    code c;
    wire.load_words(t, c.words);
    return c;
  }
  HB_FN void store(const tile &t, const code &c) const { wire.store_words(t, c.words); }
};

template <class S> struct hb_cast_codec {
  static constexpr int ROUNDS = 2, WIDTH = hb_cast<S>::code_bytes, PIECE = 4 * WIDTH, BITS = 8 * WIDTH;
  static_assert(HB_CAST_BLOCK == 128, "a round is a block");
  typedef hb_lane<hb_u32> L;
  typedef hb_tile<ROUNDS> tile;
  struct code {
    hb_u32 words[ROUNDS][WIDTH], scale[ROUNDS];
  };

  hb_byte *codes, *scales;
  bool aligned;
  HB_FN hb_cast_codec(const hb_byte *wire, hb_u64 n, bool, bool)
      : codes((hb_byte *)wire), scales(codes + (n * WIDTH + 3) / 4 * 4), aligned(((hb_u64)wire & (PIECE - 1)) == 0u) {}

  HB_FN code encode(const tile &, const float (*v)[4]) const {
    code c;
#pragma unroll
    for (int r = 0; r < ROUNDS; r++) {
      hb_u32 top = 0;
      for (int i = 0; i < 4; i++) top = L::max(top, hb_finite_magnitude(L::as_bits(v[r][i])));
      c.scale[r] = hb_cast_scale<S>(hb_group_max<32>(top));
      hb_u32 k[4];
      for (int i = 0; i < 4; i++) k[i] = hb_cast_encode<S>(L::as_bits(v[r][i]), c.scale[r]);
      if constexpr (WIDTH == 2) {
        c.words[r][0] = k[0] | k[1] << 16;
        c.words[r][1] = k[2] | k[3] << 16;
      } else {
        c.words[r][0] = k[0] | k[1] << 8 | k[2] << 16 | k[3] << 24;
      }
    }
    return c;
  }
  HB_FN void decode(const tile &, const code &c, float (*v)[4]) const {
#pragma unroll
    for (int r = 0; r < ROUNDS; r++)
      for (int i = 0; i < 4; i++) {
        const hb_u32 k = c.words[r][i * WIDTH / 4] >> (BITS * i % 32) & ((1u << BITS) - 1u);
        v[r][i] = hb_cast_decode<S>(k, c.scale[r]);
      }
  }

  HB_FN code load(const tile &t) const {
    const hb_byte *from = codes + t.first * WIDTH;
    code c;
    hb_load_rows<PIECE, ROUNDS>(t.me, from, aligned & t.full, t.template bytes<BITS, 4>(), c.words);
#pragma unroll
    for (int r = 0; r < ROUNDS; r++) c.scale[r] = 128u * r < t.count ? scales[t.first / 128 + r] : 0u;
    return c;
  }
  HB_FN void store(const tile &t, const code &c) const {
    hb_byte *to = codes + t.first * WIDTH;
    hb_store_rows<PIECE, ROUNDS>(t.me, to, aligned & t.full, t.template bytes<BITS, 4>(), c.words);
#pragma unroll
    for (int r = 0; r < ROUNDS; r++)
      if (t.me.lane == 0u && 128u * r < t.count) scales[t.first / 128 + r] = (hb_byte)c.scale[r];
  }
};
