// 16 lanes: AVX-512 F, BW, DQ, VL (all servers since Skylake-SP and Zen 4), and GFNI if the compiler may use it.
#pragma once
#include "hb_lane.h"

typedef hb_u32 hb_v __attribute__((vector_size(64)));
typedef hb_i32 hb_vi __attribute__((vector_size(64)));
typedef hb_u16 hb_vh __attribute__((vector_size(64)));
typedef float hb_vf __attribute__((vector_size(64)));
#define HB_LANES 16

struct hb_halves32 {
  hb_u16 at[32];
};
constexpr hb_halves32 hb_make_halves() {
  hb_halves32 t{};
  for (int i = 0; i < 32; i++) t.at[i] = (hb_u16)(2 * i);
  return t;
}
alignas(64) static constexpr hb_halves32 hb_low_halves = hb_make_halves();

template <> struct hb_lane<hb_v> {
  typedef hb_vi I;
  typedef hb_vf F;
  typedef hb_vi M;
  static constexpr bool single = false;
  static constexpr bool halves = true;
  static HB_FN hb_v half(F f) {
    return (hb_v)_mm512_cvtepu16_epi32(_mm512_cvtps_ph((__m512)f, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  static HB_FN bool any(hb_vi m) { return _mm512_movepi32_mask((__m512i)m) != 0; }
  static HB_FN F as_float(hb_v u) { return (hb_vf)u; }
  static HB_FN hb_v as_bits(F f) { return (hb_v)f; }
  static HB_FN I to_int(F f) { return (hb_vi)_mm512_cvttps_epi32((__m512)f); }
  static HB_FN F to_float(I i) { return (hb_vf)_mm512_cvtepi32_ps((__m512i)i); }
  static HB_FN hb_v max(hb_v a, hb_v b) { return (hb_v)_mm512_max_epu32((__m512i)a, (__m512i)b); }
  // For the upper 16 bits of a lane, entry 0 of the table is looked up and masked off.
  static HB_FN __m512i look64(const hb_u16 *t, hb_v i) {
    return _mm512_permutex2var_epi16(_mm512_loadu_si512(t), (__m512i)i, _mm512_loadu_si512(t + 32));
  }
  static HB_FN hb_v look80(const hb_u16 *t, hb_v i) {
    // entries 64..79 are the raw nibble: code p, length 4, n 4
    hb_v raw = (i & 15u) << 8 | 0x44u;
    return i > 63u ? raw : (hb_v)look64(t, i) & 0xffffu;
  }
  static HB_FN hb_v look256(const hb_u16 *t, hb_v i) {
    __mmask16 six = _mm512_test_epi32_mask((__m512i)i, _mm512_set1_epi32(64));
    __mmask16 seven = _mm512_test_epi32_mask((__m512i)i, _mm512_set1_epi32(128));
    __m512i low = _mm512_mask_mov_epi32(look64(t, i), six, look64(t + 64, i));
    __m512i high = _mm512_mask_mov_epi32(look64(t + 128, i), six, look64(t + 192, i));
    return (hb_v)_mm512_mask_mov_epi32(low, seven, high) & 0xffffu;
  }
  static HB_FN hb_v brev(hb_v x) {
    const __m512i bytes =
        _mm512_broadcast_i32x4(_mm_setr_epi8(3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12));
#if defined(__GFNI__)
    __m512i a = _mm512_gf2p8affine_epi64_epi8((__m512i)x, _mm512_set1_epi64((long long)0x8040201008040201ull), 0);
#else
    const __m512i high = _mm512_broadcast_i32x4(
        _mm_setr_epi8(0, -128, 64, -64, 32, -96, 96, -32, 16, -112, 80, -48, 48, -80, 112, -16));
    const __m512i low = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15));
    __m512i a = _mm512_or_si512(_mm512_shuffle_epi8(high, (__m512i)(x & 0x0f0f0f0fu)),
                                _mm512_shuffle_epi8(low, (__m512i)((x >> 4) & 0x0f0f0f0fu)));
#endif
    return (hb_v)_mm512_shuffle_epi8(a, bytes);
  }
  static HB_FN hb_v shl(hb_v x, hb_v s) { return (hb_v)_mm512_sllv_epi32((__m512i)x, (__m512i)s); }
  static HB_FN hb_v shr(hb_v x, hb_v s) { return (hb_v)_mm512_srlv_epi32((__m512i)x, (__m512i)s); }

  static HB_FN hb_v load(const hb_u32 *p) { return (hb_v)_mm512_loadu_si512(p); }
  static HB_FN void store(hb_u32 *p, hb_v x) { _mm512_storeu_si512(p, (__m512i)x); }
  template <int s> static HB_FN hb_v swap(hb_v x) {
    if (s >= 4) return (hb_v)_mm512_shuffle_i32x4((__m512i)x, (__m512i)x, s == 4 ? 0xb1 : 0x4e);
    return (hb_v)_mm512_shuffle_epi32((__m512i)x, s == 1 ? (_MM_PERM_ENUM)0xb1 : (_MM_PERM_ENUM)0x4e);
  }
  static HB_FN hb_v index() { return hb_v{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}; }
  static HB_FN hb_v rotate(hb_v x, hb_v n) { return (hb_v)_mm512_rolv_epi32((__m512i)x, (__m512i)n); }
  static HB_FN hb_v blend(hb_v mask, hb_v a, hb_v b) {
    return (hb_v)_mm512_ternarylogic_epi32((__m512i)mask, (__m512i)a, (__m512i)b, 0xca);
  }
  static HB_FN hb_v rise(hb_v x, hb_v from) {
    __mmask16 inside = _mm512_cmplt_epu32_mask((__m512i)from, _mm512_set1_epi32(16));
    return (hb_v)_mm512_maskz_permutexvar_epi32(inside, (__m512i)from, (__m512i)x);
  }
  static HB_FN hb_v add16(hb_v a, hb_v b) { return (hb_v)((hb_vh)a + (hb_vh)b); }
  static HB_FN hb_v subtract16(hb_v a, hb_v b) { return (hb_v)((hb_vh)a - (hb_vh)b); }
  static HB_FN hb_v load8(const unsigned char *p) {
    return (hb_v)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
  }
  static HB_FN hb_v load8s(const unsigned char *p) {
    return (hb_v)_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p));
  }
  static HB_FN void store8(unsigned char *p, hb_v x) {
    _mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8((__m512i)x));
  }
  static HB_FN hb_v load16(const unsigned char *p) {
    return (hb_v)_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
  }
  static HB_FN void store16(unsigned char *p, hb_v x) {
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16((__m512i)x));
  }
  static HB_FN void store16(unsigned char *p, hb_v a, hb_v b) {
    _mm512_storeu_si512(p, _mm512_permutex2var_epi16((__m512i)a, _mm512_load_si512(hb_low_halves.at), (__m512i)b));
  }
  static HB_FN hb_u32 bits(M m) { return _mm512_movepi32_mask((__m512i)m); }
  static HB_FN M mask(hb_u32 bits) { return (hb_vi)_mm512_movm_epi32((__mmask16)bits); }
  static HB_FN hb_u32 top(hb_v x) { return _mm512_reduce_max_epu32((__m512i)x); }
  static HB_FN hb_u32 compress(hb_v x, hb_u32 *p) {
    __mmask16 mask = _mm512_test_epi32_mask((__m512i)x, (__m512i)x);
    _mm512_storeu_si512(p, _mm512_maskz_compress_epi32(mask, (__m512i)x));
    return mask;
  }
  static HB_FN hb_u32 pack(M m, hb_v x, hb_u32 *p) {
    hb_u32 mask = bits(m);
    _mm512_storeu_si512(p, _mm512_maskz_compress_epi32((__mmask16)mask, (__m512i)x));
    return mask;
  }
  static HB_FN hb_v expand(hb_u32 mask, const hb_u32 *p) {
    return (hb_v)_mm512_maskz_expand_epi32((__mmask16)mask, _mm512_loadu_si512(p));
  }
  static HB_FN hb_v scan(hb_v x, hb_v &sum) {
    const __m512i zero = _mm512_setzero_si512();
    __m512i a = (__m512i)x;
    a = _mm512_add_epi32(a, _mm512_alignr_epi32(a, zero, 15));
    a = _mm512_add_epi32(a, _mm512_alignr_epi32(a, zero, 14));
    a = _mm512_add_epi32(a, _mm512_alignr_epi32(a, zero, 12));
    a = _mm512_add_epi32(a, _mm512_alignr_epi32(a, zero, 8));
    a = _mm512_add_epi32(a, (__m512i)sum);
    sum = (hb_v)_mm512_permutexvar_epi32(_mm512_set1_epi32(15), a);
    return (hb_v)a;
  }
  // moves 64 consecutive values to and from 4 vectors, whose lane l holds block l
  static HB_FN void load_blocks(const void *from, F *f) {
    const float *p = (const float *)from;
    const hb_v low = {0, 4, 8, 12, 16, 20, 24, 28, 0, 0, 0, 0, 0, 0, 0, 0};
    __m512i a = _mm512_loadu_si512(p), b = _mm512_loadu_si512(p + 16);
    __m512i c = _mm512_loadu_si512(p + 32), d = _mm512_loadu_si512(p + 48);
    for (int i = 0; i < 4; i++) {
      __m512i at = (__m512i)(low + (hb_u32)i);
      __m512i x = _mm512_permutex2var_epi32(a, at, b), y = _mm512_permutex2var_epi32(c, at, d);
      f[i] = (hb_vf)_mm512_inserti64x4(x, _mm512_castsi512_si256(y), 1);
    }
  }
  static HB_FN void store_blocks(float *p, const F *f) {
    __m512 a = _mm512_unpacklo_ps((__m512)f[0], (__m512)f[1]), b = _mm512_unpackhi_ps((__m512)f[0], (__m512)f[1]);
    __m512 c = _mm512_unpacklo_ps((__m512)f[2], (__m512)f[3]), d = _mm512_unpackhi_ps((__m512)f[2], (__m512)f[3]);
    // 128 bits of rk: blocks k, k + 4, k + 8, k + 12
    __m512d r0 = _mm512_unpacklo_pd((__m512d)a, (__m512d)c), r1 = _mm512_unpackhi_pd((__m512d)a, (__m512d)c);
    __m512d r2 = _mm512_unpacklo_pd((__m512d)b, (__m512d)d), r3 = _mm512_unpackhi_pd((__m512d)b, (__m512d)d);
    __m512d s = _mm512_shuffle_f64x2(r0, r1, 0x44), t = _mm512_shuffle_f64x2(r2, r3, 0x44);
    __m512d u = _mm512_shuffle_f64x2(r0, r1, 0xee), v = _mm512_shuffle_f64x2(r2, r3, 0xee);
    _mm512_storeu_pd(p, _mm512_shuffle_f64x2(s, t, 0x88));
    _mm512_storeu_pd(p + 16, _mm512_shuffle_f64x2(s, t, 0xdd));
    _mm512_storeu_pd(p + 32, _mm512_shuffle_f64x2(u, v, 0x88));
    _mm512_storeu_pd(p + 48, _mm512_shuffle_f64x2(u, v, 0xdd));
  }
};
