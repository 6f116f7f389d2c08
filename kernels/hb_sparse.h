// Sparse messages: selected records and their positions. A record is a value, or a row of values. Records are divided
// into chunks that can be decoded separately. A chunk has 65536 values, or one longer row.
//   wire: the start of each chunk except the first, as 64-bit words that count bytes after these words; the chunks; the
//   values after the last whole row, unchanged
//   chunk of m records: the number k of sent records, 32 bits; the sent records in order; zeros up to a multiple of 4
//   bytes; the index. The index has one of four forms, which is determined by m and k:
//     all      k = m: empty
//     bitmap   m bits, in words of 32 bits
//     grouped  k + m / 256 (rounded up) bits, in words of 32 bits: the j-th sent record, at position p, sets bit
//              j + p / 256; then p modulo 256 of each sent record as a byte; zeros up to a multiple of 4 bytes
//     places   16 bits for each position; zeros up to a multiple of 4 bytes
// The grouped form is the code of Elias (1974) and Fano (1971) with a low part of one byte. The grouped form needs 9
// bits per sent record and 1/256 bit per record of the chunk. At a density of 1/100, a position contains 8.1 bits of
// information.
#pragma once
#include "hb_float.h"

typedef unsigned long long hb_count;

#define HB_SPARSE_CHUNK 65536u
#define HB_SPARSE_GROUP 256u

enum hb_form { HB_FORM_ALL, HB_FORM_BITMAP, HB_FORM_GROUPED, HB_FORM_PLACES };

HB_FN hb_count hb_pad4(hb_count bytes) { return (bytes + 3) & ~(hb_count)3; }

struct hb_section {
  hb_form form;
  hb_count index, low, end;  // start of the index, of its bytes after the bits, and of the next chunk
};
HB_FN hb_section hb_section_of(hb_u32 m, hb_u32 k, hb_count record_bytes) {
  const hb_count at = 4 + hb_pad4(k * record_bytes);
  const hb_u32 bitmap = (m + 31) / 32 * 4, places = (2 * k + 3) / 4 * 4;
  const hb_u32 high = (k + (m + HB_SPARSE_GROUP - 1) / HB_SPARSE_GROUP + 31) / 32 * 4, grouped = high + (k + 3) / 4 * 4;
  if (k == m) return {HB_FORM_ALL, at, at, at};
  if (bitmap <= places && bitmap <= grouped) return {HB_FORM_BITMAP, at, at + bitmap, at + bitmap};
  if (grouped < places) return {HB_FORM_GROUPED, at, at + high, at + grouped};
  return {HB_FORM_PLACES, at, at, at + places};
}

// Conversion between the position of the sent record number `rank` and its bit in the grouped form. If the bits are not
// a valid index, a position may be too large.
HB_FN hb_u32 hb_grouped_bit(hb_u32 rank, hb_u32 place) { return rank + place / HB_SPARSE_GROUP; }
HB_FN hb_u32 hb_grouped_place(hb_u32 rank, hb_u32 bit, hb_u32 low) { return (bit - rank) * HB_SPARSE_GROUP + low; }

HB_FN hb_count hb_chunk_records(hb_count width) { return width < HB_SPARSE_CHUNK ? HB_SPARSE_CHUNK / width : 1; }

// Maximum bytes of a message with k of n values at any positions. Using a single form for all chunks gives an upper
// bound for choosing the best form for each chunk. Rounding and the number k add less than 16 bytes per chunk.
HB_FN hb_count hb_topk_bytes(hb_count n, hb_count k, hb_count value_bytes) {
  if (n == 0) return 0;
  const hb_count chunks = (n + HB_SPARSE_CHUNK - 1) / HB_SPARSE_CHUNK;
  const hb_count bitmap = (n + 31) / 32 * 4, places = 2 * k;
  const hb_count grouped = k + (k + (n + HB_SPARSE_GROUP - 1) / HB_SPARSE_GROUP + 7) / 8;
  hb_count index = bitmap < grouped ? bitmap : grouped;
  if (places < index) index = places;
  return 8 * (chunks - 1) + 16 * chunks + hb_pad4(k * value_bytes) + hb_pad4(index);
}

// Radix selection of the k largest magnitudes: the 31 bits of a magnitude minus one are divided into three digits, the
// highest first. The occurrences of each digit are counted, and values with a higher digit than the k-th largest are
// sent. The third digit determines the magnitude of the k-th largest value, and how many values of this magnitude are
// sent. Zeros are not counted, because there may be many. If k exceeds the number of other values, the first zeros are
// sent. NaN is larger than infinity in this order.
#define HB_DIGITS 3
#define HB_DIGIT_BINS 2048
HB_FN hb_u32 hb_digit_shift(int digit) { return 20u - 10u * (hb_u32)digit; }
HB_FN hb_u32 hb_digit_bins(int digit) { return digit ? 1024u : 2048u; }

struct hb_cut {
  hb_u32 magnitude;  // larger magnitudes are sent
  hb_count equal;    // number of values with this magnitude that are sent: the first ones
};
