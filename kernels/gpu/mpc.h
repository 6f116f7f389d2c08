// MPC with one chunk per warp: shuffles replace the vector operations of kernels/hb_mpc.h.
#pragma once
#include "chunks.h"

// Transposes 32 x 32 bits, one word per lane: bit i of lane b becomes bit b of lane i. In each step, a lane keeps half
// of its bits and takes the other half from the lane at distance s.
struct hb_transposition {
  hb_u32 keep[5], turn[5];
  HB_FN hb_transposition(hb_u32 lane) {
    hb_u32 low = 0x0000ffffu;
#pragma unroll
    for (int k = 0; k < 5; k++) {
      const hb_u32 s = 16u >> k;
      keep[k] = lane & s ? ~low : low;
      turn[k] = lane & s ? 32u - s : s;
      low ^= low << (s / 2u);
    }
  }
  HB_FN hb_u32 operator()(hb_u32 x) const {
#pragma unroll
    for (int k = 0; k < 5; k++) {
      const hb_u32 y = __shfl_xor_sync(HB_EVERY, x, 16 >> k);
      x = (x & keep[k]) | (__funnelshift_l(y, y, turn[k]) & ~keep[k]);
    }
    return x;
  }
};

// Returns the sum of the words of this lane and of all previous lanes.
HB_FN hb_u32 hb_sum_below(hb_u32 x, hb_u32 lane) {
#pragma unroll
  for (hb_u32 s = 1; s < 32u; s *= 2) {
    const hb_u32 y = __shfl_up_sync(HB_EVERY, x, s);
    if (lane >= s) x += y;
  }
  return x;
}

template <int T> struct hb_mpc_codec {
  static constexpr hb_u32 BITMAP = 32;
  static constexpr bool HALVES = hb_size_of(T) == 2;
  typedef hb_lane<hb_u32> L;
  const hb_u32 dim;
  HB_FN hb_mpc_codec(hb_u64 param) : dim((hb_u32)param) {}

  HB_FN hb_u32 encode(const hb_warp &me, const hb_u32 *chunk, hb_u32) const {
    const hb_warp rows = rows_of(me);
    hb_to_stage(rows, chunk);
    const hb_transposition transpose(me.lane);
    const bool within = me.lane + dim < 32u;  // the value predicted from this lane's value is in the same row
    const hb_u32 from = (me.lane - dim) & 31u, below = (1u << me.lane) - 1u;
    hb_u32 next = BITMAP, bitmap = 0, above = 0, last = 0;  // `above` and `last` belong to the previous row
#pragma unroll 4
    for (hb_u32 r = 0; r < HB_ROWS; r++) {
      const hb_u32 x = row(rows, r), other = HALVES ? __funnelshift_l(above, x, 16) : above;
      const hb_u32 before = __shfl_sync(HB_EVERY, within ? x : other, (int)from);
      const hb_u32 t = transpose(HALVES ? L::subtract16(x, before) : x - before);
      const hb_u32 left = __shfl_up_sync(HB_EVERY, t, 1), q = t - (me.lane ? left : last);
      last = __shfl_sync(HB_EVERY, t, 31);
      above = x;
      const hb_u32 bits = __ballot_sync(HB_EVERY, q != 0u);
      __syncwarp();
      if (q) me.stage[next + (hb_u32)__popc(bits & below)] = q;
      next += (hb_u32)__popc(bits);
      if (me.lane == r) bitmap = bits;
    }
    me.stage[me.lane] = bitmap;
    return next;
  }

  HB_FN bool decode(const hb_warp &me, hb_u32 words, hb_u32, hb_u32 *v) const {
    const hb_u32 mine = me.stage[me.lane], below = (1u << me.lane) - 1u, count = hb_warp_sum((hb_u32)__popc(mine));
    if (words < BITMAP || count + BITMAP != words) return false;
    const hb_warp rows = rows_of(me);
    hb_u32 next = words;
#pragma unroll 1
    for (hb_u32 r = HB_ROWS; r--;) {  // from the last row to the first, so that no row overwrites unread words
      const hb_u32 bits = __shfl_sync(HB_EVERY, mine, (int)r);
      next -= (hb_u32)__popc(bits);
      const hb_u32 q = bits >> me.lane & 1u ? me.stage[next + (hb_u32)__popc(bits & below)] : 0u;
      __syncwarp();
      rows.stage[32u * r + me.lane] = q;
      __syncwarp();
    }
    const hb_transposition transpose(me.lane);
    const hb_u32 from = 32u - dim + me.lane % dim;  // the last lane with the same remainder in the previous row
    hb_u32 carry = 0, last = 0;
#pragma unroll 4
    for (hb_u32 r = 0; r < HB_ROWS; r++) {
      const hb_u32 q = hb_sum_below(rows.stage[32u * r + me.lane], me.lane) + carry;
      carry = __shfl_sync(HB_EVERY, q, 31);
      last = integrate(me, from, transpose(q), last);
      set_row(rows, r, last);
    }
    hb_from_stage(rows, v);
    return true;
  }

 private:
  // The rows of a chunk, stored in the stage after the bitmap. No row starts before its encoded words, so decoding in
  // place from the last row to the first never overwrites unread words.
  static HB_FN hb_warp rows_of(const hb_warp &me) { return {me.lane, me.stage + BITMAP}; }
  // The word of a lane in a row. For 16-bit values, the word contains the values at positions lane (low half) and 32 +
  // lane.
  static HB_FN hb_u32 row(const hb_warp &rows, hb_u32 r) {
    if (!HALVES) return rows.stage[32u * r + rows.lane];
    const hb_u16 *halves = (const hb_u16 *)(rows.stage + 32u * r);
    return halves[rows.lane] | (hb_u32)halves[32u + rows.lane] << 16;
  }
  static HB_FN void set_row(const hb_warp &rows, hb_u32 r, hb_u32 x) {
    if (!HALVES) {
      rows.stage[32u * r + rows.lane] = x;
    } else {
      hb_u16 *halves = (hb_u16 *)(rows.stage + 32u * r);
      __syncwarp();
      halves[rows.lane] = (hb_u16)x;
      halves[32u + rows.lane] = (hb_u16)(x >> 16);
    }
  }
  static HB_FN hb_u32 add(hb_u32 a, hb_u32 b) { return HALVES ? L::add16(a, b) : a + b; }
  // Adds, to each value of a row, the values that precede it by multiples of `dim`; last: the previous row.
  HB_FN hb_u32 integrate(const hb_warp &me, hb_u32 from, hb_u32 x, hb_u32 last) const {
#pragma unroll
    for (int k = 0; k < 5; k++) {
      const hb_u32 s = dim << k, y = __shfl_sync(HB_EVERY, x, (int)(me.lane - s));
      if (me.lane >= s) x = add(x, y);
    }
    last = __shfl_sync(HB_EVERY, last, (int)from);
    if (!HALVES) return x + last;
    x = L::add16(x, last >> 16);
    return L::add16(x, __shfl_sync(HB_EVERY, x, (int)from) << 16);
  }
};
