// Sparse messages: values chosen by magnitude (topk, threshold) and rows that are not zero (rowsparse).
#include <stdlib.h>
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

struct scratch {
  void *memory;
  explicit scratch(uint64_t bytes) : memory(malloc(bytes + 1)) {
    if (!memory) abort();
  }
  scratch(const scratch &) = delete;
  ~scratch() { free(memory); }
};

// ------------------------------------------------------------------------------------------------ what is sent
struct source {
  uint32_t type;
  const byte *x;
  // calls f(place, values there as float32, how many) for up to TILE values of first..end-1 at a time
  template <class F> void tiles(uint64_t first, uint64_t end, F f) const {
    alignas(64) float buffer[TILE];
    for (uint64_t at = first; at < end; at += TILE) {
      const uint64_t n = end - at < TILE ? end - at : TILE;
      const byte *ahead = x + size_of(type) * (at + 2 * TILE);  // more than the processor looks ahead by itself
      for (uint64_t line = 0; line < size_of(type) * TILE; line += 64) __builtin_prefetch(ahead + line);
      f(at, load_values(type, x + size_of(type) * at, n, buffer), n);
    }
  }
  // calls f(place, 32 values there, as bits of float32, which of them count)
  template <class F> void words(uint64_t first, uint64_t end, F f) const {
    tiles(first, end, [&](uint64_t at, const float *v, uint64_t n) {
      uint64_t i = 0;
      for (; i + 32 <= n; i += 32) f(at + i, (const hb_u32 *)v + i, ~0u);
      if (i == n) return;
      hb_u32 last[32] = {};
      memcpy(last, v + i, 4 * (n - i));
      f(at + i, last, lowest(n - i));
    });
  }
};
// which of 32 values pass a test, a bit each
template <class TEST> HB_FN hb_u32 which(const hb_u32 *v, TEST test) {
  hb_u32 word = 0;
  for (int i = 0; i < 32; i += HB_LANES) word |= lanes::bits(test(lanes::load(v + i) & HB_MAGNITUDE)) << i;
  return word;
}

// Places of a chunk, a bit each.
struct marks {
  hb_u32 words[HB_SPARSE_CHUNK / 32], count;
  void all(uint64_t m) {
    for (uint64_t i = 0; i < m; i += 32) words[i / 32] = lowest(m - i);
    count = (hb_u32)m;
  }
};

// Copies those of n values whose magnitude is not below `low` nor more than `span` above it, as magnitudes. `to` has
// room for n and a vector more, and may be `from`.
HB_FN uint64_t narrow(const hb_u32 *from, uint64_t n, hb_u32 low, hb_u32 span, hb_u32 *to) {
  hb_u32 *next = to;
  uint64_t i = 0;
  for (; i + HB_LANES <= n; i += HB_LANES) {
    hb_v x = lanes::load(from + i) & HB_MAGNITUDE;
    next += __builtin_popcount(lanes::pack(x - low <= span, x, next));
  }
  for (; i < n; i++) {
    hb_u32 x = word_at((const byte *)(from + i)) & HB_MAGNITUDE;
    if (x - low <= span) *next++ = x;
  }
  return (uint64_t)(next - to);
}
// Counts what one digit of magnitudes from `base` on is. A floor rises over what the k largest cannot reach, so that
// few values are counted.
struct digit {
  hb_u32 base, shift, width;
  uint64_t k, counted = 0, bin[HB_DIGIT_BINS] = {};
  hb_u32 floor = 0;
  digit(int number, hb_u32 from, uint64_t wanted)
      : base(from), shift(hb_digit_shift(number)), width(hb_digit_bins(number) << shift), k(wanted) {}
  uint64_t narrow_to_floor(const hb_u32 *v, uint64_t n, hb_u32 *to) const {
    return narrow(v, n, base + (floor << shift), width - (floor << shift) - 1, to);
  }
  // of up to TILE values those that may be the last of the k are left in `to`; returns how many they are
  uint64_t count(const hb_u32 *v, uint64_t n, hb_u32 *to) {
    const uint64_t left = narrow_to_floor(v, n, to);
    for (uint64_t i = 0; i < left; i++) bin[(to[i] - base) >> shift]++;
    counted += left;
    if (counted)
      while (counted - bin[floor] >= k) counted -= bin[floor++];
    return left;
  }
};
// Values that may be the last of the k largest. As the floor rises over most of them, the memory is far less than all
// values would take: it grows where half of it is not enough.
struct candidates {
  hb_u32 *values = nullptr;
  uint64_t n = 0, room = 0;
  candidates() = default;
  candidates(const candidates &) = delete;
  ~candidates() { free(values); }
  void add(digit &d, const hb_u32 *v, uint64_t count) {
    if (n + TILE + HB_LANES > room) {
      if (n) n = d.narrow_to_floor(values, n, values);
      if (2 * (n + TILE) > room) {
        room = 2 * room + 16 * TILE;
        values = (hb_u32 *)realloc(values, 4 * room);
        if (!values) abort();
      }
    }
    n += d.count(v, count, values + n);
  }
  void narrow_down(digit &d) {
    const uint64_t all = n;
    n = 0;
    for (uint64_t at = 0; at < all; at += TILE)
      n += d.count(values + at, all - at < TILE ? all - at : TILE, values + n);
  }
};
// The least magnitude that is sent, found digit by digit.
hb_cut select(const source &s, uint64_t n, uint64_t k) {
  if (!k) return {HB_MAGNITUDE, 0};
  candidates left;
  hb_u32 base = 0;
  for (int number = 0; number < HB_DIGITS; number++) {
    digit d(number, base, k);
    if (number == 0)
      s.tiles(0, n, [&](uint64_t, const float *v, uint64_t count) { left.add(d, (const hb_u32 *)v, count); });
    else
      left.narrow_down(d);
    base += d.floor << d.shift;
    k -= d.counted - d.bin[d.floor];
    if (base && k == d.bin[d.floor]) return {base - 1, 0};
  }
  return {base, k};
}

struct larger {  // than a magnitude, and the first of those equal to it
  source s;
  hb_cut cut;
  void mark(uint64_t first, uint64_t m, marks &to) {
    to.count = 0;
    s.words(first, first + m, [&](uint64_t at, const hb_u32 *v, hb_u32 valid) {
      hb_u32 word = which(v, [&](hb_v x) { return x > cut.magnitude; }) & valid;
      if (cut.equal) {
        hb_u32 equal = which(v, [&](hb_v x) { return x == cut.magnitude; }) & valid;
        for (; equal && cut.equal; equal &= equal - 1, cut.equal--) word |= equal & (0u - equal);
      }
      to.words[(at - first) / 32] = word;
      to.count += (hb_u32)__builtin_popcount(word);
    });
  }
};
struct not_zero {  // rows of so many bytes
  const byte *x;
  uint64_t bytes;
  bool any(const byte *row) const {
    uint64_t i = 0;
    for (; i + 4 * HB_LANES <= bytes; i += 4 * HB_LANES)
      if (lanes::any(lanes::load((const hb_u32 *)(row + i)) != 0u)) return true;
    for (; i < bytes; i++)
      if (row[i]) return true;
    return false;
  }
  void mark(uint64_t first, uint64_t m, marks &to) {
    to.count = 0;
    for (uint64_t i = 0; i < m; i += 32) {
      hb_u32 word = 0;
      for (uint64_t j = i; j < m && j < i + 32; j++) word |= (hb_u32)any(x + bytes * (first + j)) << (j - i);
      to.words[i / 32] = word;
      to.count += (hb_u32)__builtin_popcount(word);
    }
  }
};

// ------------------------------------------------------------------------------------------------ records
// N bytes from or to each of some places
template <int N> HB_FN void gather(const byte *from, const hb_u32 *places, uint64_t count, byte *to) {
  for (uint64_t i = 0; i < count; i++) memcpy(to + N * i, from + N * (uint64_t)places[i], N);
}
template <int N> HB_FN void scatter(const byte *from, const hb_u32 *places, uint64_t count, byte *to) {
  for (uint64_t i = 0; i < count; i++) memcpy(to + N * (uint64_t)places[i], from + N * i, N);
}
HB_FN void gather_values(uint32_t type, const byte *from, const hb_u32 *places, uint64_t count, byte *to) {
  type == HB_F32 ? gather<4>(from, places, count, to) : gather<2>(from, places, count, to);
}
HB_FN void scatter_values(uint32_t type, const byte *from, const hb_u32 *places, uint64_t count, byte *to) {
  type == HB_F32 ? scatter<4>(from, places, count, to) : scatter<2>(from, places, count, to);
}

// Up to TILE values of a chunk that begins at `first`, to and from the wire, and back to their places.
struct single_values {
  uint32_t type;
  const byte *x;    // in this type; null where
  float *residual;  // holds what is wanted, and keeps what the wire lacks of it
  uint64_t bytes() const { return size_of(type); }
  void send(uint64_t first, const hb_u32 *places, uint64_t count, byte *to) const {
    if (x) return gather_values(type, x + bytes() * first, places, count, to);
    alignas(64) float wanted[TILE], sent[TILE];
    byte *kept = (byte *)(residual + first);
    gather<4>(kept, places, count, (byte *)wanted);
    store_values(type, to, wanted, count);
    keep_residual(wanted, load_values(type, to, count, sent), count, wanted);
    scatter<4>((const byte *)wanted, places, count, kept);
  }
};
struct value_places {
  uint32_t type, out_type, add;
  byte *out;
  uint64_t bytes() const { return size_of(type); }
  void clear(uint64_t first, uint64_t m) const { memset(out + size_of(out_type) * first, 0, size_of(out_type) * m); }
  void take(uint64_t first, const hb_u32 *places, uint64_t count, const byte *from) const {
    byte *to = out + size_of(out_type) * first;
    if (type == out_type && !add) return scatter_values(type, from, places, count, to);
    alignas(64) float values[TILE], sums[TILE];
    if (add) gather_values(out_type, to, places, count, (byte *)sums);
    put_values(out_type, (byte *)sums, load_values(type, from, count, values), count, add);
    scatter_values(out_type, (const byte *)sums, places, count, to);
  }
};
struct rows {
  const byte *x;
  uint64_t row_bytes;
  uint64_t bytes() const { return row_bytes; }
  void send(uint64_t first, const hb_u32 *places, uint64_t count, byte *to) const {
    for (uint64_t i = 0; i < count; i++) memcpy(to + row_bytes * i, x + row_bytes * (first + places[i]), row_bytes);
  }
};
struct row_places {
  uint32_t type, out_type, add;
  byte *out;
  uint64_t width;
  uint64_t bytes() const { return size_of(type) * width; }
  void clear(uint64_t first, uint64_t m) const {
    memset(out + size_of(out_type) * width * first, 0, size_of(out_type) * width * m);
  }
  void take(uint64_t first, const hb_u32 *places, uint64_t count, const byte *from) const {
    for (uint64_t i = 0; i < count; i++)
      put(from + bytes() * i, out + size_of(out_type) * width * (first + places[i]), width);
  }
  void put(const byte *from, byte *to, uint64_t n) const {
    if (type == out_type && !add) {
      memcpy(to, from, size_of(type) * n);
    } else if (type == HB_F64) {
      typedef double double_at_any_place __attribute__((aligned(1), may_alias));
      for (uint64_t i = 0; i < n; i++) ((double_at_any_place *)to)[i] += ((const double_at_any_place *)from)[i];
    } else {
      alignas(64) float values[TILE];
      for (uint64_t i = 0; i < n; i += TILE) {
        const uint64_t count = n - i < TILE ? n - i : TILE;
        const float *v = load_values(type, from + size_of(type) * i, count, values);
        put_values(out_type, to + size_of(out_type) * i, v, count, add);
      }
    }
  }
};

// ------------------------------------------------------------------------------------------------ chunks
// Places of the bits set in some words, in order, those of up to TILE / 32 words at a time.
struct set_bits {
  const byte *words;
  hb_u32 count, at = 0;
  hb_u32 next(hb_u32 *places) {  // room for TILE and a vector
    hb_u32 n = 0;
    for (; at < count && n + 32 <= TILE; at++) {
      const hb_u32 word = word_at(words + 4 * at);
      if (!word) continue;
      for (hb_u32 i = 0; i < 32; i += HB_LANES)
        n += (hb_u32)__builtin_popcount(lanes::pack(lanes::mask(word >> i), lanes::index() + (32 * at + i), places + n));
    }
    return n;
  }
};
struct place_list {
  alignas(64) hb_u32 at[TILE + HB_LANES];
};

// The index of some records more, of which the first is number `rank`; the index is zeros before.
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
// Returns the bytes written. free: all may be sent where that is no longer.
template <class CHOICE, class RECORDS>
uint64_t put_chunk(CHOICE &choice, const RECORDS &records, uint64_t first, hb_u32 m, bool free, byte *to) {
  marks sent;
  choice.mark(first, m, sent);
  hb_section s = hb_section_of(m, sent.count, records.bytes()), all = hb_section_of(m, m, records.bytes());
  if (free && s.end >= all.end) sent.all(m), s = all;

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

// The places of records from number `rank` on, of which there are `left`; how many are given is returned.
HB_FN hb_u32 get_index(const hb_section &s, const byte *from, set_bits &bits, hb_u32 rank, hb_u32 left, hb_u32 *places) {
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
// Returns the bytes read, or 0 if they are no chunk of m records. sent: how many it holds.
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
  hb_u32 next = 0;  // the least place that the next record may have
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

// ------------------------------------------------------------------------------------------------ messages
HB_FN uint64_t starts_bytes(uint64_t n, uint64_t chunk) { return n ? 8 * ((n - 1) / chunk) : 0; }

template <class CHOICE, class RECORDS>
uint64_t put_chunks(CHOICE choice, const RECORDS &records, uint64_t n, uint64_t chunk, bool free, byte *wire) {
  byte *starts = wire, *body = wire + starts_bytes(n, chunk);
  uint64_t at = 0;
  for (uint64_t first = 0; first < n; first += chunk) {
    if (first) memcpy(starts, &at, 8), starts += 8;
    at += put_chunk(choice, records, first, (hb_u32)(n - first < chunk ? n - first : chunk), free, body + at);
  }
  return starts_bytes(n, chunk) + at;
}
// HB_MALFORMED, or the bytes read
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
// the most that chunks take: all records, and the heads
HB_FN uint64_t chunks_room(uint64_t n, uint64_t chunk, uint64_t record_bytes) {
  if (!n) return 0;
  const uint64_t whole = (n - 1) / chunk, last = n - whole * chunk;
  return starts_bytes(n, chunk) + whole * (4 + hb_pad4(chunk * record_bytes)) + 4 + hb_pad4(last * record_bytes);
}

// residual: the values and what it held
void fold(uint32_t type, const void *x, uint64_t n, float *residual) {
  alignas(64) float values[TILE];
  for (uint64_t at = 0; at < n; at += TILE) {
    const uint64_t count = n - at < TILE ? n - at : TILE;
    add_residual(load_values(type, (const byte *)x + size_of(type) * at, count, values), residual + at, count, values);
    memcpy(residual + at, values, 4 * count);
  }
}
// A sum as a residual: what is left of it is thrown away.
template <class CODEC>
uint64_t decode_add_encode(uint64_t param, uint32_t type, const void *wire, uint64_t wire_bytes, const void *local,
                           uint64_t n, void *out, uint64_t seed) {
  scratch sum(4 * n);
  if (CODEC::decode(param, type, wire, wire_bytes, n, sum.memory, HB_F32, 0)) return HB_MALFORMED;
  return CODEC::encode(param, type, local, n, out, (float *)sum.memory, seed);
}

struct topk {
  static uint64_t room(uint64_t k, uint32_t type, uint64_t n) { return hb_topk_bytes(n, k, size_of(type)); }
  static uint64_t encode(uint64_t k, uint32_t type, const void *x, uint64_t n, void *wire, float *residual, uint64_t) {
    source s = {type, (const byte *)x};
    if (residual) fold(type, x, n, residual), s = {HB_F32, (const byte *)residual};
    const hb_cut cut = select(s, n, k);
    const single_values values = {type, residual ? nullptr : s.x, residual};
    const uint64_t used = put_chunks(larger{s, cut}, values, n, HB_SPARSE_CHUNK, false, (byte *)wire);
    const uint64_t size = room(k, type, n);
    static const float zeros[TILE] = {};
    memset((byte *)wire + used, 0, size - used);
    if (residual && cut.magnitude >= HB_INFINITY)  // there was more overflow than room for it
      for (uint64_t at = 0; at < n; at += TILE) keep_residual(residual + at, zeros, n - at < TILE ? n - at : TILE, residual + at);
    return size;
  }
  static uint32_t decode(uint64_t k, uint32_t type, const void *wire, uint64_t bytes, uint64_t n, void *out,
                         uint32_t out_type, uint32_t add) {
    const value_places values = {type, out_type, add, (byte *)out};
    uint64_t sent;
    return bytes != room(k, type, n) ||
           get_chunks(values, n, HB_SPARSE_CHUNK, (const byte *)wire, bytes, sent) == HB_MALFORMED || sent != k;
  }
};
struct threshold {
  static uint64_t room(uint64_t, uint32_t type, uint64_t n) { return chunks_room(n, HB_SPARSE_CHUNK, size_of(type)); }
  static uint64_t encode(uint64_t bits, uint32_t type, const void *x, uint64_t n, void *wire, float *residual,
                         uint64_t) {
    source s = {type, (const byte *)x};
    if (residual) fold(type, x, n, residual), s = {HB_F32, (const byte *)residual};
    const single_values values = {type, residual ? nullptr : s.x, residual};
    return put_chunks(larger{s, {(hb_u32)bits, 0}}, values, n, HB_SPARSE_CHUNK, true, (byte *)wire);
  }
  static uint32_t decode(uint64_t, uint32_t type, const void *wire, uint64_t bytes, uint64_t n, void *out,
                         uint32_t out_type, uint32_t add) {
    const value_places values = {type, out_type, add, (byte *)out};
    uint64_t sent;
    return get_chunks(values, n, HB_SPARSE_CHUNK, (const byte *)wire, bytes, sent) != bytes;
  }
};
struct rowsparse {
  static uint64_t rest_bytes(uint64_t width, uint32_t type, uint64_t n) { return n % width * size_of(type); }
  static uint64_t room(uint64_t width, uint32_t type, uint64_t n) {
    return chunks_room(n / width, hb_chunk_records(width), width * size_of(type)) + rest_bytes(width, type, n);
  }
  static uint64_t encode(uint64_t width, uint32_t type, const void *x, uint64_t n, void *wire, float *residual,
                         uint64_t) {
    scratch rounded(residual ? n * size_of(type) : 0);
    if (residual) {
      fold(type, x, n, residual);
      for (uint64_t at = 0; at < n; at += TILE) {
        const uint64_t count = n - at < TILE ? n - at : TILE;
        alignas(64) float sent[TILE];
        byte *to = (byte *)rounded.memory + size_of(type) * at;
        store_values(type, to, residual + at, count);
        keep_residual(residual + at, load_values(type, to, count, sent), count, residual + at);
      }
      x = rounded.memory;
    }
    const rows records = {(const byte *)x, width * size_of(type)};
    const uint64_t used = put_chunks(not_zero{records.x, records.row_bytes}, records, n / width,
                                     hb_chunk_records(width), true, (byte *)wire);
    const uint64_t rest = rest_bytes(width, type, n);
    memcpy((byte *)wire + used, (const byte *)x + n * size_of(type) - rest, rest);
    return used + rest;
  }
  static uint32_t decode(uint64_t width, uint32_t type, const void *wire, uint64_t bytes, uint64_t n, void *out,
                         uint32_t out_type, uint32_t add) {
    const row_places records = {type, out_type, add, (byte *)out, width};
    uint64_t sent;
    const uint64_t used = get_chunks(records, n / width, hb_chunk_records(width), (const byte *)wire, bytes, sent);
    if (used == HB_MALFORMED || bytes - used != rest_bytes(width, type, n)) return 1;
    records.put((const byte *)wire + used, records.out + size_of(out_type) * (n - n % width), n % width);
    return 0;
  }
};
template <class CODEC> constexpr hb_ops ops = {CODEC::room, CODEC::encode, CODEC::decode, decode_add_encode<CODEC>};
}  // namespace

const hb_ops HB_NAME(hb_ops_topk) = ops<topk>;
const hb_ops HB_NAME(hb_ops_threshold) = ops<threshold>;
const hb_ops HB_NAME(hb_ops_rowsparse) = ops<rowsparse>;
