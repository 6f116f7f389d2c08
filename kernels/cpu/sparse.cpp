// Sparse messages: values selected by magnitude (topk, threshold) and nonzero rows (rowsparse).
#include "sections.h"
#include "select.h"

namespace {
// ------------------------------------------------------------------------------------------------ what is sent
// one bit for each of 32 values: whether the value passes a test
template <class TEST> HB_FN hb_u32 which(const hb_u32 *v, TEST test) {
  hb_u32 word = 0;
  for (int i = 0; i < 32; i += HB_LANES) word |= lanes::bits(test(lanes::load(v + i) & HB_MAGNITUDE)) << i;
  return word;
}
struct larger {  // values larger than a magnitude, and the first values equal to it
  source s;
  hb_cut cut;
  void mark(uint64_t first, uint64_t m, marks &to) {
    s.words(first, first + m, [&](uint64_t at, const hb_u32 *v) {
      const hb_u32 valid = lowest(first + m - at);
      hb_u32 word = which(v, [&](hb_v x) { return x > cut.magnitude; });
      if (cut.equal) {
        hb_u32 equal = which(v, [&](hb_v x) { return x == cut.magnitude; }) & valid;
        for (; equal && cut.equal; equal &= equal - 1, cut.equal--) word |= equal & (0u - equal);
      }
      to.put(at - first, word & valid);
    });
  }
};
struct not_zero {  // nonzero rows with this number of bytes
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
    for (uint64_t i = 0; i < m; i += 32) {
      hb_u32 word = 0;
      for (uint64_t j = i; j < m && j < i + 32; j++) word |= (hb_u32)any(x + bytes * (first + j)) << (j - i);
      to.put(i, word);
    }
  }
};

// ------------------------------------------------------------------------------------------------ records
// N bytes from or to each of several positions
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

// Moves values of the chunk that begins at `first` to and from the wire, up to TILE at a time.
struct single_values {
  uint32_t type;
  const byte *x;    // values of this type; null if the residual contains the values to send
  float *residual;  // after sending, contains the difference between these values and the sent values
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
      add_doubles(to, from, n);
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

// ------------------------------------------------------------------------------------------------ families
struct scratch {
  void *memory;
  explicit scratch(uint64_t bytes) : memory(malloc(bytes + 1)) {
    if (!memory) abort();
  }
  scratch(const scratch &) = delete;
  ~scratch() { free(memory); }
};
// Values to send: the input, or its sum with the residual. The residual then contains the sum.
source wanted(uint32_t type, const void *x, uint64_t n, float *residual) {
  const source own = {type, (const byte *)x};
  if (!residual) return own;
  own.tiles(0, n, [&](uint64_t at, const float *v, uint64_t count) {
    alignas(64) float sums[TILE];
    add_residual(v, residual + at, count, sums);
    memcpy(residual + at, sums, 4 * count);
  });
  return {HB_F32, (const byte *)residual};
}
void drop_overflow(float *residual, uint64_t n) {
  float_at_any_place *r = (float_at_any_place *)residual;
  for (uint64_t i = 0; i < n; i++) r[i] = __builtin_fabsf(r[i]) < __builtin_inff() ? r[i] : 0.0f;
}
// The accumulator is used as the residual, and the remainder is discarded.
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
    const source s = wanted(type, x, n, residual);
    const hb_cut cut = select(s, n, k);
    const single_values values = {type, residual ? nullptr : s.x, residual};
    const uint64_t used = put_chunks(larger{s, cut}, values, n, HB_SPARSE_CHUNK, false, (byte *)wire);
    const uint64_t size = room(k, type, n);
    memset((byte *)wire + used, 0, size - used);
    if (residual && cut.magnitude >= HB_INFINITY) drop_overflow(residual, n);  // not every overflowing value is sent
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
    const source s = wanted(type, x, n, residual);
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
      source{type, (const byte *)x}.tiles(0, n, [&](uint64_t at, const float *v, uint64_t count) {
        alignas(64) float sums[TILE], sent[TILE];
        byte *to = (byte *)rounded.memory + size_of(type) * at;
        add_residual(v, residual + at, count, sums);
        store_values(type, to, sums, count);
        keep_residual(sums, load_values(type, to, count, sent), count, residual + at);
      });
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
