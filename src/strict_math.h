// SPDX-License-Identifier: MIT
// Fails to compile with -ffast-math, -Ofast and similar options. With such options the compiler
// assumes that no number is NaN or infinite and reorders sums. Masks, checks of arguments and
// corrections of rounding would be wrong.
#pragma once

#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__) || \
    defined(__ASSOCIATIVE_MATH__) || defined(__RECIPROCAL_MATH__) || defined(__NO_SIGNED_ZEROS__)
#error "mini-transformer needs IEEE arithmetic: compile these sources with -fno-fast-math"
#endif
