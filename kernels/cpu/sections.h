// Conversion between records and sparse messages (see hb_sparse.h for the format). A class that chooses the records to
// send has this method:
//   mark(first, m, marks)             marks which of the m records starting at `first` are sent; called for each chunk
//                                     in order
// Classes that read the records to send, and write the decoded records, have these methods:
//   bytes()                           size of a record on the wire
//   send(first, places, count, to)    writes records of the chunk that begins at `first` to the wire, up to TILE at a
//                                     time
//   take(first, places, count, from)  reads records from the wire, up to TILE at a time
//   add, clear(first, m)              unless `add` is set, `clear` first sets m records to zero
#pragma once
#include <string.h>

#include "values.h"

namespace {
#include "../hb_sparse.h"

HB_FN hb_u32 word_at(const byte *p) {
  hb_u32 word;
  memcpy(&word, p, 4);
  return word;
}
// the lowest `count` bits, at most 32
HB_FN hb_u32 lowest(uint64_t count) { return count < 32 ? (1u << count) - 1u : ~0u; }

// Bitmap of the sent records in a chunk.
struct marks {
  hb_u32 words[HB_SPARSE_CHUNK / 32], count;
  void all(uint64_t m) {
    for (uint64_t i = 0; i < m; i += 32) words[i / 32] = lowest(m - i);
    count = (hb_u32)m;
  }
  void put(uint64_t first, hb_u32 word) {  // of 32 records
    words[first / 32] = word;
    count += (hb_u32)__builtin_popcount(word);
  }
};

// Positions of the set bits in some words, in order, for up to TILE / 32 words at a time.
struct set_bits {
  const byte *words;
  hb_u32 count, at = 0;
  hb_u32 next(hb_u32 *places) {  // room for TILE and a vector
    hb_u32 n = 0;
    for (; at < count && n + 32 <= TILE; at++) {
      const hb_u32 word = word_at(words + 4 * at);
      if (!word) continue;
      for (hb_u32 i = 0; i < 32; i += HB_LANES) {
        const hb_v place = lanes::index() + (32 * at + i);
        n += (hb_u32)__builtin_popcount(lanes::pack(lanes::mask(word >> i), place, places + n));
      }
    }
    return n;
  }
};
struct place_list {
  alignas(64) hb_u32 at[TILE + HB_LANES];
};

// Adds further records to the index, starting with number `rank`. The index must be initialized with zeros.
HB_FN void put_index(const hb_section &s, byte *to, hb_u32 rank, const hb_u32 *places, hb_u32 count) {
  if (s.form == HB_FORM_PLACES) {
    hb_u16 narrow[TILE];
    for (hb_u32 i = 0; i < count; i++) narrow[i] = (hb_u16)places[i];
    memcpy(to + s.index + 2 * rank, narrow, 2 * count);
  } else if (s.form == HB_FORM_GROUPED) {
    for (hb_u32 i = 0; i < count; i++) to[s.low + rank + i] = (byte)places[i];
    for (hb_u32 i = 0; i < count;) {
      const hb_u32 at = hb_grouped_bit(rank + i, places[i]) / 32;
      hb_u32 word = word_at(to + s.index + 4 * at);
      for (hb_u32 bit; i < count && (bit = hb_grouped_bit(rank + i, places[i])) / 32 == at; i++) word |= 1u << bit % 32;
      memcpy(to + s.index + 4 * at, &word, 4);
    }
  }
}
// Returns the number of bytes written. whole: whether all records may be sent if this takes no more bytes.
template <class CHOICE, class RECORDS>
uint64_t put_chunk(CHOICE &choice, const RECORDS &records, uint64_t first, hb_u32 m, bool whole, byte *to) {
  marks sent;
  sent.count = 0;
  choice.mark(first, m, sent);
  hb_section s = hb_section_of(m, sent.count, records.bytes()), all = hb_section_of(m, m, records.bytes());
  if (whole && s.end >= all.end) sent.all(m), s = all;

  memset(to + s.index - 4, 0, s.end - s.index + 4);
  memcpy(to, &sent.count, 4);
  if (s.form == HB_FORM_BITMAP) memcpy(to + s.index, sent.words, s.end - s.index);
  set_bits bits = {(const byte *)sent.words, (m + 31) / 32};
  place_list places;
  for (hb_u32 rank = 0, count; rank < sent.count; rank += count) {
    count = bits.next(places.at);
    records.send(first, places.at, count, to + 4 + records.bytes() * rank);
    put_index(s, to, rank, places.at, count);
  }
  return s.end;
}

// Reads the positions of the `left` remaining records, starting with record number `rank`. Returns the number of
// positions read.
HB_FN hb_u32 get_index(const hb_section &s, const byte *from, set_bits &bits, hb_u32 rank, hb_u32 left,
                       hb_u32 *places) {
  if (s.form == HB_FORM_BITMAP || s.form == HB_FORM_GROUPED) {
    const hb_u32 count = bits.next(places);
    if (s.form == HB_FORM_GROUPED && count <= left)
      for (hb_u32 i = 0; i < count; i++) places[i] = hb_grouped_place(rank + i, places[i], from[s.low + rank + i]);
    return count;
  }
  const hb_u32 count = left < TILE ? left : (hb_u32)TILE;
  hb_u16 wide[TILE];
  if (s.form == HB_FORM_PLACES) memcpy(wide, from + s.index + 2 * rank, 2 * count);
  for (hb_u32 i = 0; i < count; i++) places[i] = s.form == HB_FORM_ALL ? rank + i : wide[i];
  return count;
}
// Returns the number of bytes read, or 0 if the input is not a chunk of m records. sent: number of records sent.
template <class RECORDS>
uint64_t get_chunk(const RECORDS &records, uint64_t first, hb_u32 m, const byte *from, uint64_t bytes, hb_u32 &sent) {
  if (bytes < 4) return 0;
  sent = word_at(from);
  if (sent > m) return 0;
  const hb_section s = hb_section_of(m, sent, records.bytes());
  if (bytes < s.end) return 0;

  if (sent < m && !records.add) records.clear(first, m);
  set_bits bits = {from + s.index, (hb_u32)(s.low - s.index) / 4};
  place_list places;
  hb_u32 next = 0;  // smallest possible position of the next record
  for (hb_u32 rank = 0, count; rank < sent; rank += count) {
    count = get_index(s, from, bits, rank, sent - rank, places.at);
    if (count == 0 || count > sent - rank) return 0;
    bool good = places.at[0] >= next && places.at[count - 1] < m;
    for (hb_u32 i = 1; i < count; i++) good &= places.at[i] > places.at[i - 1];
    if (!good) return 0;
    next = places.at[count - 1] + 1;
    records.take(first, places.at, count, from + 4 + records.bytes() * rank);
  }
  return bits.next(places.at) ? 0 : s.end;
}

HB_FN uint64_t starts_bytes(uint64_t n, uint64_t chunk) { return n ? 8 * ((n - 1) / chunk) : 0; }

template <class CHOICE, class RECORDS>
uint64_t put_chunks(CHOICE choice, const RECORDS &records, uint64_t n, uint64_t chunk, bool whole, byte *wire) {
  byte *starts = wire, *body = wire + starts_bytes(n, chunk);
  uint64_t at = 0;
  for (uint64_t first = 0; first < n; first += chunk) {
    if (first) memcpy(starts, &at, 8), starts += 8;
    at += put_chunk(choice, records, first, (hb_u32)(n - first < chunk ? n - first : chunk), whole, body + at);
  }
  return starts_bytes(n, chunk) + at;
}
// Returns HB_MALFORMED, or the number of bytes read.
template <class RECORDS>
uint64_t get_chunks(const RECORDS &records, uint64_t n, uint64_t chunk, const byte *wire, uint64_t bytes,
                    uint64_t &sent) {
  const uint64_t head = starts_bytes(n, chunk);
  if (bytes < head) return HB_MALFORMED;
  const byte *starts = wire, *body = wire + head;
  uint64_t at = 0;
  sent = 0;
  for (uint64_t first = 0; first < n; first += chunk) {
    uint64_t start = at;
    if (first) memcpy(&start, starts, 8), starts += 8;
    if (start != at) return HB_MALFORMED;
    hb_u32 m = (hb_u32)(n - first < chunk ? n - first : chunk), count;
    const uint64_t used = get_chunk(records, first, m, body + at, bytes - head - at, count);
    if (!used) return HB_MALFORMED;
    at += used, sent += count;
  }
  return head + at;
}
// Maximum size of the chunks: all records, plus headers.
HB_FN uint64_t chunks_room(uint64_t n, uint64_t chunk, uint64_t record_bytes) {
  if (!n) return 0;
  const uint64_t whole = (n - 1) / chunk, last = n - whole * chunk;
  return starts_bytes(n, chunk) + whole * (4 + hb_pad4(chunk * record_bytes)) + 4 + hb_pad4(last * record_bytes);
}
}  // namespace
