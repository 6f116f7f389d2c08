// xpk with one chunk per warp (see kernels/hb_xpk.h for the format). The values stay in registers, which only
// branch-free code can index. Data that is processed in loops is stored as lists in the stage: the exponents, and the
// values of a sparse chunk.
#pragma once
#include "chunks.h"
#include "mpc.h"
#include "xpk_levels.h"

template <int T> struct hb_xpk_codec {
  static constexpr hb_u32 W = hb_size_of(T) == 2 ? 16 : 32, E = T == HB_F16 ? 5 : 8, PLANES = (W - E) % 8;
  static constexpr hb_u32 GROUPS = HB_ROWS * 32 / W, TOPS = 8 * GROUPS;  // groups of 32 values; words for one byte each
  HB_FN hb_xpk_codec(hb_u64) {}

  // Positions of the parts of a chunk of n values, in words. Before the planes there is space for one byte per value,
  // which holds the exponents until the rest is encoded.
  struct layout {
    hb_u32 values, words_of_bits;  // values not marked as zeros; words of a plane
    hb_u32 low, middle, planes, hot;
    HB_FN layout(hb_u32 n, hb_u32 before)
        : values(n), words_of_bits((n + 31u) / 32u), low(before), middle(before + (W == 32 ? (n + 1u) / 2u : 0u)),
          planes(middle + (n + 3u) / 4u), hot(planes + PLANES * words_of_bits) {}
  };
  static HB_FN hb_u32 count_of(hb_u32 used) { return W == 16 ? used / 2u : (used + 3u) / 4u; }

  HB_FN hb_u32 encode(const hb_warp &me, const hb_u32 *chunk, hb_u32 used) const {
    hb_u32 v[HB_ROWS], nonzero = 0;
    const hb_u32 all = count_of(used), raw = (used + 3u) / 4u;
#pragma unroll
    for (int r = 0; r < HB_ROWS; r++) {
      v[r] = chunk[r];
      nonzero += W == 32 ? v[r] != 0u : ((v[r] & 0xffffu) != 0u) + (v[r] > 0xffffu);
    }
    nonzero = hb_warp_sum(nonzero);
    const bool sparse = hb_xpk_is_sparse(all, all - nonzero);
    const hb_u32 before = 1u + (sparse ? (all + 31u) / 32u : 0u);
    if (sparse) compact(me, v, before - 1u);
    const layout at(sparse ? nonzero : all, before);
    const hb_u32 n = at.values;

    hb_byte *list = (hb_byte *)(me.stage + before);
#pragma unroll
    for (hb_u32 r = 0; r < HB_ROWS; r++) {
      const hb_u32 y = turn(v[r]);
      if (W == 32) list[32u * r + me.lane] = (hb_byte)(y >> 24);
      else ((hb_u16 *)list)[32u * r + me.lane] = (hb_u16)__byte_perm(y, 0, 0x4431);
    }
    const hb_xpk_plan plan = choose(me, list, n);
    if constexpr (PLANES > 0) {
#pragma unroll 1
      for (hb_u32 g = 0; g < at.words_of_bits; g++) {
        const hb_u32 i = 32u * g + me.lane, top = i < n ? list[i] : 0u;
#pragma unroll
        for (hb_u32 b = 0; b < PLANES; b++) {
          const hb_u32 bits = __ballot_sync(HB_EVERY, top >> b & 1u);
          if (me.lane == b) me.stage[at.planes + b * at.words_of_bits + g] = bits;
        }
        if (i < n) list[i] = (hb_byte)(top >> PLANES);
      }
    }
    const hb_xpk_level hot(plan.hot, plan.base, plan.start), rare(plan.rare, 0, 0);
    const hb_u32 left = hot.encode(me.lane, list, n, me.stage + at.hot);
    const hb_u32 planes = at.hot + plan.hot * at.words_of_bits, bytes = planes + plan.rare * ((left + 31u) / 32u);
    if (bytes >= raw) return bytes;
    const hb_u32 last = rare.encode(me.lane, list, left, me.stage + planes), words = bytes + (last + 3u) / 4u;
    if (words >= raw) return words;

#pragma unroll 1
    for (hb_u32 i = me.lane; i < 4u * (words - bytes); i += 32u)
      ((hb_byte *)(me.stage + bytes))[i] = i < last ? list[i] : (hb_byte)0;
    __syncwarp();
#pragma unroll
    for (hb_u32 r = 0; r < HB_ROWS; r++) {
      const hb_u32 i = 32u * r + me.lane, y = turn(v[r]);
      if (W == 32) {
        if (i < (n + 1u) / 2u * 2u) ((hb_u16 *)(me.stage + at.low))[i] = (hb_u16)y;
        if (i < (n + 3u) / 4u * 4u) ((hb_byte *)(me.stage + at.middle))[i] = (hb_byte)(y >> 16);
      } else if (i < (n + 3u) / 4u * 2u) {
        ((hb_u16 *)(me.stage + at.middle))[i] = (hb_u16)__byte_perm(y, 0, 0x4420);
      }
    }
    const hb_u32 widths = plan.hot | plan.rare << 4 | (sparse ? HB_XPK_SPARSE : 0u);
    if (me.lane == 0) me.stage[0] = plan.base | plan.start << 8 | widths << 16;
    __syncwarp();
    return words;
  }

  HB_FN bool decode(const hb_warp &me, hb_u32 words, hb_u32 used, hb_u32 *v) const {
    const hb_u32 head = hb_uniform(me.stage[0]), all = count_of(used);
    const hb_xpk_plan plan = {head & 255u, head >> 8 & 255u, head >> 16 & 15u, head >> 20 & 7u};
    const bool sparse = head >> 16 & HB_XPK_SPARSE;
    if (words == 0 || plan.hot < 1u || plan.hot > 5u || plan.rare > 4u || plan.start > 15u || head >> 24) return false;
    const hb_u32 before = 1u + (sparse ? (all + 31u) / 32u : 0u);
    if (before > words) return false;
    // The bitmap is stored like a plane of 1-bit codes.
    const hb_u32 n = sparse ? hb_xpk_level(1, 0, 0).left(me.lane, me.stage + 1, 32u * (before - 1u)) : all;
    if (n > all) return false;
    const layout at(n, before);
    const hb_xpk_level hot(plan.hot, plan.base, plan.start), rare(plan.rare, 0, 0);
    const hb_u32 planes = at.hot + plan.hot * at.words_of_bits;
    if (planes > words) return false;
    const hb_u32 left = hot.left(me.lane, me.stage + at.hot, n), bytes = planes + plan.rare * ((left + 31u) / 32u);
    if (bytes > words) return false;
    const hb_u32 last = rare.left(me.lane, me.stage + planes, left);
    if (bytes + (last + 3u) / 4u != words) return false;

#pragma unroll
    for (hb_u32 r = 0; r < HB_ROWS; r++) {
      const hb_u32 i = 32u * r + me.lane;
      v[r] = 0;
      if (W == 32 && i < n) {
        const hb_u32 middle = ((const hb_byte *)(me.stage + at.middle))[i];
        v[r] = middle << 16 | ((const hb_u16 *)(me.stage + at.low))[i];
      }
      if (W == 16 && 2u * i < n) v[r] = ((const hb_u16 *)(me.stage + at.middle))[i];
    }
    __syncwarp();
    hb_byte *list = (hb_byte *)(me.stage + before);
#pragma unroll 1
    for (hb_u32 i = me.lane; i < last && i < n; i += 32u) list[i] = ((const hb_byte *)(me.stage + bytes))[i];
    __syncwarp();
    rare.decode(me.lane, me.stage + planes, left, last, list, n);
    hot.decode(me.lane, me.stage + at.hot, n, left, list, n);
    if constexpr (PLANES > 0) {
#pragma unroll 1
      for (hb_u32 i = me.lane; i < n; i += 32u) {
        hb_u32 top = list[i];
#pragma unroll
        for (hb_u32 b = PLANES; b--;)
          top = top << 1 | (me.stage[at.planes + b * at.words_of_bits + i / 32u] >> me.lane & 1u);
        list[i] = (hb_byte)top;
      }
      __syncwarp();
    }
#pragma unroll
    for (hb_u32 r = 0; r < HB_ROWS; r++) {
      const hb_u32 i = 32u * r + me.lane;
      if (W == 32) {
        v[r] = i < n ? back(v[r] | (hb_u32)list[i] << 24) : 0u;
      } else {
        const hb_u32 y = __byte_perm(v[r], ((const hb_u16 *)list)[i], 0x5140);
        v[r] = 2u * i + 1u < n ? back(y) : 2u * i < n ? back(y & 0xffffu) : 0u;
      }
    }
    __syncwarp();
    if (sparse) expand(me, v, n, before - 1u);
    return true;
  }

 private:
  // Repeats an operation for each value of a word.
  static HB_FN hb_u32 turn(hb_u32 x) {
    return W == 32 ? hb_xpk_turn<32>(x) : (x << 1 & 0xfffefffeu) | (x >> 15 & 0x00010001u);
  }
  static HB_FN hb_u32 back(hb_u32 y) {
    return W == 32 ? hb_xpk_back<32>(y) : (y >> 1 & 0x7fff7fffu) | (y << 15 & 0x80008000u);
  }
  static HB_FN hb_u32 value(const hb_u32 *values, hb_u32 i) {
    return W == 32 ? values[i] : ((const hb_u16 *)values)[i];
  }
  static HB_FN void set_value(hb_u32 *values, hb_u32 i, hb_u32 x) {
    if (W == 32) values[i] = x;
    else ((hb_u16 *)values)[i] = (hb_u16)x;
  }

  // Moves the nonzero values to the front and fills the rest with zeros. Writes their bitmap at word 1 of the stage.
  static HB_FN void compact(const hb_warp &me, hb_u32 *v, hb_u32 words) {
    hb_u32 *bitmap = me.stage + HB_CHUNK / 4, next = 0;
    const hb_u32 below = (1u << me.lane) - 1u;
    hb_to_stage(me, v);
#pragma unroll 1
    for (hb_u32 g = 0; g < GROUPS; g++) {
      const hb_u32 x = value(me.stage, 32u * g + me.lane), bits = __ballot_sync(HB_EVERY, x != 0u);
      __syncwarp();
      if (x) set_value(me.stage, next + (hb_u32)__popc(bits & below), x);
      if (me.lane == 0) bitmap[g] = bits;
      next += (hb_u32)__popc(bits);
    }
    __syncwarp();
#pragma unroll 1
    for (hb_u32 i = next + me.lane; i < 32u * GROUPS; i += 32u) set_value(me.stage, i, 0);
    hb_from_stage(me, v);
#pragma unroll 1
    for (hb_u32 g = me.lane; g < words; g += 32u) me.stage[1u + g] = bitmap[g];
    __syncwarp();
  }
  // Inverse operation, from the last group to the first. n: number of nonzero values.
  static HB_FN void expand(const hb_warp &me, hb_u32 *v, hb_u32 n, hb_u32 words) {
    hb_u32 *bitmap = me.stage + HB_CHUNK / 4;
    const hb_u32 below = (1u << me.lane) - 1u;
#pragma unroll 1
    for (hb_u32 g = me.lane; g < GROUPS; g += 32u) bitmap[g] = g < words ? me.stage[1u + g] : 0u;
    hb_to_stage(me, v);
#pragma unroll 1
    for (hb_u32 g = GROUPS; g--;) {
      const hb_u32 bits = bitmap[g];
      n -= (hb_u32)__popc(bits);
      const hb_u32 x = bits >> me.lane & 1u ? value(me.stage, n + (hb_u32)__popc(bits & below)) : 0u;
      __syncwarp();
      set_value(me.stage, 32u * g + me.lane, x);
      __syncwarp();
    }
    hb_from_stage(me, v);
  }

  // Reads the list of the values' highest bytes.
  static HB_FN hb_xpk_plan choose(const hb_warp &me, const hb_byte *list, hb_u32 n) {
    hb_u32 *counts = (hb_u32 *)list + TOPS, *sums = counts + 256 + 2 * HB_XPK_MARGIN;
#pragma unroll 1
    for (hb_u32 i = me.lane; i < 256u + 2u * HB_XPK_MARGIN; i += 32u) counts[i] = 0;
    __syncwarp();
    const hb_u32 sample = n < HB_XPK_SAMPLE ? n : HB_XPK_SAMPLE;
#pragma unroll 1
    for (hb_u32 r = 0; r < HB_XPK_SAMPLE / 32u; r++) {
      const hb_u32 i = (n <= HB_XPK_SAMPLE ? 32u * r : hb_xpk_run(n, r)) + me.lane;
      if (i < n) atomicAdd(&counts[HB_XPK_MARGIN + (list[i] >> PLANES)], 1u);
    }
    __syncwarp();
    const hb_xpk_plan plan = hb_xpk_choose_by(me.lane, counts, sample, sums);
    __syncwarp();
    return plan;
  }
};
