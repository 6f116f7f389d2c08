// Block floats: MX formats and NVFP4.
#pragma once
#include "../hb_block_float.h"
#include "tiles.h"

// Four elements of BITS bits each, as words of the wire: the low LOW bits, and for elements of 6 bits the other 2.
template <class E> struct hb_packed {
  static constexpr hb_u32 LOW = E::bits == 8 ? 8 : 4;
  static HB_FN hb_u32 low(const hb_u32 *k) {
    hb_u32 all = 0;
    for (int i = 0; i < 4; i++) all |= (k[i] & ((1u << LOW) - 1u)) << (LOW * i);
    return all;
  }
  static HB_FN hb_u32 high(const hb_u32 *k) {
    hb_u32 all = 0;
    if (E::bits == 6)
      for (int i = 0; i < 4; i++) all |= (k[i] >> 4) << (2 * i);
    return all;
  }
  static HB_FN hb_u32 code(hb_u32 low, hb_u32 high, int i) {
    const hb_u32 k = low >> (LOW * i) & ((1u << LOW) - 1u);
    return E::bits == 6 ? k | (high >> (2 * i) & 3u) << 4 : k;
  }
};

template <hb_u64 PARAM> struct hb_mx_codec {
  typedef typename hb_mx_element<(int)(PARAM & 255u)>::type E;
  typedef hb_packed<E> packed;
  static constexpr int RULE = (int)(PARAM >> 8 & 255u), ROUNDS = 2;
  static constexpr hb_u32 LOW = packed::LOW, PIECE = LOW / 2, WIDE = HB_MX_BLOCK / 4, IN_ROUND = 128 / HB_MX_BLOCK;
  static constexpr bool HIGH = E::bits == 6;
  typedef hb_lane<hb_u32> L;
  typedef hb_tile<ROUNDS> tile;
  struct code {
    hb_u32 low[ROUNDS][1], high[ROUNDS][1], scale[ROUNDS];
  };

  hb_byte *lows, *highs, *scales;
  bool aligned;
  HB_FN hb_mx_codec(const hb_byte *wire, hb_u64 n, bool, bool)
      : lows((hb_byte *)wire), highs(lows + (n * LOW + 31) / 32 * 4), scales(highs + (HIGH ? (n + 15) / 16 * 4 : 0)),
        aligned(((hb_u64)wire & (PIECE - 1)) == 0u) {}

  HB_FN code encode(const tile &, const float (*v)[4]) const {
    code c;
#pragma unroll
    for (int r = 0; r < ROUNDS; r++) {
      hb_u32 top = 0, k[4];
      for (int i = 0; i < 4; i++) top = L::max(top, L::as_bits(v[r][i]) & HB_MAGNITUDE);
      c.scale[r] = hb_mx_scale<E, RULE>(hb_group_max<WIDE>(top));
      const bool special = c.scale[r] == HB_MX_NAN;
      for (int i = 0; i < 4; i++)
        k[i] = special ? 0u : hb_element_encode<E>(L::as_bits(v[r][i]), hb_mx_factor(c.scale[r]));
      c.low[r][0] = packed::low(k);
      c.high[r][0] = packed::high(k);
    }
    return c;
  }
  HB_FN void decode(const tile &, const code &c, float (*v)[4]) const {
#pragma unroll
    for (int r = 0; r < ROUNDS; r++) {
      const float unit = hb_mx_unit(c.scale[r]);
      for (int i = 0; i < 4; i++) {
        const float value = hb_mx_decode<E>(packed::code(c.low[r][0], c.high[r][0], i), unit);
        v[r][i] = c.scale[r] == HB_MX_NAN ? L::as_float(HB_NAN) : value;
      }
    }
  }

  HB_FN code load(const tile &t) const {
    code c;
    hb_load_rows<PIECE, ROUNDS>(t.me, lows + t.first / 8 * LOW, aligned & t.full, t.template bytes<LOW, 4>(), c.low);
    for (int r = 0; r < ROUNDS; r++) c.high[r][0] = 0;
    if (HIGH) hb_load_rows<1, ROUNDS>(t.me, highs + t.first / 4, t.full, t.template bytes<2, 4>(), c.high);
#pragma unroll
    for (int r = 0; r < ROUNDS; r++) c.scale[r] = block(t, r) * HB_MX_BLOCK < t.count ? *scale(t, r) : 0u;
    return c;
  }
  HB_FN void store(const tile &t, const code &c) const {
    hb_store_rows<PIECE, ROUNDS>(t.me, lows + t.first / 8 * LOW, aligned & t.full, t.template bytes<LOW, 4>(), c.low);
    if (HIGH) hb_store_rows<1, ROUNDS>(t.me, highs + t.first / 4, t.full, t.template bytes<2, 4>(), c.high);
#pragma unroll
    for (int r = 0; r < ROUNDS; r++)
      if (t.me.lane % WIDE == 0u && block(t, r) * HB_MX_BLOCK < t.count) *scale(t, r) = (hb_byte)c.scale[r];
  }

 private:
  // the thread's block in the tile
  static HB_FN hb_u32 block(const tile &t, int r) { return IN_ROUND * r + t.me.lane / WIDE; }
  HB_FN hb_byte *scale(const tile &t, int r) const { return scales + t.first / HB_MX_BLOCK + block(t, r); }
};

struct hb_nvfp4_codec {
  typedef hb_packed<hb_e2m1_element> packed;
  static constexpr int ROUNDS = HB_NVFP4_PIECE / 128;  // a tile has one maximum
  static constexpr hb_u32 WIDE = HB_NVFP4_BLOCK / 4, IN_ROUND = 128 / HB_NVFP4_BLOCK;
  typedef hb_lane<hb_u32> L;
  typedef hb_tile<ROUNDS> tile;
  struct code {
    hb_u32 low[ROUNDS][1], scale[ROUNDS], most;
  };

  hb_byte *codes, *maxima, *scales;
  bool aligned;
  HB_FN hb_nvfp4_codec(const hb_byte *wire, hb_u64 n, bool, bool)
      : codes((hb_byte *)wire), maxima(codes + (n + 7) / 8 * 4),
        scales(maxima + (n + HB_NVFP4_PIECE - 1) / HB_NVFP4_PIECE * 4), aligned(((hb_u64)wire & 1u) == 0u) {}

  HB_FN code encode(const tile &, const float (*v)[4]) const {
    code c;
    hb_u32 most = 0;
#pragma unroll
    for (int r = 0; r < ROUNDS; r++) {
      hb_u32 top = 0;
      for (int i = 0; i < 4; i++) top = L::max(top, L::as_bits(v[r][i]) & HB_MAGNITUDE);
      c.scale[r] = hb_group_max<WIDE>(top);
      most = L::max(most, c.scale[r] < HB_INFINITY ? c.scale[r] : 0u);
    }
    c.most = hb_group_max<32>(most);
    const hb_nvfp4 piece = hb_nvfp4_of(c.most);
#pragma unroll
    for (int r = 0; r < ROUNDS; r++) {
      hb_u32 k[4];
      c.scale[r] = hb_nvfp4_scale(c.scale[r], piece);
      const bool special = c.scale[r] == HB_NVFP4_NAN;
      const float inverse = hb_nvfp4_inverse<hb_u32>(hb_nvfp4_unit(c.scale[r], piece));
      for (int i = 0; i < 4; i++)
        k[i] = special ? 0u : hb_element_encode<hb_e2m1_element>(L::as_bits(v[r][i] * piece.before), inverse);
      c.low[r][0] = packed::low(k);
    }
    return c;
  }
  HB_FN void decode(const tile &, const code &c, float (*v)[4]) const {
    const hb_u32 most = c.most & HB_MAGNITUDE;
    const hb_nvfp4 piece = hb_nvfp4_of(most);
#pragma unroll
    for (int r = 0; r < ROUNDS; r++) {
      const float unit = hb_nvfp4_unit(c.scale[r], piece);
      const bool special = most >= HB_INFINITY || (c.scale[r] & 0x7fu) == HB_NVFP4_NAN;
      for (int i = 0; i < 4; i++) {
        const float value = hb_nvfp4_decode(packed::code(c.low[r][0], 0u, i), unit, piece);
        v[r][i] = special ? L::as_float(HB_NAN) : value;
      }
    }
  }

  HB_FN code load(const tile &t) const {
    code c;
    hb_load_rows<2, ROUNDS>(t.me, codes + t.first / 2, aligned & t.full, t.template bytes<4, 4>(), c.low);
    c.most = hb_load_word(maxima + t.first / HB_NVFP4_PIECE * 4);
#pragma unroll
    for (int r = 0; r < ROUNDS; r++) c.scale[r] = block(t, r) * HB_NVFP4_BLOCK < t.count ? *scale(t, r) : 0u;
    return c;
  }
  HB_FN void store(const tile &t, const code &c) const {
    hb_store_rows<2, ROUNDS>(t.me, codes + t.first / 2, aligned & t.full, t.template bytes<4, 4>(), c.low);
    if (t.me.lane == 0u) hb_store_word(maxima + t.first / HB_NVFP4_PIECE * 4, c.most);
#pragma unroll
    for (int r = 0; r < ROUNDS; r++)
      if (t.me.lane % WIDE == 0u && block(t, r) * HB_NVFP4_BLOCK < t.count) *scale(t, r) = (hb_byte)c.scale[r];
  }

 private:
  static HB_FN hb_u32 block(const tile &t, int r) { return IN_ROUND * r + t.me.lane / WIDE; }
  HB_FN hb_byte *scale(const tile &t, int r) const { return scales + t.first / HB_NVFP4_BLOCK + block(t, r); }
};
