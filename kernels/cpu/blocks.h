// Largest magnitudes of short blocks, and codes of a tile packed in 2 or 4 bits.
#pragma once
#include "values.h"

namespace {
HB_FN hb_v load(const float *x) { return lanes::load((const hb_u32 *)x); }
HB_FN void store(float *x, lanes::F f) { lanes::store((hb_u32 *)x, lanes::as_bits(f)); }

// ------------------------------------------------------------------------------------------------ maxima
// Lanes without bit S get the maximum of lanes l and l ^ S of a; other lanes get the same maximum of b.
template <int S, class L = lanes> HB_FN hb_v join(hb_v a, hb_v b) {
  auto other = (lanes::index() & (hb_u32)S) != 0u;
  hb_v own = other ? b : a, far = other ? a : b;
  return L::max(own, L::template swap<S>(far));
}
// the largest magnitudes of N blocks, one per lane if N is the number of lanes
template <int N> HB_FN hb_v block_tops(const float *x, uint64_t block) {
  if constexpr (N == 1) {
    hb_v m = load(x) & HB_MAGNITUDE;
    for (uint64_t i = HB_LANES; i < block; i += HB_LANES) m = lanes::max(m, load(x + i) & HB_MAGNITUDE);
    return m;
  } else {
    hb_v a = block_tops<N / 2>(x, block), b = block_tops<N / 2>(x + N / 2 * block, block);
    return join<N / 2>(a, b);
  }
}

// ------------------------------------------------------------------------------------------------ packing
HB_FN void pack4(const byte *wide, byte *to) {
  for (uint64_t i = 0; i < TILE / 2; i++) {
    uint16_t two;
    __builtin_memcpy(&two, wide + 2 * i, 2);
    to[i] = (byte)((two & 15) | (two >> 4 & 0xf0));
  }
}
HB_FN void unpack4_signed(const byte *from, byte *wide) {
  for (uint64_t i = 0; i < TILE / 2; i++) {
    wide[2 * i] = (byte)((signed char)(from[i] << 4) >> 4);
    wide[2 * i + 1] = (byte)((signed char)from[i] >> 4);
  }
}
HB_FN void unpack4(const byte *from, byte *wide) {
  for (uint64_t i = 0; i < TILE / 2; i++) {
    wide[2 * i] = from[i] & 15;
    wide[2 * i + 1] = from[i] >> 4;
  }
}
HB_FN void pack2(const byte *wide, byte *to) {
  for (uint64_t i = 0; i < TILE / 4; i++) {
    uint32_t four;
    __builtin_memcpy(&four, wide + 4 * i, 4);
    to[i] = (byte)((four & 3) | (four >> 6 & 12) | (four >> 12 & 48) | (four >> 18 & 192));
  }
}
HB_FN void unpack2(const byte *from, byte *wide) {
  for (uint64_t i = 0; i < TILE / 4; i++) {
    uint32_t one = from[i], four = (one & 3) | (one & 12) << 6 | (one & 48) << 12 | (one & 192) << 18;
    __builtin_memcpy(wide + 4 * i, &four, 4);
  }
}
}  // namespace
