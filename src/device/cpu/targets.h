// The targets that kernels are compiled for. Include before Highway, in every file of kernels.
// Invariant: AVX2 (with FMA and F16C) and AVX-512 (F, CD, VL, DQ, BW), whatever the compiler's flags say.
#pragma once

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
