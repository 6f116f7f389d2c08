// 2:4 with one group per thread and round.
#pragma once
#include "../hb_2of4.h"
#include "tiles.h"

template <int T> struct hb_pick_codec {
  static constexpr int ROUNDS = 2, SIZE = hb_type<T>::SIZE, PIECE = 2 * SIZE;
  typedef hb_lane<hb_u32> L;
  typedef hb_tile<ROUNDS> tile;
  struct code {
    hb_u32 kept[ROUNDS][PIECE / 4], places[ROUNDS];
  };

  hb_byte *kept, *places;
  bool aligned;
  HB_FN hb_pick_codec(const hb_byte *wire, hb_u64 n, bool, bool)
      : kept((hb_byte *)wire), places(kept + (n + 3) / 4 * PIECE), aligned(((hb_u64)wire & (PIECE - 1)) == 0u) {}

  HB_FN code encode(const tile &, const float (*v)[4]) const {
    code c;
#pragma unroll
    for (int r = 0; r < ROUNDS; r++) {
      hb_u32 bits[4], two[2];
      for (int i = 0; i < 4; i++) bits[i] = L::as_bits(v[r][i]);
      c.places[r] = hb_2of4_encode(bits, two);
      const float f[2] = {L::as_float(two[0]), L::as_float(two[1])};
      hb_type<T>::template narrow<2>(f, c.kept[r]);
    }
    return c;
  }
  HB_FN void decode(const tile &, const code &c, float (*v)[4]) const {
#pragma unroll
    for (int r = 0; r < ROUNDS; r++) {
      float f[2];
      hb_type<T>::template widen<2>(c.kept[r], f);
      const hb_u32 two[2] = {L::as_bits(f[0]), L::as_bits(f[1])};
      hb_u32 bits[4];
      hb_2of4_decode(two, c.places[r], bits);
      for (int i = 0; i < 4; i++) v[r][i] = L::as_float(bits[i]);
    }
  }

  HB_FN code load(const tile &t) const {
    const hb_byte *from = kept + t.first / 4 * PIECE;
    code c;
    hb_load_rows<PIECE, ROUNDS>(t.me, from, aligned & t.full, bytes(t), c.kept);
    hb_load_nibbles<ROUNDS>(t.me, places + t.first / 8, t.template bytes<1>(), c.places);
    return c;
  }
  HB_FN void store(const tile &t, const code &c) const {
    hb_byte *to = kept + t.first / 4 * PIECE;
    hb_store_rows<PIECE, ROUNDS>(t.me, to, aligned & t.full, bytes(t), c.kept);
    hb_store_nibbles<ROUNDS>(t.me, places + t.first / 8, t.template bytes<1>(), c.places);
  }

 private:
  // of the complete groups only
  static HB_FN auto bytes(const tile &t) { return t.template bytes<4 * SIZE, PIECE>(); }
};
