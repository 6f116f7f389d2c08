// Casts with a common power of two for each 128 values (microscaling formats use 32). The largest value of a block is
// scaled to just below the type's maximum, so small gradients keep their mantissas.
//   wire: the codes in order, and zeros up to a multiple of 4 bytes; then one byte per block, k + 127. The values are
//   code * 2^k
// bf16 has the exponents of float32 and needs no scale: its wire is the codes alone.
#pragma once
#include "hb_float.h"

#define HB_CAST_BLOCK 128

// Returns the scale byte of the block, from the largest finite magnitude (float32 bits). `rounds_up`: smallest mantissa
// that would round beyond the largest value.
template <class T> struct hb_cast;
template <> struct hb_cast<hb_half> {
  static constexpr hb_u32 exponent = 15, rounds_up = 0x7ff000u, code_bytes = 2;
};
template <> struct hb_cast<hb_e5m2> {
  static constexpr hb_u32 exponent = 15, rounds_up = 0x700000u, code_bytes = 1;
};
template <> struct hb_cast<hb_e4m3> {
  static constexpr hb_u32 exponent = 8, rounds_up = 0x680001u, code_bytes = 1;
};
template <class T> HB_FN hb_u32 hb_cast_scale(hb_u32 top) {
  hb_u32 field = (top >> 23) + ((top & 0x7fffffu) >= hb_cast<T>::rounds_up);
  return field > hb_cast<T>::exponent + 1u ? field - hb_cast<T>::exponent : 1u;
}
// Values that contribute to the maximum: all except infinity and NaN.
template <class U> HB_FN U hb_finite_magnitude(U bits) {
  U a = bits & HB_MAGNITUDE;
  return a < HB_INFINITY ? a : a * 0u;
}
// Signs and NaN are excluded from multiplications, because the sign and payload of a NaN product differ between
// processors.
template <class T, class U> HB_FN U hb_cast_encode(U bits, hb_u32 scale) {
  typedef hb_lane<U> L;
  U a = L::as_bits(L::as_float(bits & HB_MAGNITUDE) * L::as_float(bits * 0u + ((254u - scale) << 23)));
  return hb_magnitude_to_small<T>(a) | (bits >> 31) << T::sign;
}
template <class T, class U> HB_FN typename hb_lane<U>::F hb_cast_decode(U code, hb_u32 scale) {
  typedef hb_lane<U> L;
  typename L::F r = hb_small_magnitude<T>(code) * L::as_float(code * 0u + (scale << 23));
  return L::as_float(hb_small_special<T>(code, L::as_bits(r)));
}
