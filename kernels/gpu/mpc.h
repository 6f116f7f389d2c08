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

template <int T> struct hb_mpc_codec {
  static constexpr hb_u32 BITMAP = 32;
  const hb_u32 dim;
  HB_FN hb_mpc_codec(hb_u64 param) : dim((hb_u32)param) {}

  struct code {
    hb_u32 words, bits;  // lane g: word g of the bitmap
    hb_u32 q[HB_ROWS];
  };
  HB_FN code encode(const hb_warp &me, const hb_u32 *v, hb_u32) const {
    code c;
    const bool within = me.lane + dim < 32u;  // the word that is predicted from this lane's is in its row
    const hb_u32 from = (me.lane - dim) & 31u;
    hb_u32 last = 0;  // of the row before
    c.words = BITMAP;
    c.bits = 0;
#pragma unroll
    for (int r = 0; r < HB_ROWS; r++) {
      const hb_u32 before = __shfl_sync(HB_EVERY, within ? v[r] : (r ? v[r - 1] : 0u), (int)from);
      const hb_u32 t = hb_transpose(v[r] - before, me.lane);
      const hb_u32 left = __shfl_up_sync(HB_EVERY, t, 1);
      c.q[r] = t - (me.lane ? left : last);
      last = __shfl_sync(HB_EVERY, t, 31);
      const hb_u32 bits = __ballot_sync(HB_EVERY, c.q[r] != 0u);
      if (me.lane == (hb_u32)r) c.bits = bits;
      c.words += (hb_u32)__popc(bits);
    }
    return c;
  }
  HB_FN void store(const hb_warp &me, const code &c, hb_byte *to) const {
    hb_store_word(to + 4u * me.lane, c.bits);
    const hb_u32 below = (1u << me.lane) - 1u;
    hb_u32 next = BITMAP;
#pragma unroll
    for (int r = 0; r < HB_ROWS; r++) {
      const hb_u32 bits = __shfl_sync(HB_EVERY, c.bits, r);
      if (c.q[r]) hb_store_word(to + 4u * (next + (hb_u32)__popc(bits & below)), c.q[r]);
      next += (hb_u32)__popc(bits);
    }
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
      q = strided_sum(q, 1, me.lane) + carry;
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
    for (; stride < 32u; stride *= 2) {
      const hb_u32 y = __shfl_up_sync(HB_EVERY, x, stride);
      if (lane >= stride) x += y;
    }
    return x;
  }
};
