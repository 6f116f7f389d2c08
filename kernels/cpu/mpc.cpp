// MPC: on 16-bit values for 16-bit types, and on words of 4 bytes for all other types.
#include "chunks.h"

namespace {
#include "../hb_mpc.h"

struct mpc_codec {
  const int dim;
  const bool halves;
  mpc_codec(uint64_t param, uint32_t type) : dim((int)param), halves(size_of(type) == 2) {}
  uint64_t encode(const byte *chunk, uint64_t, byte *out) const {
    const hb_u32 *v = (const hb_u32 *)chunk;
    hb_u32 *coded = (hb_u32 *)out;
    return HB_MPC_BITMAP + (halves ? hb_mpc_encode_chunk<hb_v, true>(v, dim, coded)
                                   : hb_mpc_encode_chunk<hb_v, false>(v, dim, coded));
  }
  bool decode(const byte *in, uint64_t words, byte *chunk, uint64_t) const {
    const hb_u32 *coded = (const hb_u32 *)in;
    hb_u32 *v = (hb_u32 *)chunk;
    if (words < HB_MPC_BITMAP) return false;
    uint64_t count = HB_MPC_BITMAP;
    for (int g = 0; g < HB_MPC_BITMAP; g++) count += (uint64_t)__builtin_popcount(coded[g]);
    if (count != words) return false;
    halves ? hb_mpc_decode_chunk<hb_v, true>(coded, dim, v) : hb_mpc_decode_chunk<hb_v, false>(coded, dim, v);
    return true;
  }
};
}  // namespace

const hb_ops HB_NAME(hb_ops_mpc) = chunked<mpc_codec>::ops;
