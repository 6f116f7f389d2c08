// Integers of a few bits with one float32 scale for each block of B values, B a power of two from 32 to 1024:
//   q = round(x / s), s = largest magnitude / M, M = 127 for 8 bits, 7 for 4 bits
//   wire: the integers (for 4 bits two per byte, the first in the low half), zeros up to a multiple of 4 bytes, then
//   the scales. Rounding is to the nearest integer, ties to even, or stochastic: up with a probability equal to the
//   fraction. Correlated rounding is stochastic, with an offset of the noise (hb_random.h).
// If a block contains an infinity or NaN, the scale is infinity. Infinities are coded as +-M; all other values are
// coded as 0 and decode as NaN.
#pragma once
#include "hb_float.h"
#include "hb_random.h"

struct hb_quant {
  float before, inverse;  // q = round(x * before * inverse)
  float scale;
};
// top: largest magnitude of the block, float32 bits
template <hb_i32 M> HB_FN hb_quant hb_quant_of(hb_u32 top) {
  typedef hb_lane<hb_u32> L;
  hb_quant q;
  q.before = top < 0x0d800000u ? 18446744073709551616.0f : 1.0f;  // below 2^-100 the inverse would be infinite
  float m = L::as_float(top);
  q.inverse = top ? (float)M / (m * q.before) : 0.0f;
  q.scale = top < HB_INFINITY ? m / (float)M : L::as_float(HB_INFINITY);
  return q;
}
// The low bits of the results are the integer in two's complement.
template <class U> HB_FN U hb_quant_nearest(typename hb_lane<U>::F x, hb_quant q) {
  return hb_lane<U>::as_bits(x * q.before * q.inverse + 12582912.0f);  // 1.5 * 2^23: its unit is 1, its low bits are 0
}
template <hb_i32 M, class U> HB_FN U hb_quant_stochastic(typename hb_lane<U>::F x, hb_quant q, U random) {
  typedef hb_lane<U> L;
  // The noise is 16 random bits plus one half. Its sum with an integer of 7 bits is exact, so integers stay unchanged.
  U noise = (random >> 16) * 2u + 1u;
  typename L::F y = x * q.before * q.inverse + L::to_float((typename L::I)noise) * 0x1p-17f;
  typename L::I i = L::to_int(y);
  U r = (U)i - (L::to_float(i) > y ? noise * 0u + 1u : noise * 0u);
  return (hb_i32)M < (typename L::I)r ? noise * 0u + (hb_u32)M : r;
}
template <hb_i32 M, class U> HB_FN U hb_quant_special(U bits) {
  U a = bits & HB_MAGNITUDE, m = (bits >> 31) * (hb_u32)(-2 * M) + (hb_u32)M;
  return a == HB_INFINITY ? m : a * 0u;
}
template <class U> HB_FN typename hb_lane<U>::F hb_quant_decode(U q, float scale) {
  typedef hb_lane<U> L;
  return L::to_float((typename L::I)q) * scale;
}
template <class U> HB_FN typename hb_lane<U>::F hb_quant_decode_special(U q) {
  typedef hb_lane<U> L;
  U r = q == 0u ? q * 0u + HB_NAN : (q & 0x80000000u) | HB_INFINITY;
  return L::as_float(r);
}
