// The two levels of xpk's exponent code on a warp: how the levels are chosen, and how a list of bytes in shared memory
// is coded as planes (see kernels/hb_xpk.h for the format).
#pragma once
#include "../hb_xpk.h"
#include "warp.h"

// The same as hb_xpk_choose, computed by a warp. counts: the count of exponent e is at HB_XPK_MARGIN + e; memory: 97
// words
HB_FN hb_xpk_plan hb_xpk_choose_by(hb_u32 lane, const hb_u32 *counts, hb_u32 sample, hb_u32 *memory) {
  hb_u32 top = 0;
#pragma unroll
  for (hb_u32 e = lane; e < 256u; e += 32u)
    top = hb_lane<hb_u32>::max(top, hb_xpk_mode_key((hb_u16)counts[HB_XPK_MARGIN + e], e));
  const int bottom = (int)(hb_group_max<32>(top) & 255u) - HB_XPK_BELOW;
  hb_u32 *sum = memory + HB_XPK_PAD;
  const hb_u32 *window = counts + HB_XPK_MARGIN + bottom + 2 * (int)lane;
  const hb_u32 both = hb_sum_below(window[0] + window[1], lane), total = __shfl_sync(HB_EVERY, both, 31);
  sum[2u * lane] = both - window[0] - window[1];
  sum[2u * lane + 1u] = both - window[1];
  if (lane < HB_XPK_PAD) memory[lane] = 0;
  if (lane <= HB_XPK_PAD) sum[HB_XPK_WINDOW + lane] = total;
  __syncwarp();

  hb_xpk_plan plan = {0, 0, 0, 0};
  hb_u32 least = ~0u, place = 0;
#pragma unroll 1
  for (hb_u32 k = 1; k <= 5u; k++) {
    hb_u32 best = 0;
    for (int end = (1 << k) - 1 + (int)lane; end <= HB_XPK_WINDOW; end += 32)
      best = hb_lane<hb_u32>::max(best, hb_xpk_hot_key(sum, k, end));
    best = hb_group_max<32>(best);
    const hb_u32 cost = hb_xpk_hot_cost(sum, sample, k, best);
    if (cost < least) least = cost, place = best, plan.hot = k;
  }
  const hb_u32 left = sample - (place >> 8);
  const int end = (int)(place & 255u), first = end - (1 << plan.hot) + 1;
  // One lane for each combination of a width and a number of positions above the hot level. The combinations are
  // ordered so that the first of equally good candidates is chosen.
  const hb_u32 k = (lane > 0u) + (lane > 2u) + (lane > 6u) + (lane > 11u);
  const int above = (int)(lane - (k == 0 ? 0u : k == 1 ? 1u : k == 2 ? 3u : k == 3 ? 7u : 12u));
  const hb_u32 key = lane < 17u ? ~(hb_xpk_rare_cost(sum, left, k, above, first, end) << 5 | lane) : 0u;
  const int winner = (int)(~hb_group_max<32>(key) & 31u);
  plan.rare = __shfl_sync(HB_EVERY, k, winner);
  plan.start = __shfl_sync(HB_EVERY, (hb_u32)((1 << k) - 1 - above), winner);
  plan.base = (hb_u32)(bottom + first - (int)plan.start) & 255u;
  return plan;
}

// One level of the exponent code for a list of bytes in shared memory. The remainders replace the list.
struct hb_xpk_level {
  hb_u32 width, base, start, most;
  HB_FN hb_xpk_level(hb_u32 width, hb_u32 base, hb_u32 start)
      : width(width), base(base), start(start), most((1u << width) - 1u) {}

  // Writes the codes of n bytes as planes. Returns the number of remainders, which are compacted in place.
  HB_FN hb_u32 encode(hb_u32 lane, hb_byte *list, hb_u32 n, hb_u32 *planes) const {
    const hb_u32 stride = (n + 31u) / 32u, below = (1u << lane) - 1u;
    hb_u32 left = 0;
    __syncwarp();
#pragma unroll 1
    for (hb_u32 g = 0; g < stride; g++) {
      const hb_u32 i = 32u * g + lane;
      const bool is = i < n;
      const hb_u32 x = ((is ? list[i] : 0u) - base) & 255u, over = (x - start) & 255u;
      const hb_u32 code = is ? (over < most ? over : most) : 0u;
      hb_u32 mine = 0;  // the plane of the lane's number
#pragma unroll
      for (hb_u32 b = 0; b < 5u; b++) {
        const hb_u32 bits = __ballot_sync(HB_EVERY, code >> b & 1u);
        if (lane == b) mine = bits;
      }
      if (lane < width) planes[lane * stride + g] = mine;
      const bool stays = is && over >= most;
      const hb_u32 those = __ballot_sync(HB_EVERY, stays);
      __syncwarp();
      if (stays) list[left + (hb_u32)__popc(those & below)] = (hb_byte)(x < start ? x : x - most);
      left += (hb_u32)__popc(those);
    }
    __syncwarp();
    return left;
  }
  // Counts the remainders of n bytes after this level. Bits after n are counted as well.
  HB_FN hb_u32 left(hb_u32 lane, const hb_u32 *planes, hb_u32 n) const {
    const hb_u32 stride = (n + 31u) / 32u;
    if (width == 0) return n;
    hb_u32 count = 0;
#pragma unroll 1
    for (hb_u32 g = lane; g < stride; g += 32u) count += (hb_u32)__popc(ones(planes + g, stride));
    return hb_warp_sum(count);
  }
  // Inverse operation, from the last byte to the first, for at most `room` of the n bytes. left: number of remainders.
  HB_FN void decode(hb_u32 lane, const hb_u32 *planes, hb_u32 n, hb_u32 left, hb_byte *list, hb_u32 room) const {
    const hb_u32 stride = (n + 31u) / 32u, below = (1u << lane) - 1u;
    if (width == 0) return;
#pragma unroll 1
    for (hb_u32 g = stride; g--;) {
      const hb_u32 i = 32u * g + lane, those = ones(planes + g, stride);
      hb_u32 code = 0;
#pragma unroll
      for (hb_u32 b = 0; b < 5u; b++)
        if (b < width) code |= (planes[b * stride + g] >> lane & 1u) << b;
      left -= (hb_u32)__popc(those);
      const bool is = i < n && i < room;
      hb_u32 x = code + start;
      if (is && code == most) {
        x = list[left + (hb_u32)__popc(those & below)];
        if (x >= start) x += most;
      }
      __syncwarp();
      if (is) list[i] = (hb_byte)(x + base);
      __syncwarp();
    }
  }

 private:
  // Marks the codes that consist only of ones, given a word of each plane.
  HB_FN hb_u32 ones(const hb_u32 *plane, hb_u32 stride) const {
    hb_u32 all = ~0u;
#pragma unroll
    for (hb_u32 b = 0; b < 5u; b++)
      if (b < width) all &= plane[b * stride];
    return all;
  }
};
