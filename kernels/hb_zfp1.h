// ZFP fixed rate, one dimension, float32: a block of 4 values becomes mb = 4 * rate bits, 16 <= mb <= 128.
// Implemented from the published format (LLNL zfp, mode "fixed rate"). The bits equal those of libzfp for every block
// whose largest magnitude is at least 2^-98. Below 2^-98, libzfp's scale overflows to infinity, whereas this code
// applies the scale in two steps.
//
// One addition uses codes that libzfp leaves unused: if bit 0 is clear but other bits are set, the block contains a NaN
// or an infinity. Bits 1..8 then hold a class of 2 bits for each value: 0 finite, 1 +Inf, 2 -Inf, 3 NaN. Infinities
// keep their sign and position after decoding. Every other value of such a block decodes as NaN.
#pragma once
#include "hb_zfp1_planes.h"

#define HB_NEGABINARY 0xaaaaaaaau

// ------------------------------------------------------------------------------------------------ transform
// A block's 4 integers to its coefficients in negabinary, by lifting steps that round down at each halving:
//
//   (x')          ( 4  4  4  4) (x)
//   (y')  =  1/16 ( 5  1 -1 -5) (y)
//   (z')          (-4  4  4 -4) (z)
//   (u')          (-2  6 -6  2) (u)
template <class U>
HB_FN void hb_zfp1_forward(typename hb_lane<U>::I x, typename hb_lane<U>::I y, typename hb_lane<U>::I z,
                           typename hb_lane<U>::I u, U *c) {
  x += u; x >>= 1; u -= x;
  z += y; z >>= 1; y -= z;
  x += z; x >>= 1; z -= x;
  u += y; u >>= 1; y -= u;
  u += y >> 1; y -= u >> 1;
  c[0] = ((U)x + HB_NEGABINARY) ^ HB_NEGABINARY;
  c[1] = ((U)y + HB_NEGABINARY) ^ HB_NEGABINARY;
  c[2] = ((U)z + HB_NEGABINARY) ^ HB_NEGABINARY;
  c[3] = ((U)u + HB_NEGABINARY) ^ HB_NEGABINARY;
}

// Inverse transform of the coefficients to 4 values, without the scale:
//
//   (x)         ( 4  6 -4 -1) (x')
//   (y)  =  1/4 ( 4  2  4  5) (y')
//   (z)         ( 4 -2  4 -5) (z')
//   (u)         ( 4 -6 -4  1) (u')
template <class U>
HB_FN void hb_zfp1_inverse(const U *c, typename hb_lane<U>::F *f) {
  typedef hb_lane<U> L;
  typedef typename L::I I;
  // unsigned, because a truncated or malicious stream overflows here
  U x = (c[0] ^ HB_NEGABINARY) - HB_NEGABINARY, y = (c[1] ^ HB_NEGABINARY) - HB_NEGABINARY;
  U z = (c[2] ^ HB_NEGABINARY) - HB_NEGABINARY, u = (c[3] ^ HB_NEGABINARY) - HB_NEGABINARY;
  y += (U)((I)u >> 1); u -= (U)((I)y >> 1);
  y += u; u -= y - u;
  z += x; x -= z - x;
  y += z; z -= y - z;
  u += x; x -= u - x;
  f[0] = L::to_float((I)x);
  f[1] = L::to_float((I)y);
  f[2] = L::to_float((I)z);
  f[3] = L::to_float((I)u);
}

// ------------------------------------------------------------------------------------------------ encode
// Computes the negabinary coefficients of 4 values per lane. e: exponent of the block as stored in the stream, 1..255;
// largest: bits of the largest magnitude. A block that is not finite is coded as zeros.
template <class U>
HB_FN void hb_zfp1_coefficients(const typename hb_lane<U>::F *f, U *c, U &e, U &largest) {
  typedef hb_lane<U> L;
  typedef typename L::I I;
  typedef typename L::F F;
  U bits[4];
  for (int i = 0; i < 4; i++) bits[i] = L::as_bits(f[i]);
  U m = L::max(L::max(bits[0] & HB_MAGNITUDE, bits[1] & HB_MAGNITUDE),
               L::max(bits[2] & HB_MAGNITUDE, bits[3] & HB_MAGNITUDE));
  const U zero = m * 0u;
  F v[4];
  for (int i = 0; i < 4; i++) v[i] = f[i];
  if (L::any(m >= HB_INFINITY))  // infinities and NaN must not be converted to integers
    for (int i = 0; i < 4; i++) v[i] = L::as_float(m >= HB_INFINITY ? zero : bits[i]);
  largest = m;
  e = (m >> 23) + 1u;
  U scale = 284u - e;  // exponent field of 2^(30-emax)
  if (L::any(scale > 254u)) {
    U first = scale > 254u ? (U)(zero + 254u) : scale;
    F s1 = L::as_float(first << 23), s2 = L::as_float((scale - first + 127u) << 23);
    for (int i = 0; i < 4; i++) v[i] = v[i] * s1 * s2;
  } else {
    F s = L::as_float(scale << 23);
    for (int i = 0; i < 4; i++) v[i] = v[i] * s;
  }
  hb_zfp1_forward<U>(L::to_int(v[0]), L::to_int(v[1]), L::to_int(v[2]), L::to_int(v[3]), c);
}

// Writes the stream of the coefficients, its first mb bits in the first NW of NW + 3 words per group.
template <class U, int NW, int G>
HB_FN void hb_zfp1_encode_planes(const U (*c)[4], const U *e, hb_u32 mb, U (*o)[NW + 3], const hb_zfp1_tables &t) {
  typedef hb_lane<U> L;
  U pos[G], n16[G], q[G], lo[G], hi[G];
  for (int g = 0; g < G; g++) {
    for (int k = 0; k < NW + 3; k++) o[g][k] = e[g] * 0u;
    n16[g] = hi[g] = e[g] * 0u;
    lo[g] = e[g] * 2u + 1u;
    pos[g] = e[g] * 0u + 9u;
    q[g] = hb_planes(c[g], 0);
  }
  hb_zfp1_encode_8<U, G>(q, n16, lo, hi, pos, t);
  for (int g = 0; g < G; g++) o[g][0] = lo[g], o[g][1] = hi[g];
  int word = 1;
  while (word < 4) {  // rarely executed: a last coefficient below 2^-6 of the largest
    bool more = false;
    for (int g = 0; g < G; g++) more |= L::any((n16[g] < 64u) & (pos[g] < mb));
    if (!more) break;
    U fill[G];
    for (int g = 0; g < G; g++) {
      lo[g] = hi[g] = fill[g] = pos[g] * 0u;
      q[g] = hb_planes(c[g], word);
    }
    hb_zfp1_encode_8<U, G>(q, n16, lo, hi, fill, t);
    for (int g = 0; g < G; g++) {
      for (int k = 0; k < NW; k++) {
        U at = pos[g] - (hb_u32)(32 * k);
        o[g][k] |= L::shl(lo[g], at) | L::shr(lo[g], 0u - at) | L::shl(hi[g], at + 32u) | L::shr(hi[g], (hb_u32)-32 - at);
      }
      pos[g] += fill[g];
    }
    word++;
  }
  // The remaining planes are raw: the fixed-rate stream is a prefix of the unlimited stream, so these planes are only
  // shifted in.
  if (word == 1) {  // 17 <= pos <= 45
    for (; word <= NW && word < 4 && mb > (hb_u32)(32 * word - 15); word++)
      for (int g = 0; g < G; g++) {
        U left = hb_planes(c[g], word);
        o[g][word - 1] |= L::shl(left, pos[g]);
        o[g][word] |= L::shl(left, pos[g] - 32u) | L::shr(left, 32u - pos[g]);
        o[g][word + 1] |= L::shr(left, 64u - pos[g]);
      }
    return;
  }
  for (; word < 4; word++)
    for (int g = 0; g < G; g++) {
      U left = hb_planes(c[g], word);
      for (int k = 0; k < NW; k++)
        o[g][k] |= L::shl(left, pos[g] - (hb_u32)(32 * k)) | L::shr(left, (hb_u32)(32 * k) - pos[g]);
      pos[g] += 32u;
    }
}

// f: 4 values per lane and group; w: NW words of 32 bits per lane and group (output), 32 * (NW - 1) < mb <= 32 * NW.
template <class U, int NW, int G = 1>
HB_FN void hb_zfp1_encode(const typename hb_lane<U>::F (*f)[4], hb_u32 mb, U (*w)[NW], const hb_zfp1_tables &t) {
  typedef hb_lane<U> L;
  U c[G][4], e[G], largest[G], o[G][NW + 3];
  for (int g = 0; g < G; g++) hb_zfp1_coefficients<U>(f[g], c[g], e[g], largest[g]);
  hb_zfp1_encode_planes<U, NW, G>(c, e, mb, o, t);
  for (int g = 0; g < G; g++) {
    const U m = largest[g], zero = m * 0u;
    if (mb & 31u) o[g][NW - 1] &= (1u << (mb & 31u)) - 1u;
    for (int k = 0; k < NW; k++) w[g][k] = m != 0u ? o[g][k] : zero;
    if (!L::any(m >= HB_INFINITY)) continue;
    U classes = zero;
    for (int i = 0; i < 4; i++) {
      U bits = L::as_bits(f[g][i]), a = bits & HB_MAGNITUDE;
      U k = a > HB_INFINITY ? (U)(zero + 3u) : (bits >> 31) + 1u;
      classes |= (a >= HB_INFINITY ? k : zero) << (2 * i + 1);
    }
    for (int k = 0; k < NW; k++) w[g][k] = m >= HB_INFINITY ? (k == 0 ? classes : zero) : w[g][k];
  }
}

// ------------------------------------------------------------------------------------------------ decode
// Decodes the 32 planes of a block to four words of 8 nibbles; returns the number of words that may differ from 0.
// in: NW + 3 words per group; the last 3 words, and all bits from mb on, are 0.
template <class U, int NW, int G>
HB_FN int hb_zfp1_decode_planes(const U (*in)[NW + 3], hb_u32 mb, U (*q)[4], const hb_zfp1_tables &t) {
  typedef hb_lane<U> L;
  U pos[G], s[G], lo[G], hi[G], eight[G];
  for (int g = 0; g < G; g++) {
    U zero = in[g][0] * 0u;
    pos[g] = zero + 9u;
    s[g] = zero + 128u;
    lo[g] = (in[g][0] >> 9) | (in[g][1] << 23);
    hi[g] = (in[g][1] >> 9) | (in[g][2] << 23);
    for (int i = 1; i < 4; i++) q[g][i] = zero;
  }
  hb_zfp1_decode_8<U, G>(lo, hi, s, pos, eight, mb, mb < 48u, t);
  for (int g = 0; g < G; g++) q[g][0] = eight[g];
  int word = 1;
  while (word < 4) {  // rarely executed: a last coefficient below 2^-6 of the largest
    bool more = false;
    for (int g = 0; g < G; g++) more |= L::any((s[g] > 8u) & (pos[g] < mb));
    if (!more) break;
    for (int g = 0; g < G; g++) {
      lo[g] = hi[g] = pos[g] * 0u;
      for (int k = 0; k < NW; k++) {
        U at = pos[g] - (hb_u32)(32 * k);
        lo[g] |= L::shr(in[g][k], at) | L::shl(in[g][k], 0u - at);
        hi[g] |= L::shr(in[g][k], at + 32u) | L::shl(in[g][k], (hb_u32)-32 - at);
      }
    }
    hb_zfp1_decode_8<U, G>(lo, hi, s, pos, eight, mb, true, t);
    for (int g = 0; g < G; g++)
      for (int i = 1; i < 4; i++)
        if (i == word) q[g][i] = eight[g];
    word++;
  }
  // The remaining planes are raw.
  if (word == 1) {  // 17 <= pos <= 45
    for (; word <= NW && word < 4 && mb > (hb_u32)(32 * word - 15); word++)
      for (int g = 0; g < G; g++) {
        const U *at = in[g] + word - 1;
        q[g][word] = L::shr(at[0], pos[g]) | L::shr(at[1], pos[g] - 32u);
        q[g][word] |= L::shl(at[1], 32u - pos[g]) | L::shl(at[2], 64u - pos[g]);
      }
    return word;
  }
  for (int i = 2; i < 4; i++)
    for (int g = 0; g < G && i >= word; g++) {
      for (int k = 0; k < NW; k++) {
        U at = pos[g] - (hb_u32)(32 * k);
        q[g][i] |= L::shr(in[g][k], at) | L::shl(in[g][k], 0u - at);
      }
      pos[g] += 32u;
    }
  return 4;
}

// Converts the first `words` words of planes to 4 values per lane. in: as above, for the exponent and special values.
template <class U, int NW>
HB_FN void hb_zfp1_decode_values(const U *in, const U *q, int words, typename hb_lane<U>::F *f) {
  typedef hb_lane<U> L;
  typedef typename L::I I;
  typedef typename L::F F;
  const U zero = in[0] * 0u;
  U e = (in[0] >> 1) & 255u;
  U c[4] = {zero, zero, zero, zero};
  for (int i = 0; i < 4; i++)
    if (i < words) hb_unplanes(q[i], i, c);
  hb_zfp1_inverse<U>(c, f);
  if (L::any(e < 31u)) {  // 2^(emax-30) is below the normal range
    U low = zero + 1u, rest = e + 96u;
    F s1 = L::as_float((e < 31u ? low : e - 30u) << 23), s2 = L::as_float((e < 31u ? rest : zero + 127u) << 23);
    for (int i = 0; i < 4; i++) f[i] = f[i] * s2 * s1;
  } else {
    F s1 = L::as_float((e - 30u) << 23);
    for (int i = 0; i < 4; i++) f[i] = f[i] * s1;
  }
  U keep = 0u - (in[0] & 1u);
  if (!L::any(keep == 0u)) return;
  U other = in[0];
  for (int k = 1; k < NW; k++) other |= in[k];
  for (int i = 0; i < 4; i++) {
    U k = (in[0] >> (2 * i + 1)) & 3u;
    U special = k == 2u ? (U)(zero + (HB_INFINITY | 0x80000000u)) : (U)(zero + HB_NAN);
    special = k == 1u ? (U)(zero + HB_INFINITY) : special;
    U value = L::as_bits(f[i]) & keep;
    f[i] = L::as_float((keep == 0u) & (other != 0u) ? special : value);
  }
}

// w: NW words per lane and group, zero above bit mb; f: 4 values per lane and group (output). Any input is safe.
template <class U, int NW, int G = 1>
HB_FN void hb_zfp1_decode(const U (*w)[NW], hb_u32 mb, typename hb_lane<U>::F (*f)[4], const hb_zfp1_tables &t) {
  U in[G][NW + 3], q[G][4];
  for (int g = 0; g < G; g++)
    for (int k = 0; k < NW + 3; k++) in[g][k] = k < NW ? w[g][k] : w[g][0] * 0u;
  int words = hb_zfp1_decode_planes<U, NW, G>(in, mb, q, t);
  for (int g = 0; g < G; g++) hb_zfp1_decode_values<U, NW>(in[g], q[g], words, f[g]);
}
