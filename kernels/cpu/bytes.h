// Vectors of bytes: a mask as one bit a byte and back, the bytes that a mask names moved together and back.
#pragma once
#include "front.h"

namespace {
#if defined(__AVX2__)
typedef byte bytes __attribute__((vector_size(32)));
typedef hb_u32 byte_bits;  // one bit a byte
#else
typedef byte bytes __attribute__((vector_size(16)));
typedef hb_u16 byte_bits;
#endif
constexpr int BYTES = sizeof(bytes);

HB_FN bytes load_bytes(const byte *p) {
  bytes x;
  __builtin_memcpy(&x, p, BYTES);
  return x;
}
HB_FN void store_bytes(byte *p, bytes x) { __builtin_memcpy(p, &x, BYTES); }
HB_FN byte_bits load_bits(const byte *p) {
  byte_bits x;
  __builtin_memcpy(&x, p, sizeof x);
  return x;
}
HB_FN void store_bits(byte *p, byte_bits x) { __builtin_memcpy(p, &x, sizeof x); }

// the highest bit of every byte
HB_FN byte_bits top_bits(bytes x) {
#if defined(__AVX2__)
  return (byte_bits)_mm256_movemask_epi8((__m256i)x);
#elif defined(__SSE2__)
  return (byte_bits)_mm_movemask_epi8((__m128i)x);
#else
  byte_bits r = 0;
  for (int i = 0; i < BYTES; i++) r = (byte_bits)(r | (x[i] >> 7) << i);
  return r;
#endif
}
// all ones where the bit is set
HB_FN bytes spread_bits(byte_bits bits) {
#if defined(__AVX512BW__)
  return (bytes)_mm256_movm_epi8(bits);
#else
  bytes x, one;
  for (int i = 0; i < BYTES; i++) {
    x[i] = (byte)(bits >> (i & ~7));
    one[i] = (byte)(1 << (i & 7));
  }
  return (bytes)((x & one) == one);
#endif
}
// x's bytes that the mask names in order to p, where there must be room for a vector; how many they are
HB_FN int compress_bytes(bytes x, byte_bits mask, byte *p) {
#if defined(__AVX512F__)
  const hb_u32 low = mask & 0xffffu, high = mask >> 16;
  const int n = __builtin_popcount(low);
  __m512i a = _mm512_cvtepu8_epi32(_mm256_castsi256_si128((__m256i)x));
  __m512i b = _mm512_cvtepu8_epi32(_mm256_extracti128_si256((__m256i)x, 1));
  _mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8(_mm512_maskz_compress_epi32((__mmask16)low, a)));
  _mm_storeu_si128((__m128i *)(p + n), _mm512_cvtepi32_epi8(_mm512_maskz_compress_epi32((__mmask16)high, b)));
  return n + __builtin_popcount(high);
#elif defined(__AVX2__)
  byte from[BYTES];
  store_bytes(from, x);
  int n = 0;
  for (int i = 0; i < BYTES; i += 8) {
    const hb_u32 part = mask >> i & 255u;
    __m128i order = _mm_loadl_epi64((const __m128i *)hb_compress8.at[part]);
    _mm_storel_epi64((__m128i *)(p + n), _mm_shuffle_epi8(_mm_loadl_epi64((const __m128i *)(from + i)), order));
    n += __builtin_popcount(part);
  }
  return n;
#else
  int n = 0;
  for (hb_u32 left = mask; left; left &= left - 1u) p[n++] = x[__builtin_ctz(left)];
  return n;
#endif
}
// the inverse, anything in the other bytes; a vector is read from p
HB_FN bytes expand_bytes(byte_bits mask, const byte *p) {
#if defined(__AVX512F__)
  const hb_u32 low = mask & 0xffffu, high = mask >> 16;
  __m512i a = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
  __m512i b = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(p + __builtin_popcount(low))));
  __m128i c = _mm512_cvtepi32_epi8(_mm512_maskz_expand_epi32((__mmask16)low, a));
  __m128i d = _mm512_cvtepi32_epi8(_mm512_maskz_expand_epi32((__mmask16)high, b));
  return (bytes)_mm256_inserti128_si256(_mm256_castsi128_si256(c), d, 1);
#elif defined(__AVX2__)
  byte to[BYTES];
  for (int i = 0; i < BYTES; i += 8) {
    const hb_u32 part = mask >> i & 255u;
    __m128i order = _mm_loadl_epi64((const __m128i *)hb_expand8.at[part]);
    _mm_storel_epi64((__m128i *)(to + i), _mm_shuffle_epi8(_mm_loadl_epi64((const __m128i *)p), order));
    p += __builtin_popcount(part);
  }
  return load_bytes(to);
#else
  bytes x = {};
  for (hb_u32 left = mask; left; left &= left - 1u) x[__builtin_ctz(left)] = *p++;
  return x;
#endif
}

// The low k bits of the bytes as planes of `stride` bytes each, lowest first, of which p is where this vector's bits go.
HB_FN void put_planes(bytes x, int k, byte *p, uint64_t stride) {
  x <<= 8 - k;
  for (int b = k - 1; b >= 0; b--) {
    store_bits(p + (uint64_t)b * stride, top_bits(x));
    x += x;
  }
}
HB_FN bytes get_planes(int k, const byte *p, uint64_t stride) {
  bytes x = {};
  for (int b = k - 1; b >= 0; b--) x = x + x - spread_bits(load_bits(p + (uint64_t)b * stride));
  return x;
}
}  // namespace
