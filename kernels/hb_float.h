// Short floating-point types. Only integer operations are used, so results are bitwise identical on all processors.
#pragma once
#include "hb_lane.h"

#define HB_INFINITY 0x7f800000u
#define HB_MAGNITUDE 0x7fffffffu
#define HB_NAN 0x7fc00000u

// A type with E exponent bits and M mantissa bits. FINITE: the type has no infinity; the highest code is NaN, and
// values that would be infinite become NaN (E4M3 of the OCP 8-bit floating point specification).
template <int E, int M, bool FINITE = false> struct hb_small {
  static constexpr hb_u32 bias = (1u << (E - 1)) - 1u;
  static constexpr hb_u32 shift = 23 - M;
  static constexpr hb_u32 inf = FINITE ? (1u << (E + M)) - 1u : ((1u << E) - 1u) << M;
  static constexpr hb_u32 nan = FINITE ? inf : inf | 1u << (M - 1);
  static constexpr hb_u32 sign = E + M;  // place of the sign bit
  static constexpr bool half = E == 5 && M == 10;
  // smallest magnitude that is too large even before rounding: beyond the exponents of the type
  static constexpr hb_u32 limit = (127u - bias + (1u << E) - (FINITE ? 0u : 1u)) << 23;
};

// Rounds a magnitude (float32 bits) below T::limit to the type, to nearest, ties to even.
template <class T, class U> HB_FN U hb_round_small(U a) {
  typedef hb_lane<U> L;
  // below the normal range: add a number whose last mantissa bit has the value of the type's subnormals
  const hb_u32 magic = (127u - T::bias + T::shift + 1u) << 23;
  U low = L::as_bits(L::as_float(a) + L::as_float(a * 0u + magic)) - magic;
  U rest = a - ((127u - T::bias) << 23);
  U high = (rest + ((1u << (T::shift - 1)) - 1u) + ((rest >> T::shift) & 1u)) >> T::shift;
  return a < ((128u - T::bias) << 23) ? low : high;
}
// Converts any magnitude (float32 bits) to the type; NaN becomes one quiet NaN.
template <class T, class U> HB_FN U hb_magnitude_to_small(U a) {
  typedef hb_lane<U> L;
  if constexpr (T::half && L::halves) return a > HB_INFINITY ? a * 0u + T::nan : L::half(L::as_float(a));
  U r = hb_round_small<T>(a);
  r = (a >= T::limit) | (r > T::inf) ? a * 0u + T::inf : r;
  return a > HB_INFINITY ? a * 0u + T::nan : r;
}
template <class T, class U> HB_FN U hb_to_small(U bits) {
  return hb_magnitude_to_small<T>(bits & HB_MAGNITUDE) | (bits >> 31) << T::sign;
}
// Adds infinity, NaN (one quiet NaN) and the sign of x to the float32 bits r.
template <class T, class U> HB_FN U hb_small_special(U x, U r) {
  U a = x & ((1u << T::sign) - 1u);
  r = a >= T::inf ? (a * 0u + (T::nan == T::inf ? HB_NAN : HB_INFINITY)) : r;
  r = a > T::inf ? a * 0u + HB_NAN : r;
  return r | ((x >> T::sign) & 1u) << 31;
}
// Returns the exact magnitude that the low bits encode, if it is finite.
template <class T, class U> HB_FN typename hb_lane<U>::F hb_small_magnitude(U x) {
  typedef hb_lane<U> L;
  const hb_u32 up = (254u - T::bias) << 23;  // 2^(127 - bias)
  return L::as_float((x & ((1u << T::sign) - 1u)) << T::shift) * L::as_float(x * 0u + up);
}
// Returns the exact value that the low bits encode, as float32 bits.
template <class T, class U> HB_FN U hb_from_small(U x) {
  return hb_small_special<T>(x, hb_lane<U>::as_bits(hb_small_magnitude<T>(x)));
}

typedef hb_small<5, 10> hb_half;
typedef hb_small<5, 2> hb_e5m2;
typedef hb_small<4, 3, true> hb_e4m3;

template <class U> HB_FN U hb_to_bfloat(U bits) {
  U r = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return (bits & HB_MAGNITUDE) > HB_INFINITY ? (bits >> 31) << 15 | (HB_NAN >> 16) : r;
}
template <class U> HB_FN U hb_from_bfloat(U x) { return x << 16; }

// Adds, with one canonical NaN, because the sign and payload of a NaN differ between processors and may reach the wire.
HB_FN float hb_add(float a, float b) {
  float sum = a + b;
  return sum == sum ? sum : hb_lane<hb_u32>::as_float(HB_NAN);
}
