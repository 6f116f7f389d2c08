// Serves the functions of a kernel library to another process over stdin and stdout. The client is in foreign.py.
// If compiled for another processor, the program runs under qemu-user.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <vector>

#include "hb_kernels.h"

struct request {
  uint64_t op, family, param, type, n, first, second, out, last;  // first, second, out: sizes of the data that follows
};
typedef std::vector<unsigned char> bytes;

static bool take(void *to, size_t size) { return size == 0 || fread(to, size, 1, stdin) == 1; }
static void give(const void *from, size_t size) { fwrite(from, 1, size, stdout); }

// AdamW steps and sums of squares of random numbers, and 16-bit conversions. The results must not depend on the
// processor.
template <class T> static void flat(const hb_kernels &kernels, uint32_t type, uint64_t n, bytes &out) {
  std::vector<T> arrays[4];
  uint64_t state = 1;
  for (std::vector<T> &array : arrays)
    for (uint64_t i = 0; i < n; i++) {
      state = state * 6364136223846793005ull + 1442695040888963407ull;
      array.push_back((T)((double)(state >> 11) * 0x1p-53));
    }
  uint64_t ends[] = {n / 3, n / 2, n};
  hb_adamw how = {0.9, 0.37, 0.1, 0.95, 0.05, 2.1, 1e-8, 1e-3, ends};
  kernels.flat->adamw(type, &how, arrays[0].data(), arrays[1].data(), arrays[2].data(), arrays[3].data(), 0, n);
  double sum = kernels.flat->squares(type, arrays[0].data(), n);
  const unsigned char *p = (const unsigned char *)&sum;
  out.insert(out.end(), p, p + sizeof sum);
  for (std::vector<T> &array : arrays) {
    p = (const unsigned char *)array.data();
    out.insert(out.end(), p, p + n * sizeof(T));
  }
}
static void halves(const hb_kernels &kernels, uint32_t type, bytes &out) {
  bytes all(2 << 16), sums(2 << 16), narrowed(2 << 16), wide(4 << 16), residual(4 << 16);
  for (unsigned k = 0; k < 1 << 16; k++) all[2 * k] = (unsigned char)k, all[2 * k + 1] = (unsigned char)(k >> 8);
  for (unsigned k = 0; k < 2 << 16; k++) sums[k] = all[(k * 40503u + 7) % (2 << 16)];
  kernels.halves->widen(type, all.data(), 1 << 16, (float *)wide.data(), 0);
  kernels.halves->widen(type, sums.data(), 1 << 16, (float *)wide.data(), 1);
  kernels.halves->narrow(type, (const float *)wide.data(), 1 << 16, narrowed.data(), (float *)residual.data());
  kernels.halves->add(type, all.data(), sums.data(), 1 << 16);
  for (bytes *part : {&wide, &narrowed, &residual, &sums}) out.insert(out.end(), part->begin(), part->end());
}

int main(int, char **arguments) {
  void *library = dlopen(arguments[1], RTLD_NOW);
  if (!library) return fprintf(stderr, "%s\n", dlerror()), 1;
  auto find = (const hb_kernels *(*)(const char *))dlsym(library, "hb_kernels_for");
  const hb_kernels *kernels = find ? find(nullptr) : nullptr;
  if (!kernels || kernels->abi != HB_ABI) return fprintf(stderr, "no kernels of this version\n"), 1;
  request r;
  while (take(&r, sizeof r)) {
    bytes first(r.first), second(r.second), out(r.out);
    if (!take(first.data(), r.first) || !take(second.data(), r.second) || !take(out.data(), r.out)) return 1;
    uint64_t result = 0;
    uint32_t type = (uint32_t)r.type;
    if (r.op == 4) {
      for (uint64_t n : {1, 7, 64, 1001}) flat<float>(*kernels, HB_F32, n, out), flat<double>(*kernels, HB_F64, n, out);
      halves(*kernels, HB_F16, out), halves(*kernels, HB_BF16, out);
      result = out.size();
    } else {
      const hb_ops &ops = *kernels->ops[r.family];
      if (r.op == 0) result = ops.wire_bytes(r.param, type, r.n);
      if (r.op == 1) {
        float *residual = r.second ? (float *)second.data() : nullptr;
        result = ops.encode(r.param, type, first.data(), r.n, out.data(), residual, r.last);
      }
      if (r.op == 2)
        result = ops.decode(r.param, type, first.data(), r.first, r.n, out.data(), (uint32_t)r.last & 255,
                            (uint32_t)r.last >> 8);
      if (r.op == 3)
        result = ops.decode_add_encode(r.param, type, first.data(), r.first, second.data(), r.n, out.data(), r.last);
    }
    uint64_t head[] = {result, out.size()};
    give(head, sizeof head), give(out.data(), out.size()), give(second.data(), second.size());
    fflush(stdout);
  }
  return 0;
}
