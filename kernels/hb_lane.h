// Lanes: the block functions of the codecs are templates over a lane type U.
//   U = hb_u32             one GPU thread, or plain C++ (the sanitizer build)
//   U = a vector of hb_u32 one call codes as many blocks as the vector has lanes
// hb_lane<U> defines the operations of a vector type in addition to + - & | ^ << >> and ?:.
#pragma once

#if defined(__CUDACC__)
#define HB_FN __device__ __forceinline__
typedef unsigned int hb_u32;
typedef int hb_i32;
typedef unsigned short hb_u16;
#else
#define HB_FN inline __attribute__((always_inline))
typedef __UINT32_TYPE__ hb_u32;
typedef __INT32_TYPE__ hb_i32;
typedef __UINT16_TYPE__ hb_u16;
#endif

template <class U> struct hb_lane;

template <class U> HB_FN U hb_brev_by_swaps(U x) {
  x = ((x >> 1) & 0x55555555u) | ((x & 0x55555555u) << 1);
  x = ((x >> 2) & 0x33333333u) | ((x & 0x33333333u) << 2);
  x = ((x >> 4) & 0x0f0f0f0fu) | ((x & 0x0f0f0f0fu) << 4);
  x = ((x >> 8) & 0x00ff00ffu) | ((x & 0x00ff00ffu) << 8);
  return (x >> 16) | (x << 16);
}

template <> struct hb_lane<hb_u32> {
  typedef hb_i32 I;
  typedef float F;
  typedef bool M;  // result of a comparison
  // true: all lanes take the same branch, so a loop may end as soon as the work of this block ends
  static constexpr bool single = true;
  static constexpr bool halves = false;  // true: the processor rounds to half precision itself, by half()
  static HB_FN bool any(bool mask) { return mask; }
  static HB_FN I to_int(F f) { return (I)f; }
  static HB_FN F to_float(I i) { return (F)i; }
  static HB_FN hb_u32 max(hb_u32 a, hb_u32 b) { return a > b ? a : b; }
  // table of 16-bit entries; 80 used by the encoder, 256 by the decoder
  static HB_FN hb_u32 look80(const hb_u16 *t, hb_u32 i) { return t[i]; }
  static HB_FN hb_u32 look256(const hb_u16 *t, hb_u32 i) { return t[i]; }
  // two 16-bit sums or differences per lane
  static HB_FN hb_u32 add16(hb_u32 a, hb_u32 b) {
    return ((a & 0x7fff7fffu) + (b & 0x7fff7fffu)) ^ ((a ^ b) & 0x80008000u);
  }
  static HB_FN hb_u32 subtract16(hb_u32 a, hb_u32 b) {
    return ((a | 0x80008000u) - (b & 0x7fff7fffu)) ^ (~(a ^ b) & 0x80008000u);
  }
#if defined(__CUDACC__)
  static HB_FN F as_float(hb_u32 u) { return __uint_as_float(u); }
  static HB_FN hb_u32 as_bits(F f) { return __float_as_uint(f); }
  static HB_FN hb_u32 brev(hb_u32 x) { return __brev(x); }
  // shifts that give 0 for every count of 32 or more
  static HB_FN hb_u32 shl(hb_u32 x, hb_u32 s) { return __funnelshift_lc(0u, x, s); }
  static HB_FN hb_u32 shr(hb_u32 x, hb_u32 s) { return __funnelshift_rc(x, 0u, s); }
#else
  static HB_FN F as_float(hb_u32 u) {
    F f;
    __builtin_memcpy(&f, &u, 4);
    return f;
  }
  static HB_FN hb_u32 as_bits(F f) {
    hb_u32 u;
    __builtin_memcpy(&u, &f, 4);
    return u;
  }
  static HB_FN hb_u32 brev(hb_u32 x) { return hb_brev_by_swaps(x); }
  static HB_FN hb_u32 shl(hb_u32 x, hb_u32 s) { return s < 32u ? x << (s & 31u) : 0u; }
  static HB_FN hb_u32 shr(hb_u32 x, hb_u32 s) { return s < 32u ? x >> (s & 31u) : 0u; }

  // unaligned memory of any type
  static HB_FN hb_u32 load(const hb_u32 *p) {
    hb_u32 x;
    __builtin_memcpy(&x, p, 4);
    return x;
  }
  static HB_FN void store(hb_u32 *p, hb_u32 x) { __builtin_memcpy(p, &x, 4); }
  static HB_FN hb_u32 index() { return 0; }
  static HB_FN hb_u32 rotate(hb_u32 x, hb_u32 n) { return x << (n & 31u) | x >> ((32u - n) & 31u); }
  static HB_FN hb_u32 blend(hb_u32 mask, hb_u32 a, hb_u32 b) { return (a & mask) | (b & ~mask); }
  static HB_FN hb_u32 rise(hb_u32 x, hb_u32 from) { return from ? 0u : x; }
  // loads 8 and 16 bits per lane; stores the low ones
  static HB_FN hb_u32 load8(const unsigned char *p) { return *p; }
  static HB_FN hb_u32 load8s(const unsigned char *p) { return (hb_u32)(hb_i32)(signed char)*p; }
  static HB_FN void store8(unsigned char *p, hb_u32 x) { *p = (unsigned char)x; }
  static HB_FN hb_u32 load16(const unsigned char *p) { return p[0] | (hb_u32)p[1] << 8; }
  static HB_FN void store16(unsigned char *p, hb_u32 x) {
    p[0] = (unsigned char)x;
    p[1] = (unsigned char)(x >> 8);
  }
  static HB_FN void store16(unsigned char *p, hb_u32 a, hb_u32 b) {  // one after the other
    store16(p, a);
    store16(p + 2 * 1, b);
  }
  // converts a mask to one bit per lane, lane 0 lowest, and back
  static HB_FN hb_u32 bits(M mask) { return mask; }
  static HB_FN M mask(hb_u32 bits) { return bits & 1u; }
  static HB_FN hb_u32 top(hb_u32 x) { return x; }  // largest of the lanes
  // Stores x at p, which needs space even if x is 0. Returns 1 if x is not 0.
  static HB_FN hb_u32 compress(hb_u32 x, hb_u32 *p) {
    *p = x;
    return x != 0u;
  }
  // The same as `compress`, but for the lanes that a mask selects.
  static HB_FN hb_u32 pack(M mask, hb_u32 x, hb_u32 *p) {
    store(p, x);
    return mask;
  }
  static HB_FN hb_u32 expand(hb_u32 mask, const hb_u32 *p) { return *p & (0u - mask); }
  static HB_FN hb_u32 scan(hb_u32 x, hb_u32 &sum) { return sum += x; }
  static HB_FN void load_blocks(const void *p, F *f) { __builtin_memcpy(f, p, 16); }
  static HB_FN void store_blocks(float *p, const F *f) { __builtin_memcpy(p, f, 16); }
#endif
};

// Swaps the bits in mask m with the bits s positions above.
template <class U> HB_FN U hb_dswap(U x, hb_u32 m, int s) {
  U t = (x ^ (x >> s)) & m;
  return x ^ t ^ (t << s);
}
