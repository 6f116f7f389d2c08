// MPC over the words of 4 bytes of any type.
#include "chunks.h"

namespace {
#include "../hb_mpc.h"

struct mpc_codec {
  const int dim;
  mpc_codec(uint64_t param, uint32_t) : dim((int)param) {}
  uint64_t encode(const byte *chunk, uint64_t, byte *out) const {
    return HB_MPC_BITMAP + hb_mpc_encode_chunk<hb_v>((const hb_u32 *)chunk, dim, (hb_u32 *)out);
  }
  bool decode(const byte *in, uint64_t words, byte *chunk, uint64_t) const {
    const hb_u32 *coded = (const hb_u32 *)in;
    if (words < HB_MPC_BITMAP) return false;
    uint64_t count = HB_MPC_BITMAP;
    for (int g = 0; g < HB_MPC_BITMAP; g++) count += (uint64_t)__builtin_popcount(coded[g]);
    if (count != words) return false;
    hb_mpc_decode_chunk<hb_v>(coded, dim, (hb_u32 *)chunk);
    return true;
  }
};
}  // namespace

const hb_ops HB_NAME(hb_ops_mpc) = chunked<mpc_codec>::ops;
