// Kernels of a fixed-size codec, built from functions for a tile in a warp's registers. A thread holds
// 4 consecutive values of each round of 128. The codec is a class C for one parameter and one type:
//   ROUNDS                     number of rounds in a tile
//   code                       a thread's part of an encoded tile
//   C(wire, n, encodes, decodes)   computes the start of the planes, and prepares encoding or decoding
//   encode(tile, v)            encodes the values of the tile; values from tile.count on are 0
//   decode(tile, code, v)      decodes the values
//   load(tile), store(tile, code)  read a code from the wire or write it to the wire
// Codes remain in registers, so encoders with a residual and the fused kernel access memory only once.
#pragma once
#include "rotate.h"
#include "values.h"
#include "warp.h"

template <int R> struct hb_tile {
  static constexpr hb_u32 VALUES = 128 * R;
  hb_warp me;
  hb_u64 seed;
  hb_u64 first;  // index of the first value
  hb_u32 count;  // number of values, at most VALUES
  bool full;

  // Returns the number of bytes in a round of `count` values of BITS bits each, rounded up to a multiple of PAD.
  template <int BITS, hb_u32 PAD = 1> HB_FN auto bytes() const {
    return [all = ((count * BITS + 7u) / 8u + PAD - 1u) / PAD * PAD](int round) {
      const hb_u32 before = 16u * BITS * round;
      return all > before ? (all - before < 16u * BITS ? all - before : 16u * BITS) : 0u;
    };
  }
  // index in the tile of the thread's first value in a round
  HB_FN hb_u32 place(int round) const { return 128u * round + 4u * me.lane; }
};

// Moves unaligned values of a type to registers and back.
template <int T, int R> struct hb_values {
  static constexpr int SIZE = hb_type<T>::SIZE, PIECE = 4 * SIZE;
  hb_byte *at;
  bool aligned;
  HB_FN hb_values(const void *p) : at((hb_byte *)p), aligned(((hb_u64)p & (PIECE - 1)) == 0u) {}

  HB_FN void load_words(const hb_tile<R> &t, hb_u32 (*w)[PIECE / 4]) const {
    hb_load_rows<PIECE, R>(t.me, at + SIZE * t.first, aligned & t.full, t.template bytes<8 * SIZE>(), w);
  }
  HB_FN void store_words(const hb_tile<R> &t, const hb_u32 (*w)[PIECE / 4]) const {
    hb_store_rows<PIECE, R>(t.me, at + SIZE * t.first, aligned & t.full, t.template bytes<8 * SIZE>(), w);
  }
  HB_FN void load(const hb_tile<R> &t, float (*v)[4]) const {
    hb_u32 w[R][PIECE / 4];
    load_words(t, w);
#pragma unroll
    for (int r = 0; r < R; r++) hb_type<T>::template widen<4>(w[r], v[r]);
  }
  HB_FN void store(const hb_tile<R> &t, const float (*v)[4]) const {
    hb_u32 w[R][PIECE / 4];
#pragma unroll
    for (int r = 0; r < R; r++) hb_type<T>::template narrow<4>(v[r], w[r]);
    store_words(t, w);
  }
};
template <int R> HB_FN void hb_add_tile(float (*v)[4], const float (*more)[4]) {
#pragma unroll
  for (int r = 0; r < R; r++)
    for (int i = 0; i < 4; i++) v[r][i] = hb_add(more[r][i], v[r][i]);
}

template <int R> HB_FN void hb_copy_tile(const float (*v)[4], float (*to)[4]) {
#pragma unroll
  for (int r = 0; r < R; r++)
    for (int i = 0; i < 4; i++) to[r][i] = v[r][i];
}

// Calls work(tile) for the tiles of this warp.
template <int R, class F> HB_FN void hb_each_tile(hb_u64 n, hb_u64 seed, F work) {
  alignas(16) __shared__ hb_u32 stage[HB_WARPS][HB_STAGE];
  hb_tile<R> t;
  t.me.lane = threadIdx.x & 31u;
  t.me.stage = stage[threadIdx.x >> 5];
  t.seed = seed;
  const hb_u64 step = (hb_u64)gridDim.x * HB_WARPS * t.VALUES;
  for (t.first = ((hb_u64)blockIdx.x * HB_WARPS + (threadIdx.x >> 5)) * t.VALUES; t.first < n; t.first += step) {
    t.full = n - t.first >= t.VALUES;
    t.count = t.full ? t.VALUES : (hb_u32)(n - t.first);
    work(t);
  }
}

// A codec whose tiles consist of TIMES tiles of C, for rotations of more values than a tile of C contains.
template <class C, int TIMES> struct hb_joined_codec {
  static constexpr int ROUNDS = C::ROUNDS * TIMES;
  typedef hb_tile<ROUNDS> tile;
  typedef hb_tile<C::ROUNDS> part;
  struct code {
    typename C::code of[TIMES];
  };
  C codec;
  HB_FN hb_joined_codec(const hb_byte *wire, hb_u64 n, bool encodes, bool decodes) : codec(wire, n, encodes, decodes) {}

  HB_FN code encode(const tile &t, const float (*v)[4]) const {
    code c;
#pragma unroll
    for (int k = 0; k < TIMES; k++) c.of[k] = codec.encode(part_of(t, k), v + C::ROUNDS * k);
    return c;
  }
  HB_FN void decode(const tile &t, const code &c, float (*v)[4]) const {
#pragma unroll
    for (int k = 0; k < TIMES; k++) codec.decode(part_of(t, k), c.of[k], v + C::ROUNDS * k);
  }
  HB_FN code load(const tile &t) const {
    code c = {};
#pragma unroll
    for (int k = 0; k < TIMES; k++)
      if (part_of(t, k).count) c.of[k] = codec.load(part_of(t, k));
    return c;
  }
  HB_FN void store(const tile &t, const code &c) const {
#pragma unroll
    for (int k = 0; k < TIMES; k++)
      if (part_of(t, k).count) codec.store(part_of(t, k), c.of[k]);
  }

 private:
  static HB_FN part part_of(const tile &t, int k) {
    const hb_u32 before = part::VALUES * k, left = t.count > before ? t.count - before : 0u;
    const hb_u32 count = left < part::VALUES ? left : part::VALUES;
    return {t.me, t.seed, t.first + before, count, count == part::VALUES};
  }
};
// C, or C with tiles of at least 2^K values
template <class C, int K, bool SHORT = (128 * C::ROUNDS < 1 << K)> struct hb_wide_codec { typedef C type; };
template <class C, int K> struct hb_wide_codec<C, K, true> {
  typedef hb_joined_codec<C, (1 << K) / (128 * C::ROUNDS)> type;
};

// ROTATION: the parameter; its upper bits specify how values are rotated before encoding
template <class C, int T, hb_u64 ROTATION = 0> struct hb_tiled {
  static constexpr int R = C::ROUNDS;
  typedef hb_tile<R> tile;
  template <bool INVERSE> static HB_FN void rotate(const tile &t, float (*v)[4]) {
    hb_rotate<HB_ROTATION(ROTATION), HB_ROTATION_SIGNS(ROTATION), INVERSE>(t, v);
  }

  static HB_FN void encode(const void *x, hb_u64 n, hb_byte *wire, float *residual, hb_u64 seed) {
    const C c(wire, n, true, residual);
    const hb_values<T, R> values(x);
    const hb_values<HB_F32, R> kept(residual);
    hb_each_tile<R>(n, seed, [&](const tile &t) {
      float v[R][4];
      values.load(t, v);
      if (residual) {
        float lack[R][4];
        kept.load(t, lack);
        hb_add_tile<R>(v, lack);
      }
      float turned[R][4];
      hb_copy_tile<R>(v, turned);
      rotate<false>(t, turned);
      const typename C::code code = c.encode(t, turned);
      c.store(t, code);
      if (residual) {
        float sent[R][4];
        c.decode(t, code, sent);
        rotate<true>(t, sent);
#pragma unroll
        for (int r = 0; r < R; r++)
          for (int i = 0; i < 4; i++) v[r][i] = hb_finite_or_0(v[r][i] - sent[r][i]);
        kept.store(t, v);
      }
    });
  }
  template <int O, bool ADD> static HB_FN void decode(const hb_byte *wire, hb_u64 n, void *out) {
    const C c(wire, n, false, true);
    const hb_values<O, R> values(out);
    hb_each_tile<R>(n, 0, [&](const tile &t) {
      float v[R][4], old[R][4];
      const typename C::code code = c.load(t);
      if (ADD) values.load(t, old);  // before the work, so that both loads are in flight at once
      c.decode(t, code, v);
      rotate<true>(t, v);
      if (ADD) hb_add_tile<R>(v, old);
      values.store(t, v);
    });
  }
  static HB_FN void decode_add_encode(const hb_byte *wire, const void *local, hb_u64 n, hb_byte *out, hb_u64 seed) {
    const C from(wire, n, false, true), to(out, n, true, false);
    const hb_values<T, R> values(local);
    hb_each_tile<R>(n, seed, [&](const tile &t) {
      float v[R][4], own[R][4];
      const typename C::code code = from.load(t);
      values.load(t, own);
      from.decode(t, code, v);
      rotate<true>(t, v);
      hb_add_tile<R>(v, own);
      if (!t.full) {  // decoded padding need not be 0
#pragma unroll
        for (int r = 0; r < R; r++)
          for (int i = 0; i < 4; i++) v[r][i] = t.place(r) + i < t.count ? v[r][i] : 0.0f;
      }
      rotate<false>(t, v);
      to.store(t, to.encode(t, v));
    });
  }
};
