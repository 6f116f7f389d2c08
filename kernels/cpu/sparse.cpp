#include "tiles.h"
namespace { struct bf {  static constexpr int PLANES = 1;
  bf(uint64_t, uint32_t) {}
  uint64_t bytes(int, uint64_t n) const { return 2 * n; }
  void encode(const float *x, uint64_t, byte *const *to, noise_source) const {
    for (uint64_t i = 0; i < TILE; i += HB_LANES) lanes::store16(to[0] + 2 * i, hb_to_bfloat(lanes::load((const hb_u32*)x + i)));
  }
  void decode(const byte *const *from, float *out) const {
    for (uint64_t i = 0; i < TILE; i += HB_LANES)
      lanes::store((hb_u32 *)out + i, hb_from_bfloat(lanes::load16(from[0] + 2 * i)));
  } }; }
const hb_ops HB_NAME(hb_ops_topk) = tiled<bf>::ops;
const hb_ops HB_NAME(hb_ops_threshold) = tiled<bf>::ops;
const hb_ops HB_NAME(hb_ops_rowsparse) = tiled<bf>::ops;
