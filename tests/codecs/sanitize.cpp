// Random values through both encoders and random bytes through both decoders, in buffers of just their size, so that
// the address sanitizer sees every byte out of bounds. Compiled with one build of kernels/cpu.cpp.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hb_kernels.h"

#ifndef BUILD
#define BUILD hb_kernels_generic
#endif
#ifndef OVERRUN  // 1: a planted fault, the room is told one byte larger than it is
#define OVERRUN 0
#endif
extern "C" const hb_kernels BUILD;

static uint64_t state = 1;
static uint64_t random64() {
  uint64_t z = state += 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}
static unsigned char *room_for(size_t bytes) { return (unsigned char *)malloc(bytes + 1) + 1; }  // never aligned
static void release(unsigned char *p) { free(p - 1); }
static unsigned char *filled(size_t bytes, int kind) {  // 0 any bits, 1 words near each other, 2 mostly zero
  unsigned char *p = room_for(bytes);
  for (size_t i = 0; i < bytes; i++) {
    uint64_t r = random64();
    p[i] = (unsigned char)(kind == 0 ? r : kind == 1 ? (i % 4 ? 63 : r & 15) : r % 9 ? 0 : r >> 8);
  }
  return p;
}
static void fail(const char *what) {
  printf("FAILED %s\n", what);
  exit(1);
}

int main() {
  unsigned streams = 0, refused = 0;
  for (unsigned turn = 0; turn < 40; turn++) {
    for (unsigned rate = 4; rate <= 32; rate++) {
      size_t n = random64() % 300, wire_bytes = ((n + 3) / 4 * 4 * rate + 63) / 64 * 8;
      unsigned char *x = filled(4 * n, turn % 3), *wire = filled(wire_bytes, 0), *back = filled(4 * n, 0);
      BUILD.zfp1_decode(wire, n, rate, back, turn & 1);  // hostile
      BUILD.zfp1_encode(x, n + (OVERRUN && rate == 8 ? 64 : 0), rate, wire);
      BUILD.zfp1_decode(wire, n, rate, back, 0);
      streams += 2;
      release(x), release(wire), release(back);
    }
    for (unsigned dim = 1; dim <= 32; dim++) {
      size_t n = random64() % 10000, words = (n + 3) / 4, chunks = (words + 1023) / 1024, room = 4 * words + 2 * chunks;
      unsigned char *x = filled(n, turn % 3), *wide = filled(room, 0), *back = filled(n, 0);
      size_t used = BUILD.mpc_encode(x, n, dim, wide);
      if (used > room) fail("mpc grew");
      unsigned char *wire = room_for(used);
      memcpy(wire, wide, used);
      if (BUILD.mpc_decode(wire, used, n, dim, back, 0)) fail("mpc refused its own container");
      if (memcmp(x, back, n)) fail("mpc changed a byte");
      for (unsigned k = 0; used && k < 4; k++) {  // damaged, mostly in the lengths and bitmaps
        size_t at = k & 1 ? random64() % used : random64() % (2 * chunks);
        wire[at] ^= (unsigned char)(1u << random64() % 8);
        refused += BUILD.mpc_decode(wire, used, n, dim, back, k % 3);
      }
      release(wire);
      size_t cut = used ? random64() % used : 0;
      wire = room_for(cut);
      memcpy(wire, wide, cut);
      if (used) refused += BUILD.mpc_decode(wire, cut, n, dim, back, 0);
      release(wire);
      wire = filled(cut, turn % 3);  // no container at all
      refused += BUILD.mpc_decode(wire, cut, n, dim, back, 0);
      release(wire), release(x), release(wide), release(back);
      streams += 7;
    }
  }
  printf("%u streams, %u refused, %s\n", streams, refused, BUILD.name);
  return 0;
}
