// Numbers in double-double (about 106 bits): the unevaluated sum of two doubles.

struct Twofold {
    double high, low;
};

__device__ __forceinline__ Twofold two_sum(double a, double b) {
    const double s = __dadd_rn(a, b), t = __dsub_rn(s, a);
    return {s, __dadd_rn(__dsub_rn(a, __dsub_rn(s, t)), __dsub_rn(b, t))};
}

__device__ __forceinline__ Twofold add(Twofold x, Twofold y) {
    const Twofold s = two_sum(x.high, y.high), t = two_sum(x.low, y.low);
    const Twofold v = two_sum(s.high, __dadd_rn(s.low, t.high));
    return two_sum(v.high, __dadd_rn(t.low, v.low));
}

__device__ __forceinline__ Twofold times(double a, double b) {
    const double p = __dmul_rn(a, b);
    return {p, __fma_rn(a, b, -p)};
}

// high + low += term, with the error of the sum in low.
__device__ __forceinline__ void accumulate(double& high, double& low, double term) {
    const Twofold sum = two_sum(high, term);
    high = sum.high;
    low = __dadd_rn(low, sum.low);
}
