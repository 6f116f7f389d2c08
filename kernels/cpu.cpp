// CPU front of the codecs, compiled once for each instruction set with HB_BUILD set to its name. All that depends on
// the instruction set is in an unnamed namespace: the linker must not merge code of different builds.
#include "hb_kernels.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#ifndef HB_BUILD
#define HB_BUILD generic
#define HB_SCALAR
#endif
#define HB_STRING2(x) #x
#define HB_STRING(x) HB_STRING2(x)
#define HB_JOIN2(a, b) a##b
#define HB_JOIN(a, b) HB_JOIN2(a, b)

namespace {
#include "hb_lane.h"
#if defined(HB_SCALAR)
typedef hb_u32 hb_v;
typedef float hb_vf;
#define HB_LANES 1
#elif defined(__AVX512F__)
#include "hb_lane_avx512.h"
#elif defined(__AVX2__)
#include "hb_lane_avx2.h"
#else
#include "hb_lane_vec4.h"
#endif
#include "hb_mpc.h"
#include "hb_pack.h"
#include "hb_zfp1.h"

typedef unsigned char byte;

constexpr hb_zfp1_tables make_tables() {
  hb_zfp1_tables t{};
  for (hb_u32 i = 0; i < 80; i++) t.enc[i] = (hb_u16)hb_zfp1_enc_entry(i);
  for (hb_u32 i = 0; i < 256; i++) t.dec[i] = (hb_u16)hb_zfp1_dec_entry(i);
  return t;
}
alignas(64) constexpr hb_zfp1_tables tables = make_tables();

template <class T> HB_FN void add_bytes(byte *out, const byte *x, uint64_t count) {
  typedef T any_place __attribute__((aligned(1), may_alias));
  any_place *to = (any_place *)out;
  const any_place *from = (const any_place *)x;
  for (uint64_t i = 0; i < count; i++) to[i] += from[i];
}

// ------------------------------------------------------------------------------------------------ zfp
constexpr uint64_t GROUP = 64;  // values in 16 blocks
// Groups that are coded before their bits are moved: a vector load that meets words stored singly just before it
// would wait for them.
constexpr int BATCH = 4;
typedef hb_u32 block_words[4][16];

template <int NW> __attribute__((noinline)) void encode_groups(const byte *x, int groups, hb_u32 mb, block_words *w) {
  for (int g = 0; g < groups; g++)
    for (int b = 0; b < 16; b += HB_LANES) {
      hb_vf f[4];
      hb_v o[NW];
      hb_lane<hb_v>::load_blocks(x + 4 * (GROUP * g + 4 * b), f);
      hb_zfp1_encode<hb_v, NW>(f, mb, o, tables);
      for (int k = 0; k < NW; k++) hb_lane<hb_v>::store(w[g][k] + b, o[k]);
    }
}
template <int NW>
__attribute__((noinline)) void decode_groups(const block_words *w, int groups, hb_u32 mb, float *out) {
  for (int g = 0; g < groups; g++)
    for (int b = 0; b < 16; b += HB_LANES) {
      hb_v in[NW];
      hb_vf f[4];
      for (int k = 0; k < NW; k++) in[k] = hb_lane<hb_v>::load(w[g][k] + b);
      hb_zfp1_decode<hb_v, NW>(in, mb, f, tables);
      hb_lane<hb_v>::store_blocks(out + GROUP * g + 4 * b, f);
    }
}

constexpr uint64_t tail_bytes(uint64_t values, uint64_t rate) { return ((values + 3) / 4 * 4 * rate + 63) / 64 * 8; }

template <int R> void zfp1_encode(const byte *x, uint64_t n, byte *wire) {
  constexpr int NW = (R + 7) / 8;
  alignas(64) block_words w[BATCH];
  uint64_t full = n / GROUP;
  while (full) {
    int groups = full < BATCH ? (int)full : BATCH;
    encode_groups<NW>(x, groups, 4 * R, w);
    for (int g = 0; g < groups; g++) hb_pack16<R>(w[g], wire + 8 * R * g);
    x += 4 * GROUP * groups;
    wire += 8 * R * groups;
    full -= groups;
  }
  uint64_t left = n % GROUP;
  if (!left) return;
  float tail[GROUP] = {};  // blocks past the end are zero, and so are their bits
  __builtin_memcpy(tail, x, 4 * left);
  float *last = tail + (left & ~(uint64_t)3);
  switch (left & 3) {  // libzfp's padding of a partial block
    case 1: last[1] = last[2] = last[3] = last[0]; break;
    case 2: last[2] = last[1]; last[3] = last[0]; break;
    case 3: last[3] = last[0]; break;
  }
  encode_groups<NW>((const byte *)tail, 1, 4 * R, w);
  byte bits[8 * R];
  hb_pack16<R>(w[0], bits);
  __builtin_memcpy(wire, bits, tail_bytes(left, R));
}
HB_FN void put(byte *out, const float *values, uint64_t count, uint32_t add) {
  if (add)
    add_bytes<float>(out, (const byte *)values, count);
  else
    __builtin_memcpy(out, values, 4 * count);
}
template <int R> void zfp1_decode(const byte *wire, uint64_t n, byte *out, uint32_t add) {
  constexpr int NW = (R + 7) / 8;
  alignas(64) block_words w[BATCH];
  alignas(64) float f[BATCH * GROUP];
  uint64_t full = n / GROUP;
  while (full) {
    int groups = full < BATCH ? (int)full : BATCH;
    for (int g = 0; g < groups; g++) hb_unpack16<R>(wire + 8 * R * g, w[g]);
    decode_groups<NW>(w, groups, 4 * R, f);
    put(out, f, GROUP * groups, add);
    out += 4 * GROUP * groups;
    wire += 8 * R * groups;
    full -= groups;
  }
  uint64_t left = n % GROUP;
  if (!left) return;
  byte bits[8 * R] = {};
  __builtin_memcpy(bits, wire, tail_bytes(left, R));
  hb_unpack16<R>(bits, w[0]);
  decode_groups<NW>(w, 1, 4 * R, f);
  put(out, f, left, add);
}

#define HB_RATES(X) \
  X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15) X(16) X(17) X(18) X(19) X(20) X(21) X(22) X(23) \
  X(24) X(25) X(26) X(27) X(28) X(29) X(30) X(31) X(32)

void encode_any(const void *x, uint64_t n, uint32_t rate, void *wire) {
  switch (rate) {
#define X(R) case R: zfp1_encode<R>((const byte *)x, n, (byte *)wire); break;
    HB_RATES(X)
#undef X
  }
}
void decode_any(const void *wire, uint64_t n, uint32_t rate, void *out, uint32_t add) {
  switch (rate) {
#define X(R) case R: zfp1_decode<R>((const byte *)wire, n, (byte *)out, add); break;
    HB_RATES(X)
#undef X
  }
}

// ------------------------------------------------------------------------------------------------ mpc
// Container: for each chunk the number of its non-zero words, or RAW, as 16 bits; then for each chunk bitmap and
// non-zero words, or for RAW the words themselves (of the last chunk as many as there are).
constexpr hb_u16 RAW = 0xffff;
constexpr uint64_t CHUNK_BYTES = 4 * HB_MPC_CHUNK;

uint64_t mpc_encode(const void *x, uint64_t bytes, uint32_t dim, void *wire) {
  alignas(64) hb_u32 padded[HB_MPC_BITMAP + HB_MPC_CHUNK] = {};
  alignas(64) hb_u32 coded[HB_MPC_BITMAP + HB_MPC_CHUNK + HB_MPC_SLACK];
  hb_u32 *v = padded + HB_MPC_BITMAP;
  byte *lengths = (byte *)wire, *next = lengths + (bytes + CHUNK_BYTES - 1) / CHUNK_BYTES * 2;
  for (uint64_t at = 0; at < bytes; at += CHUNK_BYTES, lengths += 2) {
    uint64_t part = bytes - at < CHUNK_BYTES ? bytes - at : CHUNK_BYTES, words = (part + 3) / 4;
    if (part < CHUNK_BYTES) __builtin_memset(v, 0, CHUNK_BYTES);
    __builtin_memcpy(v, (const byte *)x + at, part);
    hb_u32 count = hb_mpc_encode_chunk<hb_v>(v, (int)dim, coded);
    bool shrinks = HB_MPC_BITMAP + count < words;
    hb_u16 length = shrinks ? (hb_u16)count : RAW;
    uint64_t used = 4 * (shrinks ? HB_MPC_BITMAP + count : words);
    __builtin_memcpy(lengths, &length, 2);
    __builtin_memcpy(next, shrinks ? coded : v, used);
    next += used;
  }
  return (uint64_t)(next - (byte *)wire);
}

uint32_t mpc_decode(const void *wire, uint64_t wire_bytes, uint64_t bytes, uint32_t dim, void *out, uint32_t add) {
  alignas(64) hb_u32 padded[HB_MPC_BITMAP + HB_MPC_CHUNK] = {};
  alignas(64) hb_u32 coded[HB_MPC_BITMAP + HB_MPC_CHUNK + HB_MPC_SLACK] = {};
  hb_u32 *v = padded + HB_MPC_BITMAP;
  const byte *lengths = (const byte *)wire;
  uint64_t head = (bytes + CHUNK_BYTES - 1) / CHUNK_BYTES * 2;
  if (wire_bytes < head) return 1;
  const byte *next = lengths + head;
  uint64_t left = wire_bytes - head;
  for (uint64_t at = 0; at < bytes; at += CHUNK_BYTES, lengths += 2) {
    uint64_t part = bytes - at < CHUNK_BYTES ? bytes - at : CHUNK_BYTES, words = (part + 3) / 4;
    hb_u16 length;
    __builtin_memcpy(&length, lengths, 2);
    if (length != RAW && length > HB_MPC_CHUNK) return 1;
    uint64_t used = 4 * (length == RAW ? words : (uint64_t)HB_MPC_BITMAP + length);
    if (left < used) return 1;
    if (length == RAW) {
      __builtin_memcpy(v, next, used);
    } else {
      __builtin_memcpy(coded, next, used);
      hb_u32 count = 0;
      for (int g = 0; g < HB_MPC_BITMAP; g++) count += (hb_u32)__builtin_popcount(coded[g]);
      if (count != length) return 1;
      hb_mpc_decode_chunk<hb_v>(coded, (int)dim, v);
    }
    next += used;
    left -= used;
    byte *to = (byte *)out + at;
    switch (add) {
      case 0: __builtin_memcpy(to, v, part); break;
      case 1: add_bytes<float>(to, (const byte *)v, part / 4); break;
      case 2: add_bytes<double>(to, (const byte *)v, part / 8); break;
    }
  }
  return left != 0;
}
}  // namespace

extern "C" const hb_kernels HB_JOIN(hb_kernels_, HB_BUILD);
extern "C" const hb_kernels HB_JOIN(hb_kernels_, HB_BUILD) = {
    HB_ABI, HB_LANES, HB_STRING(HB_BUILD), encode_any, decode_any, mpc_encode, mpc_decode,
};
