// Integers of 4, 3 or 2 bits with two-level scales: a byte for each block of 16 or 32 values, relative to the largest
// magnitude in each group of 256 values.
//   maximum of a group   the upper 16 bits of its float32, rounded up (bfloat16, because float16 lacks the range)
//   scale of a block     the smallest r = 0..255 with maximum * r / 255 >= the largest magnitude of the block
//   value                level(code) * maximum * r / (255 * top), top = level(K), K = 2^(bits - 1) - 1
// Levels are even, level(k) = k, or uneven: level(k) = (9/8)^k - 1 for k >= 0, and level(-k) = -level(k). Uneven levels
// are closer together near 0, where most values are (DynamiQ, arXiv 2602.08923, with epsilon 1/4). All levels are exact
// in float32. Rounding is to the nearest level, or stochastic: away from 0, with a probability equal to the value's
// position in the gap between two levels. Correlated rounding is stochastic with an offset of the noise (hb_random.h):
// up, for both signs.
//   wire: codes in two's complement (4 bits: two per byte; 3 bits: the low 2 bits four per byte, then the high bits
//   eight per byte; 2 bits: four per byte; the first code in the lowest bits), the maxima of the groups, then the
//   scales of the blocks. Each part except the last is padded with zeros to a multiple of 4 bytes.
// If a group contains an infinity or NaN, its stored maximum is infinity. Infinities are coded as +-K. All other values
// are coded as 0, which decodes as NaN.
#pragma once
#include "hb_float.h"
#include "hb_random.h"

#define HB_GROUP 256
#define HB_GROUP_INFINITY 0x7f80u

template <int BITS, bool UNEVEN> struct hb_levels {
  static constexpr bool even = !UNEVEN;
  static constexpr bool small = UNEVEN && BITS == 3;  // top < 1, so a unit may exceed the largest float32
  static constexpr hb_i32 K = (1 << (BITS - 1)) - 1;
  // of level I
  template <hb_i32 I> static HB_FN float at() {
    return UNEVEN ? (float)(power(9, I) - power(8, I)) / (float)power(8, I) : (float)I;
  }
  static HB_FN float top() { return at<K>(); }

 private:
  static HB_FN constexpr hb_i32 power(hb_i32 base, hb_i32 exponent) {
    return exponent ? base * power(base, exponent - 1) : 1;
  }
};

struct hb_group {
  float before, after;  // powers of two whose product is 1: values times `before` are far from the limits of float32
  float maximum;        // times `before`
};
// code: of the maximum; its highest bit is ignored
HB_FN hb_group hb_group_of(hb_u32 code) {
  code &= 0x7fffu;
  hb_group g;
  const bool small = code < 0x2180u, large = code >= 0x7180u;  // 2^-60, 2^100
  g.before = small ? 0x1p64f : large ? 0x1p-64f : 1.0f;
  g.after = small ? 0x1p-64f : large ? 0x1p64f : 1.0f;
  g.maximum = hb_lane<hb_u32>::as_float(code << 16) * g.before;
  return g;
}
// top: largest magnitude of the group, float32 bits
HB_FN hb_u32 hb_group_code(hb_u32 top) {
  if (top >= HB_INFINITY) return HB_GROUP_INFINITY;
  const hb_u32 up = (top + 0xffffu) >> 16;
  return up < HB_GROUP_INFINITY ? up : HB_GROUP_INFINITY - 1u;
}
// m: largest magnitudes of blocks, not above that of the group; ratio: 255 / g.maximum, or 0 if that is 0
template <class U> HB_FN U hb_group_scale(typename hb_lane<U>::F m, const hb_group &g, float ratio) {
  typedef hb_lane<U> L;
  typename L::F t = m * g.before * ratio;
  typename L::I i = L::to_int(t);
  U r = (U)i, one = r * 0u + 1u;
  r = L::to_float(i) < t ? r + 1u : r;
  return r > 255u ? one * 255u : r;
}
// Unit of a block, times g.before.
template <class LEVELS, class U> HB_FN typename hb_lane<U>::F hb_group_unit(U r, const hb_group &g) {
  typedef hb_lane<U> L;
  const float inverse = 1.0f / (255.0f * LEVELS::top());
  return L::to_float((typename L::I)r) * g.maximum * inverse;
}
template <class U> HB_FN typename hb_lane<U>::F hb_group_inverse(typename hb_lane<U>::F unit) {
  typename hb_lane<U>::F zero = unit * 0.0f;
  return unit > zero ? 1.0f / unit : zero;
}

// Number of thresholds between levels, starting with the I-th, that a magnitude exceeds. A threshold is the midpoint of
// the gap between two levels, or the point at fraction u of the gap.
template <class LEVELS, bool MIDDLE, int I, class U>
HB_FN U hb_group_above(typename hb_lane<U>::F a, typename hb_lane<U>::F u, U k) {
  const float low = LEVELS::template at<I - 1>(), high = LEVELS::template at<I>();
  if constexpr (MIDDLE) k = a > (low + high) * 0.5f ? k + 1u : k;
  else k = a > u * (high - low) + low ? k + 1u : k;
  if constexpr (I < LEVELS::K) return hb_group_above<LEVELS, MIDDLE, I + 1, U>(a, u, k);
  else return k;
}
// y: a value in units. The low bits of the results are the code in two's complement.
template <class LEVELS, class U> HB_FN U hb_group_nearest(typename hb_lane<U>::F y) {
  typedef hb_lane<U> L;
  if constexpr (LEVELS::even) {
    return L::as_bits(y + 12582912.0f);  // 1.5 * 2^23: its unit is 1, its low bits are 0
  } else {
    U bits = L::as_bits(y), k = hb_group_above<LEVELS, true, 1, U>(L::as_float(bits & HB_MAGNITUDE), y, bits * 0u);
    return bits >> 31 == 1u ? 0u - k : k;
  }
}
// noise: 0..65535. flip: 0, or 65535 to invert the noise of negative values. Inverted noise rounds a negative value up
// where the same noise rounds a positive value at the same position in its gap up. Correlated noise needs this, because
// errors of processes cancel only if the direction of rounding does not depend on the sign of a value.
template <class LEVELS, class U> HB_FN U hb_group_stochastic(typename hb_lane<U>::F y, U noise, hb_u32 flip) {
  typedef hb_lane<U> L;
  U bits = L::as_bits(y), k = bits * 0u;
  noise = noise ^ ((0u - (bits >> 31)) & flip);
  // u is 16 random bits plus one half: never 0 or 1, so that exact levels stay unchanged
  typename L::F u = L::to_float((typename L::I)(noise * 2u + 1u)) * 0x1p-17f;
  typename L::F a = L::as_float(bits & HB_MAGNITUDE);
  if constexpr (LEVELS::even) {
    k = (U)L::to_int(a + u);
    k = k > (hb_u32)LEVELS::K ? k * 0u + (hb_u32)LEVELS::K : k;
  } else {
    k = hb_group_above<LEVELS, false, 1, U>(a, u, k);
  }
  return bits >> 31 == 1u ? 0u - k : k;
}
// Index of the random word whose low or high half is a value's noise, given the value's index.
HB_FN hb_u32 hb_group_word(hb_u32 value) { return (value >> 5 << 4) | (value & 15u); }
HB_FN hb_u32 hb_group_noise(hb_u32 value, hb_u32 word) { return word >> (value & 16u) & 0xffffu; }

template <class LEVELS, class U> HB_FN U hb_group_special(U bits) {
  U a = bits & HB_MAGNITUDE, m = (bits >> 31) * (hb_u32)(-2 * LEVELS::K) + (hb_u32)LEVELS::K;
  return a == HB_INFINITY ? m : a * 0u;
}
// Unit of a block for hb_group_decode.
template <class LEVELS, class F> HB_FN F hb_group_decode_unit(F unit, const hb_group &g) {
  if constexpr (LEVELS::small) return unit;
  else return unit * g.after;
}
// code: with its sign in all upper bits
template <class LEVELS, class U> HB_FN typename hb_lane<U>::F hb_group_decode(U code, typename hb_lane<U>::F unit, const hb_group &g) {
  typedef hb_lane<U> L;
  if constexpr (LEVELS::even) {
    return L::to_float((typename L::I)code) * unit;
  } else {
    U negative = code >> 31, k = (code ^ (0u - negative)) + negative;
    typename L::F one = L::as_float(k * 0u + 0x3f800000u), power = (k & 1u) != 0u ? one * 1.125f : one;
    power = (k & 2u) != 0u ? power * 1.265625f : power;
    power = (k & 4u) != 0u ? power * 1.601806640625f : power;
    typename L::F v = (power - 1.0f) * unit;
    if constexpr (LEVELS::small) v = v * g.after;
    return L::as_float(L::as_bits(v) ^ negative << 31);
  }
}
template <class U> HB_FN typename hb_lane<U>::F hb_group_decode_special(U code) {
  typedef hb_lane<U> L;
  U r = code == 0u ? code * 0u + HB_NAN : (code & 0x80000000u) | HB_INFINITY;
  return L::as_float(r);
}
