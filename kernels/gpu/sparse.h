// Kernels of the sparse codecs (see kernels/hb_sparse.h for the format). Each block processes one chunk of records.
// Codecs that send single values treat them as rows of one value.
#pragma once
#include "marks.h"
#include "select.h"

template <int FAMILY, int T> struct hb_sparse {
  static constexpr bool TOPK = FAMILY == HB_TOPK, ROWS = FAMILY == HB_ROWSPARSE, SUMS = T < HB_F64;
  static constexpr int SIZE = hb_size_of(T);

  struct message {
    hb_u64 width, records, per_chunk, chunks, head, rest;  // rest: values after the last whole row
    HB_FN message(hb_u64 n, hb_u64 param) : width(ROWS ? param : 1) {
      records = n / width;
      rest = n % width;
      per_chunk = hb_chunk_records(width);
      chunks = (records + per_chunk - 1) / per_chunk;
      head = chunks ? 8 * (chunks - 1) : 0;
    }
    HB_FN hb_u32 records_of(hb_u64 chunk) const {
      return (hb_u32)(records - chunk * per_chunk < per_chunk ? records - chunk * per_chunk : per_chunk);
    }
  };
  // The record that contains a value of the chunk, and the value's position in this record.
  static HB_FN hb_u32 row_of(const message &msg, hb_u64 element) {
    return ROWS ? (hb_u32)(element / msg.width) : (hb_u32)element;
  }
  static HB_FN hb_u64 column_of(const message &msg, hb_u64 element, hb_u32 row) {
    return ROWS ? element - row * msg.width : 0;
  }
  static HB_FN volatile hb_u64 *told(hb_sparse_state *state) {
    return (volatile hb_u64 *)state + HB_SPARSE_STATE_WORDS + (TOPK ? HB_SELECT_DIGITS * 2048 : 0);
  }
  // One float32 per value, after all other state.
  static HB_FN float *sums(hb_u64 n, hb_u64 param, hb_sparse_state *state) {
    return (float *)(told(state) + 2 * message(n, param).chunks);
  }

  // Values to send: the input, or its sum with the residual. The residual already contains the sum.
  struct source {
    const hb_byte *x;
    hb_byte *residual;
    HB_FN source(const void *x, float *residual) : x((const hb_byte *)x), residual((hb_byte *)residual) {}
    HB_FN hb_u32 magnitude(hb_u64 i) const {
      if constexpr (SUMS) {
        const hb_u32 bits = residual ? hb_load_word(residual + 4 * i)
                                     : hb_lane<hb_u32>::as_bits(hb_widen_raw<T>(hb_load_raw<SIZE>(x + SIZE * i)));
        return bits & HB_MAGNITUDE;
      }
      return 0;
    }
    HB_FN hb_u64 raw(hb_u64 i) const {
      if constexpr (SUMS)
        if (residual) return hb_narrow_raw<T>(hb_load_value<HB_F32>(residual + 4 * i));
      return hb_load_raw<SIZE>(x + SIZE * i);
    }
    // Stores the unsent part of a value in the residual.
    HB_FN void keep(hb_u64 i, bool sent, hb_u64 raw) const {
      if constexpr (SUMS)
        if (residual) {
          const float wanted = hb_load_value<HB_F32>(residual + 4 * i), lack = sent ? wanted - hb_widen_raw<T>(raw) : wanted;
          hb_store_value<HB_F32>(residual + 4 * i, hb_finite_or_0(lack));
        }
    }
  };

  static HB_FN void fold(const void *x, hb_u64 n, float *residual) {
    if constexpr (SUMS)
      if (residual)
        for (hb_u64 i = (hb_u64)blockIdx.x * HB_THREADS + threadIdx.x; i < n; i += (hb_u64)gridDim.x * HB_THREADS) {
          hb_byte *kept = (hb_byte *)residual + 4 * i;
          const float value = hb_widen_raw<T>(hb_load_raw<SIZE>((const hb_byte *)x + SIZE * i));
          hb_store_value<HB_F32>(kept, hb_add(value, hb_load_value<HB_F32>(kept)));
        }
  }
  static HB_FN void select(const void *x, hb_u64 n, float *residual, hb_u64 k, hb_sparse_state *state) {
    const source from(x, residual);
    if constexpr (TOPK) hb_select_digit(state, n, k, [&](hb_u64 i) { return from.magnitude(i); });
  }

  // ---------------------------------------------------------------------------------------------- encode
  // first: index of the chunk's first value. ties: buffer of `marks.words` words.
  static HB_FN void mark_values(const source &from, hb_u64 first, const hb_marks &marks, hb_u32 *ties, hb_u32 cut) {
    const hb_u32 lane = threadIdx.x & 31u;
    constexpr hb_u32 AT_ONCE = 8;
    for (hb_u32 w = threadIdx.x / 32u * AT_ONCE; w < marks.words; w += HB_WARPS * AT_ONCE) {
      hb_u32 magnitude[AT_ONCE];
#pragma unroll
      for (hb_u32 j = 0; j < AT_ONCE; j++) {
        const hb_u32 i = 32u * (w + j) + lane;
        magnitude[j] = i < marks.m ? from.magnitude(first + i) : 0u;
      }
#pragma unroll
      for (hb_u32 j = 0; j < AT_ONCE; j++) {
        const bool is = 32u * (w + j) + lane < marks.m;
        const hb_u32 over = __ballot_sync(HB_EVERY, is && magnitude[j] > cut);
        const hb_u32 equal = __ballot_sync(HB_EVERY, is && magnitude[j] == cut);
        if (lane == 0 && w + j < marks.words) {
          marks.bits[w + j] = over;
          if (TOPK) ties[w + j] = equal;
        }
      }
    }
  }
  static HB_FN void mark_rows(const source &from, const message &msg, hb_u64 first, const hb_marks &marks) {
    for (hb_u32 w = threadIdx.x; w < marks.words; w += HB_THREADS) marks.bits[w] = 0;
    __syncthreads();
#pragma unroll 4
    for (hb_u64 e = threadIdx.x; e < marks.m * msg.width; e += HB_THREADS) {
      const hb_u32 row = row_of(msg, e), bit = 1u << (row & 31u);
      if (from.raw(first + e) && !(*(volatile hb_u32 *)&marks.bits[row / 32u] & bit)) atomicOr(&marks.bits[row / 32u], bit);
    }
  }
  // Marks the first ties, up to the number in `equal` that previous chunks have left.
  static HB_FN void mark_ties(volatile hb_u64 *told, hb_u64 chunk, const hb_marks &marks, const hb_u32 *ties,
                              hb_u64 equal) {
    __shared__ hb_u64 before;
    hb_u64 mine = 0, total;
    __syncthreads();
    for (hb_u32 w = threadIdx.x; w < marks.words; w += HB_THREADS) mine += (hb_u32)__popc(ties[w]);
    hb_block_below(mine, total);
    if (threadIdx.x < 32u) {
      const hb_u64 place = hb_place(told, chunk, total, threadIdx.x);
      if (threadIdx.x == 0) before = place;
    }
    __syncthreads();
    const hb_u64 budget = equal > before ? equal - before : 0;
    if (budget == 0) return;
    marks.count(ties);
    for (hb_u32 w = threadIdx.x; w < marks.words; w += HB_THREADS) {
      hb_u32 word = ties[w], number = (hb_u32)__popc(word);
      const hb_u64 room = budget > marks.ranks[w] ? budget - marks.ranks[w] : 0;
      for (; number > room; number--) word &= ~(0x80000000u >> __clz((int)word));
      marks.bits[w] |= word;
    }
    __syncthreads();
  }
  static HB_FN void encode(const void *x, hb_u64 n, hb_byte *wire, float *residual, hb_u64 param,
                           hb_sparse_state *state) {
    __shared__ hb_u32 bits[HB_MARK_WORDS], ranks[HB_MARK_WORDS], ties[TOPK ? HB_MARK_WORDS : 1];
    __shared__ hb_u64 start;
    const message msg(n, param);
    const source from(x, residual);
    const hb_cut cut = {TOPK ? (hb_u32)state->magnitude : (hb_u32)param, TOPK ? state->equal : 0};
    if (msg.chunks == 0 && blockIdx.x == 0) put_rest(msg, from, n, 0, wire, param, state);
    for (hb_u64 chunk = hb_draw(&state->head); chunk < msg.chunks; chunk = hb_draw(&state->head)) {
      const hb_u32 m = msg.records_of(chunk);
      const hb_u64 first = chunk * msg.per_chunk * msg.width;
      const hb_marks marks = {bits, ranks, m, (m + 31u) / 32u};
      if (ROWS) mark_rows(from, msg, first, marks);
      else mark_values(from, first, marks, ties, cut.magnitude);
      if (TOPK) mark_ties(told(state) + msg.chunks, chunk, marks, ties, cut.equal);
      hb_u32 sent = marks.count(bits);
      hb_section s = hb_section_of(m, sent, SIZE * msg.width), all = hb_section_of(m, m, SIZE * msg.width);
      if (!TOPK && sent < m && s.end >= all.end) {
        for (hb_u32 w = threadIdx.x; w < marks.words; w += HB_THREADS) bits[w] = marks.valid(w);
        sent = marks.count(bits);
        s = all;
      }

      if (threadIdx.x < 32u) {
        const hb_u64 place = hb_place(told(state), chunk, s.end, threadIdx.x);
        if (threadIdx.x == 0) start = place;
      }
      __syncthreads();
      hb_byte *to = wire + msg.head + start;
      if (threadIdx.x == 0) {
        if (chunk) hb_store_raw<8>(wire + 8 * (chunk - 1), start);
        hb_store_word(to, sent);
      }
      const hb_u64 records_end = 4 + (hb_u64)sent * SIZE * msg.width;
      if (threadIdx.x < s.index - records_end) to[records_end + threadIdx.x] = 0;
#pragma unroll 4
      for (hb_u64 e = threadIdx.x; e < m * msg.width; e += HB_THREADS) {
        const hb_u32 row = row_of(msg, e);
        const bool is = marks.has(row);
        if (!is && !residual) continue;
        const hb_u64 raw = from.raw(first + e);
        if (is) hb_store_raw<SIZE>(to + 4 + SIZE * (marks.rank(row) * msg.width + column_of(msg, e, row)), raw);
        from.keep(first + e, is || ROWS, raw);  // a row of zeros needs no record
      }
      hb_put_index(marks, sent, s, to);
      if (chunk + 1 == msg.chunks) put_rest(msg, from, n, msg.head + start + s.end, wire, param, state);
    }
  }
  // Writes the data after the chunks: values, or zeros up to the size of topk.
  static HB_FN void put_rest(const message &msg, const source &from, hb_u64 n, hb_u64 at, hb_byte *wire,
                             hb_u64 param, hb_sparse_state *state) {
    hb_u64 end = at + SIZE * msg.rest;
    for (hb_u64 i = threadIdx.x; i < msg.rest; i += HB_THREADS) {
      const hb_u64 place = n - msg.rest + i, raw = from.raw(place);
      hb_store_raw<SIZE>(wire + at + SIZE * i, raw);
      from.keep(place, true, raw);
    }
    if (TOPK) {
      end = hb_topk_bytes(n, param, SIZE);
      for (hb_u64 i = at + threadIdx.x; i < end; i += HB_THREADS) wire[i] = 0;
    }
    if (threadIdx.x == 0) state->head.bytes = end;
  }

  // ---------------------------------------------------------------------------------------------- decode
  template <int O, bool ADD>
  static HB_FN void decode(const hb_byte *wire, hb_u64 bytes, hb_u64 n, void *out, hb_u64 param,
                           hb_sparse_state *state) {
    __shared__ hb_u32 bits[HB_MARK_WORDS], ranks[HB_MARK_WORDS];
    const message msg(n, param);
    const hb_u64 body = bytes < msg.head ? 0 : bytes - msg.head, rest = SIZE * msg.rest;
    if (msg.chunks == 0 && blockIdx.x == 0) {
      if (bytes != rest) hb_fault(&state->head);
      else get_rest<O, ADD>(msg, wire, n, out);
    }
    for (hb_u64 chunk = blockIdx.x; chunk < msg.chunks && bytes >= msg.head; chunk += gridDim.x) {
      const hb_u32 m = msg.records_of(chunk);
      const hb_u64 first = chunk * msg.per_chunk * msg.width, start = chunk ? hb_load_raw<8>(wire + 8 * (chunk - 1)) : 0;
      const hb_byte *from = wire + msg.head + start;
      const hb_marks marks = {bits, ranks, m, (m + 31u) / 32u};
      hb_u32 sent = ~0u;
      if (start <= body && body - start >= 4) sent = hb_load_word(from);
      const hb_section s = hb_section_of(m, sent <= m ? sent : 0, SIZE * msg.width);
      bool good = sent <= m && body - start >= s.end;
      if (good) {
        const hb_u64 end = start + s.end;
        good = chunk + 1 < msg.chunks ? hb_load_raw<8>(wire + 8 * chunk) == end : TOPK || body - end == rest;
      }
      if (good) good = hb_get_index(from, sent, s, marks);  // the same in all threads
      if (!good) {
        hb_fault(&state->head);
        continue;
      }
      if (TOPK && threadIdx.x == 0) atomicAdd(&state->sent, (hb_u64)sent);
#pragma unroll 4
      for (hb_u64 e = threadIdx.x; e < m * msg.width; e += HB_THREADS) {
        hb_byte *to = (hb_byte *)out + hb_size_of(O) * (first + e);
        const hb_u32 row = row_of(msg, e);
        if (marks.has(row)) {
          const hb_u64 at = marks.rank(row) * msg.width + column_of(msg, e, row);
          hb_put_raw<T, O, ADD>(to, hb_load_raw<SIZE>(from + 4 + SIZE * at));
        } else if (!ADD) {
          hb_store_raw<hb_size_of(O)>(to, 0);
        }
      }
      if (chunk + 1 == msg.chunks) get_rest<O, ADD>(msg, wire + bytes - rest, n, out);
      __syncthreads();
    }
    if (threadIdx.x == 0) {
      if (bytes < msg.head) hb_fault(&state->head);
      state->head.bytes = bytes;
    }
    if (TOPK && hb_last_block(&state->arrived[3]) && threadIdx.x == 0)
      if (*(volatile hb_u64 *)&state->sent != param || bytes != hb_topk_bytes(n, param, SIZE)) hb_fault(&state->head);
  }
  template <int O, bool ADD> static HB_FN void get_rest(const message &msg, const hb_byte *from, hb_u64 n, void *out) {
    for (hb_u64 i = threadIdx.x; i < msg.rest; i += HB_THREADS)
      hb_put_raw<T, O, ADD>((hb_byte *)out + hb_size_of(O) * (n - msg.rest + i), hb_load_raw<SIZE>(from + SIZE * i));
  }
};
