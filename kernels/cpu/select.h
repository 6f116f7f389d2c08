// Selection of the k values with the largest magnitudes in one pass over a message. The k-th largest magnitude is found
// digit by digit, among a shrinking set of candidates.
#pragma once
#include <stdlib.h>
#include <string.h>

#include "values.h"

namespace {
#include "../hb_sparse.h"

// Source of the values.
struct source {
  uint32_t type;
  const byte *x;
  // calls f(position, values as float32, number of values) for up to TILE values of first..end-1 at a time
  template <class F> void tiles(uint64_t first, uint64_t end, F f) const {
    alignas(64) float buffer[TILE];
    for (uint64_t at = first; at < end; at += TILE) {
      const uint64_t n = end - at < TILE ? end - at : TILE;
      const byte *ahead = x + size_of(type) * (at + 2 * TILE);  // further ahead than the processor prefetches by itself
      for (uint64_t line = 0; line < size_of(type) * TILE; line += 64) __builtin_prefetch(ahead + line);
      f(at, load_values(type, x + size_of(type) * at, n, buffer), n);
    }
  }
  // calls f(position, bits of 32 float32 values); the last group is padded with zeros
  template <class F> void words(uint64_t first, uint64_t end, F f) const {
    tiles(first, end, [&](uint64_t at, const float *v, uint64_t n) {
      uint64_t i = 0;
      for (; i + 32 <= n; i += 32) f(at + i, (const hb_u32 *)v + i);
      if (i == n) return;
      hb_u32 last[32] = {};
      memcpy(last, v + i, 4 * (n - i));
      f(at + i, last);
    });
  }
};

// Copies the magnitudes from `low` to `low + span`. `to` has space for n values plus a vector, and may equal `from`.
HB_FN uint64_t narrow(const hb_u32 *from, uint64_t n, hb_u32 low, hb_u32 span, hb_u32 *to) {
  hb_u32 *next = to;
  uint64_t i = 0;
  for (; i + HB_LANES <= n; i += HB_LANES) {
    hb_v x = lanes::load(from + i) & HB_MAGNITUDE;
    next += __builtin_popcount(lanes::pack(x - low <= span, x, next));
  }
  for (; i < n; i++) {
    hb_u32 x = hb_lane<hb_u32>::load(from + i) & HB_MAGNITUDE;
    if (x - low <= span) *next++ = x;
  }
  return (uint64_t)(next - to);
}
// Counts a digit of the magnitudes, starting from `base`. Values below a rising floor are not counted, because they
// cannot be among the k largest.
struct digit {
  hb_u32 base, shift, width;
  uint64_t k, counted = 0, bin[HB_DIGIT_BINS] = {};
  hb_u32 floor = 0;
  digit(int number, hb_u32 from, uint64_t wanted)
      : base(from), shift(hb_digit_shift(number)), width(hb_digit_bins(number) << shift), k(wanted) {}
  uint64_t narrow_to_floor(const hb_u32 *v, uint64_t n, hb_u32 *to) const {
    return narrow(v, n, base + (floor << shift), width - (floor << shift) - 1, to);
  }
  // Writes to `to` those of up to TILE values that may be the k-th largest value. Returns their number.
  uint64_t count(const hb_u32 *v, uint64_t n, hb_u32 *to) {
    const uint64_t left = narrow_to_floor(v, n, to);
    for (uint64_t i = 0; i < left; i++) bin[(to[i] - base) >> shift]++;
    counted += left;
    if (counted)
      while (counted - bin[floor] >= k) counted -= bin[floor++];
    return left;
  }
};
// Candidates for the k-th largest value. The floor rises above most values, so the candidates need far less memory than
// all values. The buffer grows if half of its size is insufficient.
struct candidates {
  hb_u32 *values = nullptr;
  uint64_t n = 0, room = 0;
  candidates() = default;
  candidates(const candidates &) = delete;
  ~candidates() { free(values); }
  void add(digit &d, const hb_u32 *v, uint64_t count) {
    if (n + TILE + HB_LANES > room) {
      if (n) n = d.narrow_to_floor(values, n, values);
      if (2 * (n + TILE) > room) {
        room = 2 * room + 16 * TILE;
        values = (hb_u32 *)realloc(values, 4 * room);
        if (!values) abort();
      }
    }
    n += d.count(v, count, values + n);
  }
  void narrow_down(digit &d) {
    const uint64_t all = n;
    n = 0;
    for (uint64_t at = 0; at < all; at += TILE)
      n += d.count(values + at, all - at < TILE ? all - at : TILE, values + n);
  }
};
// Determines the smallest magnitude to send, digit by digit.
hb_cut select(const source &s, uint64_t n, uint64_t k) {
  if (!k) return {HB_MAGNITUDE, 0};
  candidates left;
  hb_u32 base = 1;
  for (int number = 0; number < HB_DIGITS; number++) {
    digit d(number, base, k);
    if (number == 0)
      s.tiles(0, n, [&](uint64_t, const float *v, uint64_t count) { left.add(d, (const hb_u32 *)v, count); });
    else
      left.narrow_down(d);
    if (d.counted < k) return {0, k - d.counted};
    base += d.floor << d.shift;
    k -= d.counted - d.bin[d.floor];
    if (k == d.bin[d.floor]) return {base - 1, 0};
  }
  return {base, k};
}
}  // namespace
