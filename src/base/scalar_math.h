// exp, log, sin and cos in double, written out so that every CPU gives the same bits (a C library picks other code on
// other CPUs). Accurate to a few units of the last place of double, far below the float that callers round to.
#pragma once

namespace coprime {

double portable_exp(double x);                                 // |x| < 700
double portable_log(double x);                                 // x > 0, normal
void portable_sincos(double x, double* sine, double* cosine);  // |x| < 3e6: the reduction stays exact

}  // namespace coprime
