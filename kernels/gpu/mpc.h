// MPC, a chunk a warp: what kernels/hb_mpc.h does with vectors is done here by shuffles.
#pragma once
#include "chunks.h"

// 32 x 32 bits, a word a lane: bit i of lane b becomes bit b of lane i.
HB_FN hb_u32 hb_transpose(hb_u32 x, hb_u32 lane) {
  hb_u32 low = 0x0000ffffu;
#pragma unroll
  for (hb_u32 s = 16; s; s /= 2) {
    const hb_u32 y = __shfl_xor_sync(HB_EVERY, x, s);
    x = lane & s ? (x & ~low) | ((y & ~low) >> s) : (x & low) | ((y & low) << s);
    low ^= low << (s / 2);
  }
  return x;
}

// The sum of the lane's word and those of the lanes before it.
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
  const hb_u32 dim;
  HB_FN hb_mpc_codec(hb_u64 param) : dim((hb_u32)param) {}

  HB_FN hb_u32 encode(const hb_warp &me, const hb_u32 *v, hb_u32) const {
    const bool within = me.lane + dim < 32u;  // the word that is predicted from this lane's is in its row
    const hb_u32 from = (me.lane - dim) & 31u, below = (1u << me.lane) - 1u;
    hb_u32 next = BITMAP, bitmap = 0, last = 0;  // last: of the row before
#pragma unroll
    for (int r = 0; r < HB_ROWS; r++) {
      const hb_u32 before = __shfl_sync(HB_EVERY, within ? v[r] : (r ? v[r - 1] : 0u), (int)from);
      const hb_u32 t = hb_transpose(v[r] - before, me.lane);
      const hb_u32 left = __shfl_up_sync(HB_EVERY, t, 1), q = t - (me.lane ? left : last);
      last = __shfl_sync(HB_EVERY, t, 31);
      const hb_u32 bits = __ballot_sync(HB_EVERY, q != 0u);
      if (q) me.stage[next + (hb_u32)__popc(bits & below)] = q;
      next += (hb_u32)__popc(bits);
      if (me.lane == (hb_u32)r) bitmap = bits;
    }
    me.stage[me.lane] = bitmap;
    return next;
  }
  HB_FN bool decode(const hb_warp &me, hb_u32 words, hb_u32, hb_u32 *v) const {
    const hb_u32 mine = me.stage[me.lane], below = (1u << me.lane) - 1u;
    hb_u32 count = (hb_u32)__popc(mine);
#pragma unroll
    for (hb_u32 half = 16; half; half /= 2) count += __shfl_xor_sync(HB_EVERY, count, half);
    if (words < BITMAP || count + BITMAP != words) return false;
    hb_u32 next = BITMAP, carry = 0;
#pragma unroll
    for (int r = 0; r < HB_ROWS; r++) {
      const hb_u32 bits = __shfl_sync(HB_EVERY, mine, r);
      hb_u32 q = bits >> me.lane & 1u ? me.stage[next + (hb_u32)__popc(bits & below)] : 0u;
      next += (hb_u32)__popc(bits);
      q = hb_sum_below(q, me.lane) + carry;
      carry = __shfl_sync(HB_EVERY, q, 31);
      v[r] = hb_transpose(q, me.lane);
    }
    const hb_u32 from = 32u - dim + me.lane % dim;  // the last of the lane's kind in the row before
#pragma unroll
    for (int r = 0; r < HB_ROWS; r++) {
      v[r] = strided_sum(v[r], dim, me.lane);
      const hb_u32 before = __shfl_sync(HB_EVERY, r ? v[r - 1] : 0u, (int)from);
      v[r] += before;
    }
    return true;
  }

 private:
  // of the words of this row that lie a multiple of `stride` before the lane's, and its own
  static HB_FN hb_u32 strided_sum(hb_u32 x, hb_u32 stride, hb_u32 lane) {
#pragma unroll 1
    for (; stride < 32u; stride *= 2) {
      const hb_u32 y = __shfl_up_sync(HB_EVERY, x, stride);
      if (lane >= stride) x += y;
    }
    return x;
  }
};
