// Function table of one build.
#include "front.h"

extern "C" const hb_kernels HB_NAME(hb_kernels);
extern "C" const hb_kernels HB_NAME(hb_kernels) = {
    HB_ABI,
    HB_LANES,
    HB_STRING(HB_BUILD),
    {
#define X(family) &HB_NAME(hb_ops_##family),
        HB_EVERY_FAMILY(X)
#undef X
    },
    &HB_NAME(hb_flat),
    &HB_NAME(hb_halves),
};
