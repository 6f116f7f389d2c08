// Kernels of a lossless codec, built from functions for a chunk in a warp's registers. Each warp of a block encodes one
// chunk. The codec is a class C for one type:
//   C(param)
//   encode(me, v, used)          encodes `used` bytes, followed by zeros, to me.stage; returns the number of 4-byte
//                                words. If there are too many, the stage is ignored
//   decode(me, words, used, v)   decodes `words` words in me.stage, followed by zeros; false if they are not a chunk
// The container is the same as in the CPU front end (kernels/cpu/chunks.h).
#pragma once
#include "order.h"
#include "words.h"

#define HB_RAW 0xffffu
#define HB_CHUNK_STAGE (HB_CHUNK / 4 + 96)  // in words: a chunk and additional data of a codec

// Lengths of chunks, followed by the chunks.
struct hb_container {
  hb_byte *lengths, *chunks;
  hb_u64 room;  // words for chunks
  HB_FN hb_container(const hb_byte *wire, hb_u64 count) : lengths((hb_byte *)wire), chunks(lengths + head(count)), room(0) {}
  static HB_FN hb_u64 head(hb_u64 count) { return (2 * count + 3) / 4 * 4; }
};

template <class C, int T> struct hb_chunked {
  static constexpr bool SUMS = T == HB_F32 || T == HB_F16 || T == HB_BF16;

  // The chunks of a block, one per warp.
  struct round {
    hb_u64 total, chunks, pieces;  // total bytes; numbers of chunks and pieces of the data
    hb_u64 piece, chunk;           // the drawn piece; this warp's chunk
    hb_u32 used;                   // bytes of this warp's chunk, 0 if there is none
    hb_u32 warp;
    hb_warp me;
    HB_FN round(hb_u64 n) : total(n * hb_size_of(T)), chunks((total + HB_CHUNK - 1) / HB_CHUNK) {
      alignas(16) __shared__ hb_u32 stage[HB_WARPS][HB_CHUNK_STAGE];
      warp = hb_uniform(threadIdx.x >> 5);
      me.lane = threadIdx.x & 31u;
      me.stage = stage[warp];
      pieces = (chunks + HB_WARPS - 1) / HB_WARPS;
    }
    HB_FN bool next(hb_state *state) {
      piece = hb_draw(state);
      chunk = piece * HB_WARPS + warp;
      used = chunk < chunks ? (hb_u32)(total - chunk * HB_CHUNK < HB_CHUNK ? total - chunk * HB_CHUNK : HB_CHUNK) : 0;
      return piece < pieces;
    }
    HB_FN hb_u32 raw() const { return (used + 3u) / 4u; }
    // Returns the start of this warp's chunk, which has the given number of words and follows those of previous warps
    // and blocks; `end`: end of the block's chunks.
    HB_FN hb_u64 place(volatile hb_u64 *told, hb_u32 words, hb_u64 &end) const {
      __shared__ hb_u32 sizes[HB_WARPS];
      __shared__ hb_u64 begin;
      if (me.lane == 0) sizes[warp] = words;
      __syncthreads();
      hb_u32 before = 0, all = 0;
      for (hb_u32 w = 0; w < HB_WARPS; w++) {
        if (w < warp) before += sizes[w];
        all += sizes[w];
      }
      if (warp == 0) {
        const hb_u64 first = hb_place(told, piece, all, me.lane);
        if (me.lane == 0) begin = first;
      }
      __syncthreads();
      end = begin + all;
      return begin + before;
    }
  };

  static HB_FN void write(const C &c, const round &r, const hb_u32 *v, hb_byte *wire, hb_state *state,
                          volatile hb_u64 *told) {
    hb_u32 words = r.used ? c.encode(r.me, v, r.used) : 0;
    const bool shrinks = words < r.raw();
    if (!shrinks) words = r.raw();
    hb_u64 end;
    const hb_u64 at = r.place(told, words, end);
    const hb_container to(wire, r.chunks);
    if (r.used) {
      if (r.me.lane == 0) hb_store_half(to.lengths + 2 * r.chunk, shrinks ? words : HB_RAW);
      if (shrinks) {
        hb_stage_out(r.me, to.chunks + 4 * at, 4u * words);
      } else {
        hb_store_chunk(r.me, to.chunks + 4 * at, 4u * words, v);
      }
    }
    if (r.piece + 1 == r.pieces && threadIdx.x == 0) {
      for (hb_u64 i = 2 * r.chunks; i < to.head(r.chunks); i++) wire[i] = 0;
      state->bytes = to.head(r.chunks) + 4 * end;
    }
  }
  // Loads the warp's chunk from a wire of the given size; loads zeros if the chunk is missing or malformed.
  static HB_FN bool read(const C &c, const round &r, const hb_byte *wire, hb_u64 bytes, hb_state *state,
                         volatile hb_u64 *told, hb_u32 *v) {
    const hb_container from(wire, r.chunks);
    const hb_u64 head = from.head(r.chunks), room = bytes > head ? (bytes - head) / 4 : 0;
    const bool whole = bytes >= head && (bytes - head) % 4 == 0;
    hb_u32 length = 0, words = 0;
    if (r.used && whole) {
      length = hb_uniform(hb_load_half(from.lengths + 2 * r.chunk));
      words = length == HB_RAW ? r.raw() : length;
    }
    bool good = whole && words <= r.raw();
    hb_u64 end;
    const hb_u64 at = r.place(told, words, end);
    good = hb_uniform(good && at + words <= room);
    if (r.piece + 1 == r.pieces && threadIdx.x == 0) {
      if (end != room) hb_fault(state);
      state->bytes = bytes;
    }
    if (r.used && good) {
      hb_load_chunk(r.me, from.chunks + 4 * at, 4u * words, v);
      if (length != HB_RAW) {
        hb_to_stage(r.me, v);
        good = c.decode(r.me, words, r.used, v);
        __syncwarp();
      }
    }
    if (!good) {
      hb_fault(state);
#pragma unroll
      for (int i = 0; i < HB_ROWS; i++) v[i] = 0;
    }
    return good && r.used;
  }

  static HB_FN void encode(const void *x, hb_u64 n, hb_byte *wire, float *residual, hb_u64 param, hb_state *state) {
    const C c(param);
    round r(n);
    while (r.next(state)) {
      hb_u32 v[HB_ROWS];
      hb_load_chunk(r.me, (const hb_byte *)x + r.chunk * HB_CHUNK, r.used, v);
      if constexpr (SUMS)
        if (residual) {
          hb_to_stage(r.me, v);
          hb_keep_residual<T>(r.me, (hb_byte *)residual + r.chunk * HB_CHUNK / hb_size_of(T) * 4, r.used / hb_size_of(T));
          hb_from_stage(r.me, v);
        }
      write(c, r, v, wire, state, hb_rest_of(state));
    }
  }
  template <int O, bool ADD>
  static HB_FN void decode(const hb_byte *wire, hb_u64 bytes, hb_u64 n, void *out, hb_u64 param, hb_state *state) {
    const C c(param);
    round r(n);
    if (!r.chunks && bytes && threadIdx.x == 0) hb_fault(state);
    while (r.next(state)) {
      hb_u32 v[HB_ROWS];
      if (!read(c, r, wire, bytes, state, hb_rest_of(state), v)) continue;
      hb_byte *to = (hb_byte *)out + r.chunk * HB_CHUNK / hb_size_of(T) * hb_size_of(O);
      if constexpr (ADD && O == T && T != HB_BYTES) hb_add_chunk<T>(r.me, to, r.used, v);
      if constexpr (O == T) {
        hb_store_chunk(r.me, to, r.used, v);
      } else if constexpr (SUMS && O != HB_F64 && O != HB_BYTES) {
        hb_to_stage(r.me, v);
        hb_put_values<T, O, ADD>(r.me, to, r.used / hb_size_of(T));
      }
    }
  }
  static HB_FN void decode_add_encode(const hb_byte *wire, hb_u64 bytes, const void *local, hb_u64 n, hb_byte *out,
                                      hb_u64 param, hb_state *state) {
    const C c(param);
    round r(n);
    while (r.next(state)) {
      hb_u32 v[HB_ROWS];
      read(c, r, wire, bytes, state, hb_rest_of(state), v);
      if constexpr (SUMS) hb_add_chunk<T>(r.me, (const hb_byte *)local + r.chunk * HB_CHUNK, r.used, v);
      write(c, r, v, out, state, hb_rest_of(state) + r.pieces);
    }
  }
};
