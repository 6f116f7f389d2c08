// 8 lanes: AVX2.
#pragma once
#include "hb_lane.h"
#include "hb_order8.h"

typedef hb_u32 hb_v __attribute__((vector_size(32)));
typedef hb_i32 hb_vi __attribute__((vector_size(32)));
typedef hb_u16 hb_vh __attribute__((vector_size(32)));
typedef float hb_vf __attribute__((vector_size(32)));
#define HB_LANES 8

template <> struct hb_lane<hb_v> {
  typedef hb_vi I;
  typedef hb_vf F;
  typedef hb_vi M;
  static constexpr bool single = false;
  static constexpr bool halves = false;
  static HB_FN bool any(hb_vi m) { return !_mm256_testz_si256((__m256i)m, (__m256i)m); }
  static HB_FN F as_float(hb_v u) { return (hb_vf)u; }
  static HB_FN hb_v as_bits(F f) { return (hb_v)f; }
  static HB_FN I to_int(F f) { return (hb_vi)_mm256_cvttps_epi32((__m256)f); }
  static HB_FN F to_float(I i) { return (hb_vf)_mm256_cvtepi32_ps((__m256i)i); }
  static HB_FN hb_v max(hb_v a, hb_v b) { return (hb_v)_mm256_max_epu32((__m256i)a, (__m256i)b); }
  static HB_FN hb_v look80(const hb_u16 *t, hb_v i) {
    return (hb_v)_mm256_i32gather_epi32((const int *)t, (__m256i)i, 2) & 0xffffu;
  }
  static HB_FN hb_v look256(const hb_u16 *t, hb_v i) { return look80(t, i); }
  static HB_FN hb_v brev(hb_v x) {
    const __m256i high = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, -128, 64, -64, 32, -96, 96, -32, 16, -112, 80, -48, 48, -80, 112, -16));
    const __m256i low =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15));
    const __m256i bytes =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12));
    __m256i a = _mm256_shuffle_epi8(high, (__m256i)(x & 0x0f0f0f0fu));
    __m256i b = _mm256_shuffle_epi8(low, (__m256i)((x >> 4) & 0x0f0f0f0fu));
    return (hb_v)_mm256_shuffle_epi8(_mm256_or_si256(a, b), bytes);
  }
  static HB_FN hb_v shl(hb_v x, hb_v s) { return (hb_v)_mm256_sllv_epi32((__m256i)x, (__m256i)s); }
  static HB_FN hb_v shr(hb_v x, hb_v s) { return (hb_v)_mm256_srlv_epi32((__m256i)x, (__m256i)s); }

  static HB_FN hb_v load(const hb_u32 *p) { return (hb_v)_mm256_loadu_si256((const __m256i *)p); }
  static HB_FN void store(hb_u32 *p, hb_v x) { _mm256_storeu_si256((__m256i *)p, (__m256i)x); }
  template <int s> static HB_FN hb_v swap(hb_v x) {
    if (s == 4) return (hb_v)_mm256_permute2x128_si256((__m256i)x, (__m256i)x, 1);
    return (hb_v)_mm256_shuffle_epi32((__m256i)x, s == 1 ? 0xb1 : 0x4e);
  }
  static HB_FN hb_v index() { return hb_v{0, 1, 2, 3, 4, 5, 6, 7}; }
  static HB_FN hb_v rotate(hb_v x, hb_v n) { return shl(x, n) | shr(x, 32u - n); }
  static HB_FN hb_v blend(hb_v mask, hb_v a, hb_v b) { return (a & mask) | (b & ~mask); }
  static HB_FN hb_v rise(hb_v x, hb_v from) {
    return (hb_v)_mm256_permutevar8x32_epi32((__m256i)x, (__m256i)from) & ((from >> 31) - 1u);
  }
  static HB_FN hb_v add16(hb_v a, hb_v b) { return (hb_v)((hb_vh)a + (hb_vh)b); }
  static HB_FN hb_v subtract16(hb_v a, hb_v b) { return (hb_v)((hb_vh)a - (hb_vh)b); }
  static HB_FN hb_v load8(const unsigned char *p) {
    return (hb_v)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
  }
  static HB_FN hb_v load8s(const unsigned char *p) {
    return (hb_v)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p));
  }
  static HB_FN void store8(unsigned char *p, hb_v x) {
    const __m256i low = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1));
    __m256i a = _mm256_shuffle_epi8((__m256i)x, low);
    _mm_storel_epi64((__m128i *)p, _mm_unpacklo_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1)));
  }
  static HB_FN hb_v load16(const unsigned char *p) {
    return (hb_v)_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
  }
  static HB_FN void store16(unsigned char *p, hb_v x) {
    __m256i a = _mm256_and_si256((__m256i)x, _mm256_set1_epi32(0xffff));
    a = _mm256_permute4x64_epi64(_mm256_packus_epi32(a, a), 0x08);
    _mm_storeu_si128((__m128i *)p, _mm256_castsi256_si128(a));
  }
  static HB_FN void store16(unsigned char *p, hb_v a, hb_v b) {
    const __m256i low = _mm256_set1_epi32(0xffff);
    __m256i x = _mm256_packus_epi32(_mm256_and_si256((__m256i)a, low), _mm256_and_si256((__m256i)b, low));
    _mm256_storeu_si256((__m256i *)p, _mm256_permute4x64_epi64(x, 0xd8));
  }
  static HB_FN hb_u32 bits(M m) { return (hb_u32)_mm256_movemask_ps((__m256)m); }
  static HB_FN M mask(hb_u32 bits) { return (bits & hb_v{1, 2, 4, 8, 16, 32, 64, 128}) != 0u; }
  static HB_FN hb_u32 top(hb_v x) {
    __m128i a = _mm_max_epu32(_mm256_castsi256_si128((__m256i)x), _mm256_extracti128_si256((__m256i)x, 1));
    a = _mm_max_epu32(a, _mm_shuffle_epi32(a, 0x4e));
    return (hb_u32)_mm_cvtsi128_si32(_mm_max_epu32(a, _mm_shuffle_epi32(a, 0xb1)));
  }
  static HB_FN __m256i order(const unsigned char *at) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)at));
  }
  static HB_FN hb_u32 compress(hb_v x, hb_u32 *p) {
    __m256i none = _mm256_cmpeq_epi32((__m256i)x, _mm256_setzero_si256());
    hb_u32 mask = 255u ^ (hb_u32)_mm256_movemask_ps((__m256)none);
    _mm256_storeu_si256((__m256i *)p, _mm256_permutevar8x32_epi32((__m256i)x, order(hb_compress8.at[mask])));
    return mask;
  }
  static HB_FN hb_u32 pack(M m, hb_v x, hb_u32 *p) {
    hb_u32 mask = bits(m);
    _mm256_storeu_si256((__m256i *)p, _mm256_permutevar8x32_epi32((__m256i)x, order(hb_compress8.at[mask])));
    return mask;
  }
  static HB_FN hb_v expand(hb_u32 mask, const hb_u32 *p) {
    const __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    __m256i x = _mm256_permutevar8x32_epi32(_mm256_loadu_si256((const __m256i *)p), order(hb_expand8.at[mask]));
    __m256i on = _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32((int)mask), bit), bit);
    return (hb_v)_mm256_and_si256(x, on);
  }
  static HB_FN hb_v scan(hb_v x, hb_v &sum) {
    __m256i a = (__m256i)x;
    a = _mm256_add_epi32(a, _mm256_slli_si256(a, 4));
    a = _mm256_add_epi32(a, _mm256_slli_si256(a, 8));
    __m256i low = _mm256_permute2x128_si256(a, a, 0x08);  // low half to the high half, zero below
    a = _mm256_add_epi32(a, _mm256_shuffle_epi32(low, 0xff));
    a = _mm256_add_epi32(a, (__m256i)sum);
    sum = (hb_v)_mm256_permutevar8x32_epi32(a, _mm256_set1_epi32(7));
    return (hb_v)a;
  }
  // moves 32 consecutive values to and from 4 vectors, whose lane l holds block l
  static HB_FN void load_blocks(const void *from, F *f) {
    const float *p = (const float *)from;
    __m256 r[4];
    for (int i = 0; i < 4; i++)  // blocks i and i + 4 side by side
      r[i] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p + 4 * i)), _mm_loadu_ps(p + 16 + 4 * i), 1);
    transpose(r, f);
  }
  static HB_FN void store_blocks(float *p, const F *f) {
    __m256 r[4] = {(__m256)f[0], (__m256)f[1], (__m256)f[2], (__m256)f[3]};
    F c[4];
    transpose(r, c);
    for (int i = 0; i < 4; i++) {
      _mm_storeu_ps(p + 4 * i, _mm256_castps256_ps128((__m256)c[i]));
      _mm_storeu_ps(p + 16 + 4 * i, _mm256_extractf128_ps((__m256)c[i], 1));
    }
  }
  static HB_FN void transpose(const __m256 *r, F *f) {  // 4 x 4 in each half
    __m256 a = _mm256_unpacklo_ps(r[0], r[1]), b = _mm256_unpackhi_ps(r[0], r[1]);
    __m256 c = _mm256_unpacklo_ps(r[2], r[3]), d = _mm256_unpackhi_ps(r[2], r[3]);
    f[0] = (F)_mm256_shuffle_ps(a, c, 0x44);
    f[1] = (F)_mm256_shuffle_ps(a, c, 0xee);
    f[2] = (F)_mm256_shuffle_ps(b, d, 0x44);
    f[3] = (F)_mm256_shuffle_ps(b, d, 0xee);
  }
};
