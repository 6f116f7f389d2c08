// Block floats: floats of 4, 6 or 8 bits with a shared scale for each block.
//
// MX (OCP Microscaling Formats 1.0): blocks of 32, scale 2^(b - 127) with one byte b. m: largest magnitude of the block.
//   elements   E2M1 (largest 6), E2M3 (7.5), E3M2 (28), E4M3 (448) or E5M2 (57344): value = element * scale
//   b          with emax the exponent of the largest element:
//     floor    floor(log2 m) - emax + 127. Elements beyond the largest one saturate.
//     ceil     ceil(log2 m) - emax + 127
//     even     as floor, of m rounded to the mantissa of the element, halves up
//     rceil    ceil(log2(m / largest)) + 127, with the quotient in float32: nothing saturates
//   Each is limited to 0..254. A block with an infinity or NaN has b = 255 and elements 0, and decodes as NaN.
//   wire: elements (8 bits: one per byte; 4 bits: two per byte; 6 bits: the low 4 bits two per byte, then the high
//   2 bits four per byte; the first one lowest), then the scales
// NVFP4: E2M1 in blocks of 16 with an E4M3 scale s, and one float32 for each 1024 values instead of for each tensor, so
// that a message is encoded in one pass. a: largest magnitude of these values. In float32, with S = 2688 / a:
//   s          E4M3 of min(m / 6 * S, 448)
//   value      element * (s * (1 / S))
//   Elements are 0 if s is 0. A block with an infinity or NaN has s = NaN and elements 0, does not contribute
//   to a, and decodes as NaN.
//   wire: elements, two per byte; a for each 1024 values; s for each block
// Elements and s are rounded to nearest, ties to even. The highest bit of an element is its sign, which is kept even
// for 0. Each part of the wire except the last is padded with zeros to a multiple of 4 bytes.
#pragma once
#include "hb_float.h"

#define HB_MX_BLOCK 32
#define HB_MX_NAN 255u
#define HB_NVFP4_BLOCK 16
#define HB_NVFP4_PIECE 1024
#define HB_NVFP4_NAN 0x7fu

// T: exponent and mantissa bits; TOP: code of the largest element
template <int E, int M, bool FINITE, hb_u32 TOP> struct hb_element {
  typedef hb_small<E, M, FINITE> type;
  static constexpr hb_u32 bits = 1 + E + M, bias = type::bias, shift = type::shift, mantissa = M;
  static constexpr hb_u32 emax = (TOP >> M) - bias;
  static constexpr hb_u32 largest = ((TOP >> M) + 127u - bias) << 23 | (TOP & ((1u << M) - 1u)) << shift;  // float32 bits
  static constexpr bool specials = TOP + 1u != 1u << (E + M);  // codes above TOP are infinity or NaN
};
typedef hb_element<2, 1, true, 7> hb_e2m1_element;
// element types by their number in a parameter
template <int NUMBER> struct hb_mx_element;
template <> struct hb_mx_element<HB_E2M1> { typedef hb_e2m1_element type; };
template <> struct hb_mx_element<HB_E2M3> { typedef hb_element<2, 3, true, 31> type; };
template <> struct hb_mx_element<HB_E3M2> { typedef hb_element<3, 2, true, 31> type; };
template <> struct hb_mx_element<HB_E4M3> { typedef hb_element<4, 3, true, 0x7e> type; };
template <> struct hb_mx_element<HB_E5M2> { typedef hb_element<5, 2, false, 0x7b> type; };

// Returns the code of x * factor. x: finite; factor: not negative
template <class E, class U> HB_FN U hb_element_encode(U x, typename hb_lane<U>::F factor) {
  typedef hb_lane<U> L;
  U a = L::as_bits(L::as_float(x & HB_MAGNITUDE) * factor);
  a = a > E::largest ? a * 0u + E::largest : a;
  return hb_round_small<typename E::type>(a) | (x >> 31) << (E::bits - 1);
}
// Returns the magnitude of an element without subnormal operands, which are slow on some processors.
template <class E, class U> HB_FN typename hb_lane<U>::F hb_element_magnitude(U code) {
  typedef hb_lane<U> L;
  const hb_u32 low = (128u - E::bias) << 23;  // smallest normal element
  U a = (code & ((1u << (E::bits - 1)) - 1u)) << E::shift;
  typename L::F small = L::as_float(a + low) - L::as_float(a * 0u + low), large = L::as_float(a + (low - (1u << 23)));
  return a < 1u << 23 ? small : large;
}
template <class E, class U> HB_FN U hb_element_sign(U code) { return (code >> (E::bits - 1) & 1u) << 31; }

// ------------------------------------------------------------------------------------------------ MX
// Returns the scale bytes for the largest magnitudes m of blocks, float32 bits.
template <class E, int RULE, class U> HB_FN U hb_mx_scale(U m) {
  typedef hb_lane<U> L;
  U zero = m * 0u, b = zero;
  if constexpr (RULE == HB_RCEIL) {
    U d = L::as_bits(L::as_float(m) / L::as_float(zero + E::largest));
    U mantissa = d & 0x7fffffu, field = d >> 23, least = field > 0u ? zero : zero + 0x400000u;
    b = mantissa > least ? field + 1u : field;
  } else {
    U rounded = m;
    if constexpr (RULE == HB_EVEN) rounded = m + (1u << (E::shift - 1));
    U field = rounded >> 23;
    if constexpr (RULE == HB_CEIL) field = (m & 0x7fffffu) > 0u ? field + 1u : field;
    b = field > E::emax ? field - E::emax : zero;
  }
  return m >= HB_INFINITY ? zero + HB_MX_NAN : b;
}
// Returns the factors of values before they are rounded. b: at most 253, which no finite block exceeds
template <class U> HB_FN typename hb_lane<U>::F hb_mx_factor(U b) {
  return hb_lane<U>::as_float((254u - b) << 23);
}
// Returns 2^(b - 127) for b up to 254.
HB_FN float hb_mx_unit(hb_u32 b) { return hb_lane<hb_u32>::as_float(b ? b << 23 : 0x400000u); }

template <class E, class U> HB_FN typename hb_lane<U>::F hb_mx_decode(U code, typename hb_lane<U>::F unit) {
  typedef hb_lane<U> L;
  U r = L::as_bits(hb_element_magnitude<E>(code) * unit);
  if constexpr (E::specials) return L::as_float(hb_small_special<typename E::type>(code, r));
  else return L::as_float(r | hb_element_sign<E>(code));
}

// ------------------------------------------------------------------------------------------------ NVFP4
struct hb_nvfp4 {
  float before, after;   // powers of two whose product is 1: values times `before` are far from the limits of float32
  float scale, inverse;  // S and 1 / S of these values, or 0 if there is none that is not 0
};
// a: finite, float32 bits
HB_FN hb_nvfp4 hb_nvfp4_of(hb_u32 a) {
  hb_nvfp4 piece;
  const bool small = a < 0x21800000u;  // 2^-60
  piece.before = small ? 0x1p64f : 1.0f;
  piece.after = small ? 0x1p-64f : 1.0f;
  piece.scale = a ? 2688.0f / (hb_lane<hb_u32>::as_float(a) * piece.before) : 0.0f;
  piece.inverse = a ? 1.0f / piece.scale : 0.0f;
  return piece;
}
// m: largest magnitudes of blocks, float32 bits
template <class U> HB_FN U hb_nvfp4_scale(U m, const hb_nvfp4 &piece) {
  typedef hb_lane<U> L;
  U zero = m * 0u;
  typename L::F six = L::as_float(zero + 0x40c00000u);
  U s = L::as_bits(L::as_float(m) * piece.before / six * piece.scale);
  s = s > 0x43e00000u ? zero + 0x43e00000u : s;  // 448
  s = hb_round_small<hb_e4m3>(s);
  return m >= HB_INFINITY ? zero + HB_NVFP4_NAN : s;
}
// Returns the values of element 1, times `before`. s: not NaN; its sign is ignored
template <class U> HB_FN typename hb_lane<U>::F hb_nvfp4_unit(U s, const hb_nvfp4 &piece) {
  return hb_element_magnitude<hb_mx_element<HB_E4M3>::type>(s) * piece.inverse;
}
template <class U> HB_FN typename hb_lane<U>::F hb_nvfp4_inverse(typename hb_lane<U>::F unit) {
  typedef hb_lane<U> L;
  typename L::F zero = unit * 0.0f;
  return unit > zero ? 1.0f / unit : zero;
}
template <class U> HB_FN typename hb_lane<U>::F hb_nvfp4_decode(U code, typename hb_lane<U>::F unit, const hb_nvfp4 &piece) {
  typedef hb_lane<U> L;
  U r = L::as_bits(hb_element_magnitude<hb_e2m1_element>(code) * unit * piece.after);
  return L::as_float(r | hb_element_sign<hb_e2m1_element>(code));
}
