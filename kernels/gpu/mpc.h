// MPC, a chunk a warp: what kernels/hb_mpc.h does with vectors is done here by shuffles.
#pragma once
#include "chunks.h"

// 32 x 32 bits, a word a lane: bit i of lane b becomes bit b of lane i. At each step a lane keeps half its bits and takes
// the others from the lane s places away.
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
  static constexpr bool HALVES = hb_size_of(T) == 2;
  typedef hb_lane<hb_u32> L;
  const hb_u32 dim;
  HB_FN hb_mpc_codec(hb_u64 param) : dim((hb_u32)param) {}

  HB_FN hb_u32 encode(const hb_warp &me, const hb_u32 *chunk, hb_u32) const {
    hb_u32 v[HB_ROWS];
    if (HALVES) {
      hb_to_pairs(me.lane, chunk, v);
    } else {
#pragma unroll
      for (int r = 0; r < HB_ROWS; r++) v[r] = chunk[r];
    }
    const hb_transposition transpose(me.lane);
    const bool within = me.lane + dim < 32u;  // the value that is predicted from this lane's is in its row
    const hb_u32 from = (me.lane - dim) & 31u, below = (1u << me.lane) - 1u;
    hb_u32 next = BITMAP, bitmap = 0, last = 0;  // last: of the row before
#pragma unroll
    for (int r = 0; r < HB_ROWS; r++) {
      const hb_u32 above = r ? v[r - 1] : 0u;
      const hb_u32 other = HALVES ? __funnelshift_l(above, v[r], 16) : above;
      const hb_u32 before = __shfl_sync(HB_EVERY, within ? v[r] : other, (int)from);
      const hb_u32 t = transpose(HALVES ? L::subtract16(v[r], before) : v[r] - before);
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
    if (words < BITMAP || hb_uniform(count) + BITMAP != words) return false;
    const hb_transposition transpose(me.lane);
    hb_u32 next = BITMAP, carry = 0;
#pragma unroll
    for (int r = 0; r < HB_ROWS; r++) {
      const hb_u32 bits = __shfl_sync(HB_EVERY, mine, r);
      hb_u32 q = bits >> me.lane & 1u ? me.stage[next + (hb_u32)__popc(bits & below)] : 0u;
      next += (hb_u32)__popc(bits);
      q = hb_sum_below(q, me.lane) + carry;
      carry = __shfl_sync(HB_EVERY, q, 31);
      v[r] = transpose(q);
    }
    const hb_u32 from = 32u - dim + me.lane % dim;  // the last of the lane's kind in the row before
    if (dim == 1u) {
      integrate<1>(me, from, v);
    } else {
      integrate<0>(me, from, v);
    }
    return true;
  }

 private:
  static HB_FN hb_u32 add(hb_u32 a, hb_u32 b) { return HALVES ? L::add16(a, b) : a + b; }
  // Each value becomes its sum with those a multiple of the stride before it; DIM 0 is any.
  template <hb_u32 DIM> HB_FN void integrate(const hb_warp &me, hb_u32 from, hb_u32 *v) const {
#pragma unroll
    for (int r = 0; r < HB_ROWS; r++) {
      hb_u32 x = v[r];
#pragma unroll
      for (int k = 0; k < 5; k++) {
        const hb_u32 s = (DIM ? DIM : dim) << k;
        if (s >= 32u) break;
        const hb_u32 y = __shfl_up_sync(HB_EVERY, x, s);
        if (me.lane >= s) x = add(x, y);
      }
      const hb_u32 last = __shfl_sync(HB_EVERY, r ? v[r - 1] : 0u, (int)from);
      if (HALVES) {
        x = L::add16(x, last >> 16);
        x = L::add16(x, __shfl_sync(HB_EVERY, x, (int)from) << 16);
      } else {
        x += last;
      }
      v[r] = x;
    }
    if (HALVES) {
      hb_u32 pairs[HB_ROWS];
#pragma unroll
      for (int r = 0; r < HB_ROWS; r++) pairs[r] = v[r];
      hb_from_pairs(me.lane, pairs, v);
    }
  }
};
