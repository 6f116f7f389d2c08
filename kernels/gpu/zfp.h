// ZFP with one block per thread. The 32 blocks of a row have 4 * RATE words in the stream at every rate, so rows never
// share a word. If a block is an aligned piece of memory, a thread moves the block; otherwise, the warp moves the words
// through its stage.
#pragma once
#include "tiles.h"
#include "zfp_block.h"

alignas(16) __device__ constexpr hb_zfp_tables hb_zfp_source = hb_make_zfp_tables();

// Tables are copied to shared memory, because 32 threads can read different positions there at once.
template <class T> HB_FN void hb_copy_table(T &to, const T &from) {
  static_assert(sizeof to % 16 == 0, "moved by pieces");
  for (hb_u32 i = threadIdx.x; i < sizeof to / 16; i += HB_THREADS) ((uint4 *)&to)[i] = ((const uint4 *)&from)[i];
}

HB_FN const hb_zfp_tables &hb_zfp_shared_tables(bool encodes, bool decodes) {
  alignas(16) __shared__ hb_zfp_tables t;
  if (encodes) hb_copy_table(t.enc, hb_zfp_source.enc);
  if (decodes) hb_copy_table(t.dec, hb_zfp_source.dec);
  __syncthreads();
  return t;
}

template <hb_u32 RATE> struct hb_zfp_codec {
  static constexpr int ROUNDS = 1;
  static constexpr hb_u32 MB = 4 * RATE, NW = (MB + 31) / 32, WORDS = 4 * RATE, ROW = 16 * RATE;
  static constexpr bool WHOLE = RATE == 4 || RATE == 8 || RATE == 16 || RATE == 32;
  static constexpr hb_u32 PIECE = WHOLE ? RATE / 2 : 4;
  typedef hb_tile<ROUNDS> tile;
  struct code {
    hb_u32 words[1][NW];
  };

  hb_byte *stream;
  bool aligned;
  const hb_zfp_tables &tables;
  HB_FN hb_zfp_codec(const hb_byte *wire, hb_u64, bool encodes, bool decodes)
      : stream((hb_byte *)wire), aligned(((hb_u64)wire & (PIECE - 1)) == 0u),
        tables(hb_zfp_shared_tables(encodes, decodes)) {}

  HB_FN code encode(const tile &t, const float (*v)[4]) const {
    float f[4] = {v[0][0], v[0][1], v[0][2], v[0][3]};
    if (!t.full) {  // libzfp's padding of a partial block
      const hb_u32 left = t.count - t.place(0);
      if (left == 1u) f[1] = f[2] = f[3] = f[0];
      if (left == 2u) f[2] = f[1], f[3] = f[0];
      if (left == 3u) f[3] = f[0];
    }
    code c;
    hb_zfp_block<MB>::encode(f, c.words[0], tables);
    return c;
  }
  HB_FN void decode(const tile &, const code &c, float (*v)[4]) const {
    hb_zfp_block<MB>::decode(c.words[0], v[0], tables);
  }

  HB_FN code load(const tile &t) const {
    const hb_byte *from = stream + t.first / 8 * RATE;
    code c;
    if constexpr (WHOLE) {
      hb_load_rows<PIECE, 1>(t.me, from, aligned & t.full, [&](int) { return bytes(t); }, c.words);
    } else {
      if (aligned & t.full) {
#pragma unroll
        for (hb_u32 k = 0; k < WORDS; k += 32)
          if (k + t.me.lane < WORDS) t.me.stage[k + t.me.lane] = ((const hb_u32 *)from)[k + t.me.lane];
        __syncwarp();
      } else {
        hb_stage_in(t.me, from, bytes(t), ROW);
      }
      const hb_u32 *word = t.me.stage + t.me.lane * MB / 32, shift = t.me.lane * MB % 32;
#pragma unroll
      for (hb_u32 k = 0; k < NW; k++) c.words[0][k] = __funnelshift_r(word[k], word[k + 1], shift);
      if (MB % 32) c.words[0][NW - 1] &= (1u << (MB % 32)) - 1u;
      __syncwarp();
    }
    return c;
  }
  HB_FN void store(const tile &t, const code &c) const {
    hb_byte *to = stream + t.first / 8 * RATE;
    if constexpr (WHOLE) {
      hb_store_rows<PIECE, 1>(t.me, to, aligned & t.full, [&](int) { return bytes(t); }, c.words);
    } else {
      if constexpr (MB % 32 == 0) {
#pragma unroll
        for (hb_u32 k = 0; k < NW; k++) t.me.stage[NW * t.me.lane + k] = c.words[0][k];
      } else {
        merge(t.me, c.words[0]);
      }
      if (aligned & t.full) {
        __syncwarp();
#pragma unroll
        for (hb_u32 k = 0; k < WORDS; k += 32)
          if (k + t.me.lane < WORDS) ((hb_u32 *)to)[k + t.me.lane] = t.me.stage[k + t.me.lane];
        __syncwarp();
      } else {
        hb_stage_out(t.me, to, bytes(t));
      }
    }
  }

 private:
  // Bytes of the tile's row in the stream. The row ends with a 64-bit word.
  static HB_FN hb_u32 bytes(const tile &t) { return ((t.count + 3u) / 4u * MB + 63u) / 64u * 8u; }
  // Blocks that begin or end within words.
  static HB_FN void merge(const hb_warp &me, const hb_u32 *words) {
#pragma unroll
    for (hb_u32 k = 0; k < WORDS; k += 32)
      if (k + me.lane < WORDS) me.stage[k + me.lane] = 0;
    __syncwarp();
    hb_u32 *word = me.stage + me.lane * MB / 32;
    const hb_u32 shift = me.lane * MB % 32;
#pragma unroll
    for (hb_u32 k = 0; k <= NW; k++) {
      const hb_u32 part = __funnelshift_l(k ? words[k - 1] : 0u, k < NW ? words[k] : 0u, shift);
      if (part) atomicOr(word + k, part);
    }
  }
};
