// xpk, a chunk a warp (kernels/hb_xpk.h tells the format). Value 32 g + lane is in group g of the registers; nothing
// but the coded chunk itself goes through the stage, bit by bit.
#pragma once
#include "../hb_xpk.h"
#include "chunks.h"
#include "mpc.h"

// hb_xpk_choose by a warp. counts: of exponent e at HB_XPK_MARGIN + e; memory: 97 words
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
  // a lane for each pair of a width and the places above the hot level, in the order in which the first of equals wins
  const hb_u32 k = (lane > 0u) + (lane > 2u) + (lane > 6u) + (lane > 11u);
  const int above = (int)(lane - (k == 0 ? 0u : k == 1 ? 1u : k == 2 ? 3u : k == 3 ? 7u : 12u));
  const hb_u32 key = lane < 17u ? ~(hb_xpk_rare_cost(sum, left, k, above, first, end) << 5 | lane) : 0u;
  const int winner = (int)(~hb_group_max<32>(key) & 31u);
  plan.rare = __shfl_sync(HB_EVERY, k, winner);
  plan.start = __shfl_sync(HB_EVERY, (hb_u32)((1 << k) - 1 - above), winner);
  plan.base = (hb_u32)(bottom + first - (int)plan.start) & 255u;
  return plan;
}

template <int T> struct hb_xpk_codec {
  static constexpr hb_u32 W = hb_size_of(T) == 2 ? 16 : 32, E = T == HB_F16 ? 5 : 8, PLANES = (W - E) % 8;
  static constexpr int GROUPS = W == 16 ? 64 : 32, PART = GROUPS / 4;
  HB_FN hb_xpk_codec(hb_u64) {}

  // Where the parts of a chunk of n values begin, in words.
  struct layout {
    hb_u32 values, words_of_bits;  // that are not in the bitmap as zeros; of a plane
    hb_u32 low, middle, planes, hot, rare;
    HB_FN layout(hb_u32 n, hb_u32 before, hb_u32 hot_width)
        : values(n), words_of_bits((n + 31u) / 32u), low(before), middle(before + (W == 32 ? (n + 1u) / 2u : 0u)),
          planes(middle + (n + 3u) / 4u), hot(planes + PLANES * words_of_bits), rare(hot + hot_width * words_of_bits) {}
  };
  static HB_FN hb_u32 count_of(hb_u32 used) { return W == 16 ? used / 2u : (used + 3u) / 4u; }
  static HB_FN hb_u32 group(const hb_u32 *v, int g) { return W == 32 ? v[g] : v[g / 2] >> (16 * (g % 2)) & 0xffffu; }
  static HB_FN void put(hb_u32 *v, int g, hb_u32 x) {
    if (W == 32) v[g] = x;
    else v[g / 2] = g % 2 ? v[g / 2] | x << 16 : x;
  }
  // Registers have no index at run time: the loops over groups see the first quarter of them and turn them by as much.
  static HB_FN void next_part(hb_u32 *v) {
    hb_u32 first[HB_ROWS / 4];
#pragma unroll
    for (int r = 0; r < HB_ROWS; r++) {
      if (r < HB_ROWS / 4) first[r] = v[r];
      v[r] = r < HB_ROWS / 4 * 3 ? v[r + HB_ROWS / 4] : first[r - HB_ROWS / 4 * 3];
    }
  }
  static HB_FN hb_u32 turn(hb_u32 x) { return hb_xpk_turn<W>(x) & (0xffffffffu >> (32u - W)); }
  static HB_FN hb_u32 back(hb_u32 y) { return hb_xpk_back<W>(y) & (0xffffffffu >> (32u - W)); }

  HB_FN hb_u32 encode(const hb_warp &me, const hb_u32 *chunk, hb_u32 used) const {
    hb_u32 v[HB_ROWS];
    const hb_u32 below = (1u << me.lane) - 1u, all = count_of(used);
    if (W == 16) {
      hb_to_pairs(me.lane, chunk, v);
    } else {
#pragma unroll
      for (int r = 0; r < HB_ROWS; r++) v[r] = chunk[r];
    }
    hb_u32 nonzero = 0;
#pragma unroll
    for (int g = 0; g < GROUPS; g++) nonzero += (hb_u32)__popc(__ballot_sync(HB_EVERY, group(v, g) != 0u));
    const bool sparse = hb_xpk_is_sparse(all, all - nonzero);
    hb_u32 bitmap[2] = {0, 0}, n = all;
    if (sparse) {
      n = nonzero;
      hb_u32 next = 0;
#pragma unroll
      for (int g = 0; g < GROUPS; g++) {
        const hb_u32 x = group(v, g), bits = __ballot_sync(HB_EVERY, x != 0u), at = next + (hb_u32)__popc(bits & below);
        if (x && W == 32) me.stage[at] = x;
        if (x && W == 16) ((hb_u16 *)me.stage)[at] = (hb_u16)x;
        if (me.lane == (hb_u32)(g & 31)) bitmap[g / 32] = bits;
        next += (hb_u32)__popc(bits);
      }
      __syncwarp();
#pragma unroll
      for (int g = 0; g < GROUPS; g++) {
        const hb_u32 i = 32u * g + me.lane;
        put(v, g, i >= n ? 0u : W == 32 ? me.stage[i] : (hb_u32)((const hb_u16 *)me.stage)[i]);
      }
      __syncwarp();
    }

    const hb_xpk_plan plan = choose(me, v, n);
    const hb_u32 most = (1u << plan.hot) - 1u, rare_most = (1u << plan.rare) - 1u;
    hb_u32 left = 0, last = 0;
#pragma unroll 1
    for (hb_u32 k = 0; k < GROUPS; k += PART) {
#pragma unroll
      for (int j = 0; j < PART; j++) {
        const hb_u32 g = k + j, x = (exponent(turn(group(v, j))) - plan.base) & 255u;
        const bool live = 32u * g + me.lane < n && ((x - plan.start) & 255u) >= most;
        left += (hb_u32)__popc(__ballot_sync(HB_EVERY, live));
        last += (hb_u32)__popc(__ballot_sync(HB_EVERY, live && rest(x, plan, most) >= rare_most));
      }
      next_part(v);
    }
    const layout at(n, 1u + (sparse ? (all + 31u) / 32u : 0u), plan.hot);
    const hb_u32 rare_words = (left + 31u) / 32u, bytes = at.rare + plan.rare * rare_words;
    const hb_u32 words = bytes + (last + 3u) / 4u;
    if (words >= (used + 3u) / 4u) return words;

#pragma unroll 1
    for (hb_u32 i = me.lane; i < words; i += 32u) me.stage[i] = 0;
    __syncwarp();
    if (me.lane == 0) {
      const hb_u32 widths = plan.hot | plan.rare << 4 | (sparse ? HB_XPK_SPARSE : 0u);
      me.stage[0] = plan.base | plan.start << 8 | widths << 16;
    }
    if (sparse) {
#pragma unroll
      for (hb_u32 h = 0; h < 2u; h++)
        if (32u * (me.lane + 32u * h) < all) me.stage[1u + me.lane + 32u * h] = bitmap[h];
    }
    hb_u32 rank = 0, rare_rank = 0;
#pragma unroll 1
    for (hb_u32 k = 0; k < GROUPS; k += PART) {
#pragma unroll
      for (int j = 0; j < PART; j++) {
        const hb_u32 g = k + j, i = 32u * g + me.lane, y = turn(group(v, j));
        const bool is = i < n;
        if (is && W == 32) ((hb_u16 *)(me.stage + at.low))[i] = (hb_u16)y;
        if (is) ((hb_byte *)(me.stage + at.middle))[i] = (hb_byte)(y >> (W - 16u));
        const hb_u32 x = (exponent(y) - plan.base) & 255u, over = (x - plan.start) & 255u;
        const hb_u32 code = is ? (over < most ? over : most) : 0u;
        const bool writes = me.lane == 0 && g < at.words_of_bits;
#pragma unroll
        for (hb_u32 b = 0; b < PLANES; b++) {
          const hb_u32 bits = __ballot_sync(HB_EVERY, is && (y >> (W - 8u + b) & 1u));
          if (writes) me.stage[at.planes + b * at.words_of_bits + g] = bits;
        }
#pragma unroll
        for (hb_u32 b = 0; b < 5u; b++)
          if (b < plan.hot) {
            const hb_u32 bits = __ballot_sync(HB_EVERY, code >> b & 1u);
            if (writes) me.stage[at.hot + b * at.words_of_bits + g] = bits;
          }
        const bool live = is && over >= most;
        const hb_u32 lives = __ballot_sync(HB_EVERY, live), over_rare = rest(x, plan, most);
        const bool rare = live && over_rare >= rare_most;
        const hb_u32 rares = __ballot_sync(HB_EVERY, rare);
        if (live) {
          const hb_u32 place = rank + (hb_u32)__popc(lives & below), rare_code = rare ? rare_most : over_rare;
#pragma unroll
          for (hb_u32 b = 0; b < 4u; b++)
            if (rare_code >> b & 1u) atomicOr(&me.stage[at.rare + b * rare_words + place / 32u], 1u << (place & 31u));
        }
        if (rare)
          ((hb_byte *)(me.stage + bytes))[rare_rank + (hb_u32)__popc(rares & below)] = (hb_byte)(over_rare - rare_most);
        rank += (hb_u32)__popc(lives);
        rare_rank += (hb_u32)__popc(rares);
      }
      next_part(v);
    }
    __syncwarp();
    return words;
  }

  HB_FN bool decode(const hb_warp &me, hb_u32 words, hb_u32 used, hb_u32 *v) const {
    const hb_u32 head = hb_uniform(me.stage[0]), all = count_of(used);
    const hb_xpk_plan plan = {head & 255u, head >> 8 & 255u, head >> 16 & 15u, head >> 20 & 7u};
    const bool sparse = head >> 16 & HB_XPK_SPARSE;
    if (words == 0 || plan.hot < 1u || plan.hot > 5u || plan.rare > 4u || plan.start > 15u || head >> 24) return false;
    hb_u16 *ranks = (hb_u16 *)(me.stage + HB_CHUNK / 4), *hot_ranks = ranks + 64, *rare_ranks = ranks + 128;
    const hb_u32 before = 1u + (sparse ? (all + 31u) / 32u : 0u);
    if (before > words) return false;
    const hb_u32 n = sparse ? count(me, 1, 1, before - 1u, ranks) : all;
    if (n > all) return false;
    const layout at(n, before, plan.hot);
    if (at.rare > words) return false;
    const hb_u32 left = count(me, at.hot, plan.hot, at.words_of_bits, hot_ranks), rare_words = (left + 31u) / 32u;
    const hb_u32 bytes = at.rare + plan.rare * rare_words;
    if (bytes > words) return false;
    const hb_u32 last = plan.rare ? count(me, at.rare, plan.rare, rare_words, rare_ranks) : left;
    if (bytes + (last + 3u) / 4u != words) return false;
    __syncwarp();

    const hb_u32 most = (1u << plan.hot) - 1u, rare_most = (1u << plan.rare) - 1u, below = (1u << me.lane) - 1u;
#pragma unroll 1
    for (hb_u32 k = 0; k < GROUPS; k += PART) {
#pragma unroll
      for (int j = 0; j < PART; j++) {
        const hb_u32 g = k + j;
        hb_u32 i = 32u * g + me.lane;
        bool is = i < all;
        if (sparse) {
          const hb_u32 bits = 32u * g < all ? me.stage[1 + g] : 0u;
          is = is && (bits >> me.lane & 1u);
          i = ranks[g] + (hb_u32)__popc(bits & below);
        }
        hb_u32 value = 0;
        if (is) {
          hb_u32 place = i, x = code(me, at.hot, plan.hot, at.words_of_bits, hot_ranks, place);
          if (x == most) {
            x = code(me, at.rare, plan.rare, rare_words, rare_ranks, place);
            if (x == rare_most) x += ((const hb_byte *)(me.stage + bytes))[place];
            x &= 255u;
            x = x < plan.start ? x : x + most;
          } else {
            x += plan.start;
          }
          x = (x + plan.base) & 255u;
          hb_u32 top = x;
#pragma unroll
          for (hb_u32 b = PLANES; b--;)
            top = top << 1 | (me.stage[at.planes + b * at.words_of_bits + i / 32u] >> (i & 31u) & 1u);
          hb_u32 y = (top & 255u) << 8 | ((const hb_byte *)(me.stage + at.middle))[i];
          if (W == 32) y = y << 16 | ((const hb_u16 *)(me.stage + at.low))[i];
          value = back(y);
        }
        put(v, j, value);
      }
      next_part(v);
    }
    if (W == 16) {
      hb_u32 pairs[HB_ROWS];
#pragma unroll
      for (int r = 0; r < HB_ROWS; r++) pairs[r] = v[r];
      hb_from_pairs(me.lane, pairs, v);
    }
    return true;
  }

 private:
  static HB_FN hb_u32 exponent(hb_u32 y) { return y >> (W - E); }
  // what the rare level codes of a value that the hot one does not
  static HB_FN hb_u32 rest(hb_u32 x, const hb_xpk_plan &plan, hb_u32 most) {
    return (x < plan.start ? x : x - most) & 255u;
  }
  static HB_FN hb_xpk_plan choose(const hb_warp &me, const hb_u32 *v, hb_u32 n) {
    hb_byte *exponents = (hb_byte *)me.stage;
    hb_u32 *counts = me.stage + 512, *sums = counts + 384;
#pragma unroll
    for (int g = 0; g < GROUPS; g++) exponents[32 * g + me.lane] = (hb_byte)exponent(turn(group(v, g)));
    for (hb_u32 i = me.lane; i < 384u; i += 32u) counts[i] = 0;
    __syncwarp();
    const hb_u32 sample = n < HB_XPK_SAMPLE ? n : HB_XPK_SAMPLE;
#pragma unroll 1
    for (hb_u32 r = 0; r < HB_XPK_SAMPLE / 32u; r++) {
      const hb_u32 i = (n <= HB_XPK_SAMPLE ? 32u * r : hb_xpk_run(n, r)) + me.lane;
      if (i < n) atomicAdd(&counts[HB_XPK_MARGIN + exponents[i]], 1u);
    }
    __syncwarp();
    const hb_xpk_plan plan = hb_xpk_choose_by(me.lane, counts, sample, sums);
    __syncwarp();
    return plan;
  }

  // How many codes of `width` planes from the word `at` on are all ones; ranks: how many before each word.
  static HB_FN hb_u32 count(const hb_warp &me, hb_u32 at, hb_u32 width, hb_u32 stride, hb_u16 *ranks) {
    hb_u32 before = 0;
#pragma unroll
    for (hb_u32 h = 0; h < 2u; h++) {
      const hb_u32 g = me.lane + 32u * h;
      hb_u32 ones = g < stride ? ~0u : 0u;
      for (hb_u32 b = 0; b < width && g < stride; b++) ones &= me.stage[at + b * stride + g];
      const hb_u32 number = (hb_u32)__popc(ones), sum = before + hb_sum_below(number, me.lane);
      ranks[g] = (hb_u16)(sum - number);
      before = __shfl_sync(HB_EVERY, sum, 31);
    }
    return before;
  }
  // The code at a place, which becomes its rank among those that are all ones if it is one of them.
  static HB_FN hb_u32 code(const hb_warp &me, hb_u32 at, hb_u32 width, hb_u32 stride, const hb_u16 *ranks, hb_u32 &place) {
    if (width == 0) return 0;
    const hb_u32 word = place / 32u, bit = place & 31u;
    hb_u32 ones = ~0u, x = 0;
    for (hb_u32 b = 0; b < width; b++) {
      const hb_u32 plane = me.stage[at + b * stride + word];
      ones &= plane;
      x |= (plane >> bit & 1u) << b;
    }
    if (ones >> bit & 1u) place = ranks[word] + (hb_u32)__popc(ones & ((1u << bit) - 1u));
    return x;
  }
};
