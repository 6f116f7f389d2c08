// xpk, lossless: the exponents of trained values are close to each other, while signs and mantissas are noise.
//
// A value of W bits is rotated left by one bit, so that y = exponent, mantissa, sign. The low W - E bits are stored
// unchanged. The exponent e is coded at two levels, so that nearly all values take two bits and the others a few more:
//   x = e - base (mod 256)
//   hot level    a code of k bits: x - start if it is below m = 2^k - 1, else m. In the latter case the remainder, x if
//                x is below start, else x - m, is passed to the rare level
//   rare level   codes the remainder in the same way, with start 0 and its own width, which may be 0
//   byte         the remainder of the rare level
// A chunk of n values:
//   4 bytes: base; start; width of the hot level, 1..5, plus 16 times the width of the rare level, 0..4, plus 128 if
//   SPARSE; 0
//   if SPARSE, a bitmap of the nonzero values; only these values follow, and n is their number
//   bits 0..15 of y as 16 bits each if y has so many low bits, then the next 8 as bytes, then the others as planes
//   the codes of the hot level as planes, the codes of the rare level as planes, the bytes
// A plane contains one bit of every value: bit i of word g is for value 32g+i. The plane of the lowest bit is first.
// Every part except the last, and the whole chunk, is padded with zeros to a multiple of 4 bytes.
#pragma once
#include "hb_lane.h"

#define HB_XPK_SPARSE 128u
#define HB_XPK_SAMPLE 256  // number of values whose exponents determine the widths: 8 runs of 32
#define HB_XPK_MARGIN 64   // number of zeros on either side of the counts of the 256 exponents

// Rotates words and halves left by one bit, and back.
template <int W, class U> HB_FN U hb_xpk_turn(U x) { return x << 1 | x >> (W - 1); }
template <int W, class U> HB_FN U hb_xpk_back(U y) { return y >> 1 | y << (W - 1); }

// Returns whether a bitmap of the zeros saves space.
HB_FN bool hb_xpk_is_sparse(hb_u32 n, hb_u32 zeros) { return 16u * zeros > n; }

// Start position of run r of the sample, if n is above HB_XPK_SAMPLE. Otherwise, the sample consists of all values.
HB_FN hb_u32 hb_xpk_run(hb_u32 n, hb_u32 r) { return (n - 32u) * r / 7u; }

struct hb_xpk_plan {
  hb_u32 base, start, hot, rare;  // hot and rare are widths
};

// The search for a plan considers a window of 64 exponents around the most frequent exponent of the sample. sum[i]:
// number of sampled values before position i of the window. At positions up to HB_XPK_PAD outside of the window, sum is
// 0 or the total.
#define HB_XPK_WINDOW 64
#define HB_XPK_BELOW 31  // positions of the window below the most frequent exponent
#define HB_XPK_PAD 16

// Sort key of exponents: number of occurrences (capped at 255), then size. count: occurrences of exponent e.
HB_FN hb_u16 hb_xpk_mode_key(hb_u16 count, hb_u32 e) { return (hb_u16)((count < 255 ? count : 255) << 8 | e); }

HB_FN hb_u32 hb_xpk_within(const hb_u32 *sum, int first, int end) { return sum[end] - sum[first]; }

// Sort key for the position of a hot level of k bits that ends before `end` (from the maximum of k to 64): the number
// of values in the level, then `end`.
HB_FN hb_u32 hb_xpk_hot_key(const hb_u32 *sum, hb_u32 k, int end) {
  return hb_xpk_within(sum, end - (1 << k) + 1, end) << 8 | (hb_u32)end;
}
// Number of exponent bits for this position, with a rare level of 3 bits: 2 positions above the hot level and 5 below.
HB_FN hb_u32 hb_xpk_hot_cost(const hb_u32 *sum, hb_u32 sample, hb_u32 k, hb_u32 key) {
  const int end = (int)(key & 255u), first = end - (1 << k) + 1;
  const hb_u32 near = hb_xpk_within(sum, end, end + 2) + hb_xpk_within(sum, first - 5, first);
  return sample * k + (sample - (key >> 8)) * 11u - 8u * near;
}
// Number of bits for the `left` exponents outside of first..end-1, with a rare level of k bits that has `above`
// positions above this range.
HB_FN hb_u32 hb_xpk_rare_cost(const hb_u32 *sum, hb_u32 left, hb_u32 k, int above, int first, int end) {
  const int below = (1 << k) - 1 - above;
  const hb_u32 near = hb_xpk_within(sum, end, end + above) + hb_xpk_within(sum, first - below, first);
  return left * (k + 8u) - 8u * near;
}

// Chooses the best position of the hot level for each width, then the cheapest width, then the rare level. Ties select
// the first candidate. counts: the count of exponent e is at HB_XPK_MARGIN + e; sample: number of counted values
HB_FN hb_xpk_plan hb_xpk_choose(const hb_u16 *counts, hb_u32 sample) {
  hb_u16 top = 0;
  for (hb_u16 e = 0; e < 256; e++) {
    hb_u16 key = hb_xpk_mode_key(counts[HB_XPK_MARGIN + e], e);
    top = key > top ? key : top;
  }
  const int bottom = (top & 255) - HB_XPK_BELOW;
  hb_u32 memory[HB_XPK_PAD + HB_XPK_WINDOW + HB_XPK_PAD + 1], *sum = memory + HB_XPK_PAD, total = 0;
  for (int i = -HB_XPK_PAD; i < 0; i++) sum[i] = 0;
  for (int i = 0; i < HB_XPK_WINDOW; i++) {
    sum[i] = total;
    total += counts[HB_XPK_MARGIN + bottom + i];
  }
  for (int i = HB_XPK_WINDOW; i <= HB_XPK_WINDOW + HB_XPK_PAD; i++) sum[i] = total;

  hb_xpk_plan plan = {0, 0, 0, 0};
  hb_u32 least = ~0u, place = 0;
  for (hb_u32 k = 1; k <= 5; k++) {
    hb_u32 best = 0;
    for (int end = (1 << k) - 1; end <= HB_XPK_WINDOW; end++) {
      hb_u32 key = hb_xpk_hot_key(sum, k, end);
      best = key > best ? key : best;
    }
    const hb_u32 cost = hb_xpk_hot_cost(sum, sample, k, best);
    if (cost < least) {
      least = cost;
      place = best;
      plan.hot = k;
    }
  }
  const hb_u32 left = sample - (place >> 8);
  const int end = (int)(place & 255u), first = end - (1 << plan.hot) + 1;
  least = ~0u;
  for (hb_u32 k = 0; k <= 4; k++) {
    const int most = (1 << k) - 1;
    for (int above = 0; above <= 4 && above <= most; above++) {
      const hb_u32 cost = hb_xpk_rare_cost(sum, left, k, above, first, end);
      if (cost < least) {
        least = cost;
        plan.rare = k;
        plan.start = (hb_u32)(most - above);
      }
    }
  }
  plan.base = (hb_u32)(bottom + first - (int)plan.start) & 255u;
  return plan;
}
