// xpk, lossless: the exponents of trained values lie near each other, signs and mantissas are noise.
//
// A value of W bits is turned left by one, so that y = exponent, mantissa, sign. The low W - E bits are stored as they
// are. The exponent e is coded at two levels, so that nearly all values take two bits and the others a few more:
//   x = e - base (mod 256)
//   hot level    code x - start in k bits if it is below m = 2^k - 1, else m, and what is left of x goes on: x if x is
//                below start, else x - m
//   rare level   the same of what is left, with start 0 and a width of its own, 0 included
//   what is left of that is a byte
// A chunk, n values:
//   1  base; 2  start; 3  width of the hot level, 1..5, plus 16 times that of the rare one, 0..4, plus 128 if SPARSE; 4  0
//   if SPARSE, a bitmap of the values that are not all zeros; only those follow, and n is their number
//   the bits 0..15 of y as 16 bits each if there are so many, then the next 8 as bytes, then the others as planes
//   the hot level's codes as planes, the rare level's as planes, the bytes
// A plane holds one bit of every value, bit i of word g for value 32g+i, the lowest bit's plane first. Every part but
// the last ends with zeros to a multiple of 4 bytes, and the chunk too.
#pragma once
#include "hb_lane.h"

#define HB_XPK_SPARSE 128u
#define HB_XPK_SAMPLE 256  // values whose exponents choose the widths: 8 runs of 32
#define HB_XPK_MARGIN 64   // zeros on either side of the counts of the 256 exponents

// Words and halves turned left by one, and back.
template <int W, class U> HB_FN U hb_xpk_turn(U x) { return x << 1 | x >> (W - 1); }
template <int W, class U> HB_FN U hb_xpk_back(U y) { return y >> 1 | y << (W - 1); }

// Whether a bitmap of the zeros pays.
HB_FN bool hb_xpk_is_sparse(hb_u32 n, hb_u32 zeros) { return 16u * zeros > n; }

// Where run r of the sample begins; n is above HB_XPK_SAMPLE (below, all values are the sample).
HB_FN hb_u32 hb_xpk_run(hb_u32 n, hb_u32 r) { return (n - 32u) * r / 7u; }

struct hb_xpk_plan {
  hb_u32 base, start, hot, rare;  // the last two: widths
};

// From how often each exponent is in the sample. The search looks at 64 exponents around the most frequent one: for
// each width of the hot level its best place, the width then by the cost with a usual rare level, then the rare level.
// counts: of exponent e at HB_XPK_MARGIN + e; sample: how many values were counted
HB_FN hb_xpk_plan hb_xpk_choose(const hb_u16 *counts, hb_u32 sample) {
  const int WINDOW = 64, PAD = 16;
  hb_u16 mode = 0;
  hb_u32 before[PAD + WINDOW + PAD];
  for (hb_u16 e = 0; e < 256; e++) {
    hb_u16 count = counts[HB_XPK_MARGIN + e], key = (hb_u16)((count < 255 ? count : 255) << 8 | e);
    mode = key > mode ? key : mode;
  }
  mode &= 255u;
  const hb_u16 *window = counts + HB_XPK_MARGIN + mode - 31;
  hb_u32 *sum = before + PAD, total = 0;  // sum[i]: of the exponents before the i-th of the window
  for (int i = -PAD; i < 0; i++) sum[i] = 0;
  for (int i = 0; i < WINDOW; i++) {
    sum[i] = total;
    total += window[i];
  }
  for (int i = WINDOW; i < WINDOW + PAD; i++) sum[i] = total;

  hb_xpk_plan best = {0, 0, 0, 0};
  hb_u32 least = ~0u, others = 0;
  int end = 0, size = 0;  // the hot exponents of the window: those from end - size up to end
  for (hb_u32 k = 1; k <= 5; k++) {
    const int m = (1 << k) - 1;
    hb_u32 top = 0;
    for (int i = m; i <= WINDOW; i++) {
      hb_u32 key = (sum[i] - sum[i - m]) << 8 | (hb_u32)i;
      top = key > top ? key : top;
    }
    const int i = (int)(top & 255u);
    const hb_u32 left = sample - (top >> 8), near = sum[i + 2] - sum[i] + sum[i - m] - sum[i - m - 5];
    const hb_u32 cost = sample * k + 11u * left - 8u * near;
    if (cost < least) {
      least = cost;
      others = left;
      best.hot = k;
      end = i;
      size = m;
    }
  }
  least = ~0u;
  for (hb_u32 k = 0; k <= 4; k++) {
    const int m = (1 << k) - 1;
    for (int above = 0; above <= 4 && above <= m; above++) {
      const int first = end - size - (m - above);
      const hb_u32 near = sum[end + above] - sum[end] + sum[end - size] - sum[first];
      const hb_u32 cost = others * (k + 8u) - 8u * near;
      if (cost < least) {
        least = cost;
        best.rare = k;
        best.start = (hb_u32)(m - above);
        best.base = (hb_u32)(mode - 31 + first) & 255u;
      }
    }
  }
  return best;
}
