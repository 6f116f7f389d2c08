// Operations of a warp: reductions by shuffles, and rows of memory whose pieces are divided among the threads.
#pragma once
#include "../hb_lane.h"

typedef unsigned long long hb_u64;
typedef unsigned char hb_byte;

#define HB_THREADS 256  // threads of every block
#define HB_WARPS (HB_THREADS / 32)
#define HB_EVERY 0xffffffffu
#define HB_STAGE 128  // words of shared memory through which a warp moves a row

struct hb_warp {
  hb_u32 lane;
  hb_u32 *stage;  // HB_STAGE words that belong to this warp
};

// Informs the compiler that all lanes hold the same value. Otherwise, the compiler would duplicate shuffles in
// branches.
HB_FN hb_u32 hb_uniform(hb_u32 x) { return __shfl_sync(HB_EVERY, x, 0); }

// Returns, to every thread, the maximum of its group of G neighboring threads.
template <hb_u32 G> HB_FN hb_u32 hb_group_max(hb_u32 x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  if constexpr (G == 32)
    return __reduce_max_sync(HB_EVERY, x);
  else
#endif
  {
#pragma unroll
    for (hb_u32 half = G / 2; half; half /= 2) x = hb_lane<hb_u32>::max(x, __shfl_xor_sync(HB_EVERY, x, half));
    return x;
  }
}
HB_FN hb_u32 hb_warp_sum(hb_u32 x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  return __reduce_add_sync(HB_EVERY, x);
#else
#pragma unroll
  for (hb_u32 half = 16; half; half /= 2) x += __shfl_xor_sync(HB_EVERY, x, half);
  return x;
#endif
}
// Sums by repeated halving, starting with lanes l and l + G / 2. All threads of a group add the same pairs, so their
// results are bitwise identical.
template <hb_u32 G> HB_FN float hb_group_sum(float x) {
#pragma unroll
  for (hb_u32 half = G / 2; half; half /= 2) x = x + __shfl_xor_sync(HB_EVERY, x, half);
  return x;
}

// Loads P bytes into the low bytes of words. The address p is a multiple of P.
template <int P> HB_FN void hb_load_piece(const hb_byte *p, hb_u32 *w) {
  if constexpr (P == 16) {
    uint4 v = *(const uint4 *)p;
    w[0] = v.x, w[1] = v.y, w[2] = v.z, w[3] = v.w;
  } else if constexpr (P == 8) {
    uint2 v = *(const uint2 *)p;
    w[0] = v.x, w[1] = v.y;
  } else if constexpr (P == 4) {
    w[0] = *(const hb_u32 *)p;
  } else if constexpr (P == 2) {
    w[0] = *(const hb_u16 *)p;
  } else {
    static_assert(P == 1, "pieces have 1, 2, 4, 8 or 16 bytes");
    w[0] = *p;
  }
}
template <int P> HB_FN void hb_store_piece(hb_byte *p, const hb_u32 *w) {
  if constexpr (P == 16) {
    *(uint4 *)p = make_uint4(w[0], w[1], w[2], w[3]);
  } else if constexpr (P == 8) {
    *(uint2 *)p = make_uint2(w[0], w[1]);
  } else if constexpr (P == 4) {
    *(hb_u32 *)p = w[0];
  } else if constexpr (P == 2) {
    *(hb_u16 *)p = (hb_u16)w[0];
  } else {
    static_assert(P == 1, "pieces have 1, 2, 4, 8 or 16 bytes");
    *p = (hb_byte)w[0];
  }
}
// An unaligned word.
HB_FN void hb_store_word(hb_byte *p, hb_u32 x) {
  if (((hb_u64)p & 3u) == 0u) {
    *(hb_u32 *)p = x;
  } else {
    for (int i = 0; i < 4; i++) p[i] = (hb_byte)(x >> (8 * i));
  }
}
HB_FN hb_u32 hb_load_word(const hb_byte *p) {
  if (((hb_u64)p & 3u) == 0u) return *(const hb_u32 *)p;
  hb_u32 x = 0;
  for (int i = 0; i < 4; i++) x |= (hb_u32)p[i] << (8 * i);
  return x;
}

// Copies `bytes` unaligned bytes to the stage, which is filled with zeros up to `room`, or back. Neighboring threads
// move neighboring bytes, so the copy is only a little slower than moving pieces.
HB_FN void hb_stage_in(const hb_warp &me, const hb_byte *from, hb_u32 bytes, hb_u32 room) {
  hb_byte *stage = (hb_byte *)me.stage;
  const hb_u32 words = ((hb_u64)from & 3u) == 0u ? bytes / 4u : 0u;
#pragma unroll 1
  for (hb_u32 i = me.lane; i < words; i += 32u) me.stage[i] = ((const hb_u32 *)from)[i];
#pragma unroll 1
  for (hb_u32 i = 4u * words + me.lane; i < room; i += 32u) stage[i] = i < bytes ? from[i] : (hb_byte)0;
  __syncwarp();
}
HB_FN void hb_stage_out(const hb_warp &me, hb_byte *to, hb_u32 bytes) {
  const hb_byte *stage = (const hb_byte *)me.stage;
  __syncwarp();
  const hb_u32 words = ((hb_u64)to & 3u) == 0u ? bytes / 4u : 0u;
#pragma unroll 1
  for (hb_u32 i = me.lane; i < words; i += 32u) ((hb_u32 *)to)[i] = me.stage[i];
#pragma unroll 1
  for (hb_u32 i = 4u * words + me.lane; i < bytes; i += 32u) to[i] = stage[i];
  __syncwarp();
}

// R rows of 32 pieces of P bytes, one per thread. `direct`: the rows are complete and aligned to P. Otherwise only the
// first bytes(r) bytes of row r exist.
template <int P, int R, class B>
HB_FN void hb_load_rows(const hb_warp &me, const hb_byte *rows, bool direct, B bytes, hb_u32 (*w)[(P + 3) / 4]) {
  if (direct) {
#pragma unroll
    for (int r = 0; r < R; r++) hb_load_piece<P>(rows + 32 * P * r + P * me.lane, w[r]);
  } else {
#pragma unroll
    for (int r = 0; r < R; r++) {
      hb_stage_in(me, rows + 32 * P * r, bytes(r), 32 * P);
      hb_load_piece<P>((const hb_byte *)me.stage + P * me.lane, w[r]);
      __syncwarp();
    }
  }
}
template <int P, int R, class B>
HB_FN void hb_store_rows(const hb_warp &me, hb_byte *rows, bool direct, B bytes, const hb_u32 (*w)[(P + 3) / 4]) {
  if (direct) {
#pragma unroll
    for (int r = 0; r < R; r++) hb_store_piece<P>(rows + 32 * P * r + P * me.lane, w[r]);
  } else {
#pragma unroll
    for (int r = 0; r < R; r++) {
      hb_store_piece<P>((hb_byte *)me.stage + P * me.lane, w[r]);
      hb_stage_out(me, rows + 32 * P * r, bytes(r));
    }
  }
}

// Rows with 4 bits per thread. The earlier of two neighboring threads has the low half of a byte. Bytes need no
// alignment.
template <int R, class B> HB_FN void hb_load_nibbles(const hb_warp &me, const hb_byte *rows, B bytes, hb_u32 *x) {
#pragma unroll
  for (int r = 0; r < R; r++) {
    x[r] = 0;
    if (me.lane / 2u < bytes(r)) x[r] = (hb_u32)rows[16 * r + me.lane / 2u] >> (me.lane % 2u * 4u) & 15u;
  }
}
template <int R, class B> HB_FN void hb_store_nibbles(const hb_warp &me, hb_byte *rows, B bytes, const hb_u32 *x) {
#pragma unroll
  for (int r = 0; r < R; r++) {
    const hb_u32 both = x[r] | __shfl_down_sync(HB_EVERY, x[r], 1) << 4;
    if (me.lane % 2u == 0u && me.lane / 2u < bytes(r)) rows[16 * r + me.lane / 2u] = (hb_byte)both;
  }
}
