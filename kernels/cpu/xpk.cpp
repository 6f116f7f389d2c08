#include "chunks.h"
namespace {
struct xpk_codec {
  xpk_codec(uint64_t, uint32_t) {}
  uint64_t encode(const byte *, byte *) const { return CHUNK; }
  bool decode(const byte *, uint64_t, byte *) const { return false; }
};
}  // namespace
const hb_ops HB_NAME(hb_ops_xpk) = chunked<xpk_codec>::ops;
