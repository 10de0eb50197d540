// What the kernels of stacks share. Numbers are STORED, or pairs of them (PARTS = 2: complex ones); what is
// computed is double. Each system is solved and verified without leaving its place: LU with partial pivoting,
// substitution, residual in twice the precision, corrections, gate, as cpp/native/express_solve.hpp does it
// on the processor.

constexpr int parts = PARTS;
constexpr unsigned all_lanes = 0xffffffffu;
constexpr double over_root_2 = 0.7071067811865475;  // not above the inverse of the square root of 2

// What the gate asks of an answer, and who is to be solved (`Gate` in solver/express.py).
struct Gate {
    double tolerance, growth, exact_error, suspicious, least, most;
    // The upper bound of a backward error; infinite where products may have left the range of doubles.
    __device__ __forceinline__ double bound(double norm, double x, double b, double r) const {
        const double size = norm * x + b;
        const double infinite = __longlong_as_double(0x7ff0000000000000ll);
        if (x == 0 && b == 0) return 0.0;
        return size > least && size < most ? r / size * growth + exact_error : infinite;
    }
};

#if PARTS == 1
typedef double Number;
__device__ __forceinline__ Number number(double value) { return value; }
__device__ __forceinline__ Number read(const STORED* place) { return static_cast<double>(place[0]); }
__device__ __forceinline__ void write(STORED* place, Number a) { place[0] = static_cast<STORED>(a); }
__device__ __forceinline__ Number added(Number a, Number b) { return a + b; }
__device__ __forceinline__ Number times(Number a, Number b) { return a * b; }
__device__ __forceinline__ void subtract_product(Number& a, Number b, Number c) { a -= b * c; }
__device__ __forceinline__ Number inverse(Number a) { return 1.0 / a; }
__device__ __forceinline__ Number rounded(Number a) { return static_cast<double>(static_cast<STORED>(a)); }
__device__ __forceinline__ double magnitude(Number a) { return fabs(a); }   // for pivots and sums of rows
__device__ __forceinline__ double measure(Number a) { return fabs(a); }     // whose order is that of moduli
__device__ __forceinline__ double modulus_of(double measured) { return measured; }
__device__ __forceinline__ Number from_lane(Number a, int lane, int width) {
    return __shfl_sync(all_lanes, a, lane, width);
}
#else
struct Number {
    double re, im;
};
__device__ __forceinline__ Number number(double value) { return {value, 0.0}; }
__device__ __forceinline__ Number read(const STORED* place) {
    return {static_cast<double>(place[0]), static_cast<double>(place[1])};
}
__device__ __forceinline__ void write(STORED* place, Number a) {
    place[0] = static_cast<STORED>(a.re), place[1] = static_cast<STORED>(a.im);
}
__device__ __forceinline__ Number added(Number a, Number b) { return {a.re + b.re, a.im + b.im}; }
__device__ __forceinline__ Number times(Number a, Number b) {
    return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
__device__ __forceinline__ void subtract_product(Number& a, Number b, Number c) {
    a.re -= b.re * c.re, a.im -= b.re * c.im;
    a.re += b.im * c.im, a.im -= b.im * c.re;
}
__device__ __forceinline__ Number inverse(Number a) {  // scaled, so that no square overflows
    const double size = fabs(a.re) > fabs(a.im) ? fabs(a.re) : fabs(a.im);
    const double re = a.re / size, im = a.im / size, square = (re * re + im * im) * size;
    return {re / square, -im / square};
}
__device__ __forceinline__ Number rounded(Number a) {
    return {static_cast<double>(static_cast<STORED>(a.re)), static_cast<double>(static_cast<STORED>(a.im))};
}
__device__ __forceinline__ double magnitude(Number a) { return fabs(a.re) + fabs(a.im); }
__device__ __forceinline__ double measure(Number a) {  // zero of zero alone
    const double square = __dadd_rn(__dmul_rn(a.re, a.re), __dmul_rn(a.im, a.im));
    return square > 0 || magnitude(a) == 0 ? square : magnitude(a) * 0x1p-900 + 0x1p-1000;
}
__device__ __forceinline__ double modulus_of(double measured) { return sqrt(measured); }
__device__ __forceinline__ Number from_lane(Number a, int lane, int width) {
    return {__shfl_sync(all_lanes, a.re, lane, width), __shfl_sync(all_lanes, a.im, lane, width)};
}
#endif

// The larger one; NaN if there is one.
__device__ __forceinline__ double larger(double a, double b) { return b > a || isnan(b) ? b : a; }

__device__ __forceinline__ double largest_of_lanes(double value, int width) {
    for (int step = width / 2; step > 0; step /= 2)
        value = larger(value, __shfl_xor_sync(all_lanes, value, step));
    return value;
}

// A sum in twice the precision (cpp/native/exact.hpp). Every operation is named: none is to be fused.
struct TwiceSum {
    double high, low;
    __device__ __forceinline__ void add(double term) {
        const double sum = __dadd_rn(high, term), part = __dsub_rn(sum, high);
        low = __dadd_rn(low, __dadd_rn(__dsub_rn(high, __dsub_rn(sum, part)), __dsub_rn(term, part)));
        high = sum;
    }
    __device__ __forceinline__ void add_product(double a, double b) {
        const double product = __dmul_rn(a, b), error = __fma_rn(a, b, -product);
        const double sum = __dadd_rn(high, product), part = __dsub_rn(sum, high);
        const double lost = __dadd_rn(__dsub_rn(high, __dsub_rn(sum, part)), __dsub_rn(product, part));
        low = __dadd_rn(low, __dadd_rn(error, lost));
        high = sum;
    }
    // The same in both lanes: the error of a sum is exact, whichever term comes first.
    __device__ __forceinline__ void add_from(int step) {
        const double other = __shfl_xor_sync(all_lanes, high, step);
        low = __dadd_rn(low, __shfl_xor_sync(all_lanes, low, step));
        add(other);
    }
    // b - sum
    __device__ __forceinline__ double subtracted_from(double b) const {
        TwiceSum left = {b, 0.0};
        left.add(-high);
        return __dadd_rn(left.high, __dsub_rn(left.low, low));
    }
};

// A row times a column, real and imaginary part apart.
struct Dot {
    TwiceSum sums[parts];
    __device__ __forceinline__ void clear() {
        for (int part = 0; part < parts; ++part) sums[part] = {0.0, 0.0};
    }
#if PARTS == 1
    __device__ __forceinline__ void add_product(Number a, Number x) { sums[0].add_product(a, x); }
    __device__ __forceinline__ Number subtracted_from(Number b) const { return sums[0].subtracted_from(b); }
#else
    __device__ __forceinline__ void add_product(Number a, Number x) {
        sums[0].add_product(a.re, x.re), sums[0].add_product(-a.im, x.im);
        sums[1].add_product(a.re, x.im), sums[1].add_product(a.im, x.re);
    }
    __device__ __forceinline__ Number subtracted_from(Number b) const {
        return {sums[0].subtracted_from(b.re), sums[1].subtracted_from(b.im)};
    }
#endif
    __device__ __forceinline__ void add_lanes() {
        for (int step = 16; step > 0; step /= 2)
            for (int part = 0; part < parts; ++part) sums[part].add_from(step);
    }
};

__device__ __forceinline__ double norm_of(double row_sums) {
    return parts == 1 ? row_sums : row_sums * over_root_2;
}
