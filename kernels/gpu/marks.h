// The sent records of a chunk of a sparse codec, and their index on the wire (see kernels/hb_sparse.h for its forms).
#pragma once
#include "../hb_sparse.h"
#include "elements.h"

#define HB_MARK_WORDS (HB_SPARSE_CHUNK / 32)
#define HB_GROUPED_WORDS 256  // enough bits for the grouped form whenever it is the shortest form

// The sent records of a chunk in shared memory: one bit per record, and the number of sent records before each word.
struct hb_marks {
  hb_u32 *bits, *ranks;
  hb_u32 m, words;
  HB_FN bool has(hb_u32 place) const { return bits[place / 32u] >> (place & 31u) & 1u; }
  HB_FN hb_u32 rank(hb_u32 place) const {
    return ranks[place / 32u] + (hb_u32)__popc(bits[place / 32u] & ((1u << (place & 31u)) - 1u));
  }
  HB_FN hb_u32 valid(hb_u32 word) const { return 32u * word + 32u <= m ? ~0u : (1u << (m - 32u * word)) - 1u; }
  // Counts the records in `of` before each word; returns their total number.
  HB_FN hb_u32 count(const hb_u32 *of) const {
    const hb_u32 each = (words + HB_THREADS - 1u) / HB_THREADS, first = each * threadIdx.x;
    const hb_u32 end = first + each < words ? first + each : words;
    hb_u64 mine = 0, total;
    __syncthreads();
    for (hb_u32 w = first; w < end; w++) mine += (hb_u32)__popc(of[w]);
    hb_u32 before = (hb_u32)hb_block_below(mine, total);
    for (hb_u32 w = first; w < end; w++) {
      ranks[w] = before;
      before += (hb_u32)__popc(of[w]);
    }
    __syncthreads();
    return (hb_u32)total;
  }
};

// Positions of the sent records, stored in the form of the section.
HB_FN void hb_put_index(const hb_marks &marks, hb_u32 sent, const hb_section &s, hb_byte *to) {
  __shared__ hb_u32 grouped[HB_GROUPED_WORDS];
  const hb_u32 words = (hb_u32)(s.low - s.index) / 4u;
  if (s.form == HB_FORM_ALL) return;
  if (s.form == HB_FORM_BITMAP) {
    for (hb_u32 w = threadIdx.x; w < words; w += HB_THREADS) hb_store_word(to + s.index + 4u * w, marks.bits[w]);
    return;
  }
  const bool groups = s.form == HB_FORM_GROUPED;
  __syncthreads();
  for (hb_u32 w = threadIdx.x; groups && w < words; w += HB_THREADS) grouped[w] = 0;
  __syncthreads();
  for (hb_u32 place = threadIdx.x; place < marks.m; place += HB_THREADS) {
    if (!marks.has(place)) continue;
    const hb_u32 rank = marks.rank(place), bit = hb_grouped_bit(rank, place);
    if (groups) {
      atomicOr(&grouped[bit / 32u], 1u << (bit & 31u));
      to[s.low + rank] = (hb_byte)place;
    } else {
      hb_store_half(to + s.index + 2u * rank, place);
    }
  }
  __syncthreads();
  for (hb_u32 w = threadIdx.x; groups && w < words; w += HB_THREADS) hb_store_word(to + s.index + 4u * w, grouped[w]);
  const hb_u64 end = groups ? s.low + sent : s.index + 2u * sent;
  if (threadIdx.x < s.end - end) to[end + threadIdx.x] = 0;
}

// Marks the records of a chunk. Returns false in all threads if the index of the chunk is invalid.
HB_FN bool hb_get_index(const hb_byte *from, hb_u32 sent, const hb_section &s, const hb_marks &marks) {
  __shared__ hb_u32 grouped[HB_GROUPED_WORDS];
  __shared__ hb_u32 faults;
  const hb_u32 words = (hb_u32)(s.low - s.index) / 4u;
  __syncthreads();
  if (threadIdx.x == 0) faults = 0;
  for (hb_u32 w = threadIdx.x; w < marks.words; w += HB_THREADS) {
    hb_u32 word = s.form == HB_FORM_ALL ? marks.valid(w) : s.form == HB_FORM_BITMAP ? hb_load_word(from + s.index + 4u * w) : 0u;
    marks.bits[w] = word;
  }
  __syncthreads();
  hb_u32 bad = 0;
  if (s.form == HB_FORM_BITMAP && threadIdx.x == 0) bad |= marks.bits[marks.words - 1u] & ~marks.valid(marks.words - 1u);
  if (s.form == HB_FORM_PLACES)
    for (hb_u32 j = threadIdx.x; j < sent; j += HB_THREADS) {
      const hb_u32 place = hb_load_half(from + s.index + 2u * j);
      bad |= place >= marks.m || (j && hb_load_half(from + s.index + 2u * j - 2u) >= place);
      if (place < marks.m) atomicOr(&marks.bits[place / 32u], 1u << (place & 31u));
    }
  if (s.form == HB_FORM_GROUPED) {
    const hb_marks bits = {grouped, marks.ranks, 32u * words, words};
    for (hb_u32 w = threadIdx.x; w < words; w += HB_THREADS) grouped[w] = hb_load_word(from + s.index + 4u * w);
    __syncthreads();
    bad |= bits.count(grouped) != sent;
    for (hb_u32 bit = threadIdx.x; bit < 32u * words; bit += HB_THREADS) {
      if (!bits.has(bit)) continue;
      const hb_u32 rank = bits.rank(bit);
      if (rank >= sent) break;
      const hb_u32 low = from[s.low + rank], place = hb_grouped_place(rank, bit, low);
      // Within a group, earlier records have lower positions.
      bad |= place >= marks.m || (bit && bits.has(bit - 1u) && from[s.low + rank - 1u] >= low);
      if (place < marks.m) atomicOr(&marks.bits[place / 32u], 1u << (place & 31u));
    }
  }
  if (bad) atomicOr(&faults, 1u);
  return marks.count(marks.bits) == sent && !faults;
}
