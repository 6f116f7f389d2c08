// kernels/gpu/gpu.cu for one family, parameter and type as functions of the CPU.
#include "cuda_emulator.h"
#include "gpu.cu"

#define LAUNCH(call) emulate(how, HB_THREADS, [=] { call; })
typedef const emulated_launch *launch;
extern "C" {
unsigned tile_values() { return hb_front::tile::VALUES; }
void run_encode(launch how, const void *x, hb_u64 n, hb_byte *wire, float *residual, hb_u64 seed) {
  LAUNCH(hb_encode(x, n, wire, residual, seed));
}
void run_decode(launch how, const hb_byte *wire, hb_u64 n, void *out) {
  LAUNCH(hb_decode(wire, n, out));
}
void run_decode_add(launch how, const hb_byte *wire, hb_u64 n, void *out) {
  LAUNCH(hb_decode_add(wire, n, out));
}
void run_decode_add_encode(launch how, const hb_byte *wire, const void *local, hb_u64 n, hb_byte *out,
                           hb_u64 seed) {
  LAUNCH(hb_decode_add_encode(wire, local, n, out, seed));
}
}
