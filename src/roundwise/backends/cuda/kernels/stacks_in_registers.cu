// Systems with at most LENGTH <= 32 unknowns: WIDTH lanes have a system, each of them a row, in registers.

// WIDTH lanes a system of n <= LENGTH unknowns.
extern "C" __global__ void __launch_bounds__(THREADS)
solve_in_registers(const STORED* __restrict__ a, const long long* __restrict__ a_places, long long a_step,
                   long long a_down, long long a_across, const STORED* __restrict__ b,
                   const long long* __restrict__ b_places, long long b_step, long long b_down,
                   long long b_across, STORED* __restrict__ x, double* __restrict__ bounds, int count, int n,
                   int columns, double tolerance, double growth, double exact_error, double suspicious,
                   double least, double most, int corrections,
                   unsigned long long* newest, long long ticket) {
    const Gate gate = {tolerance, growth, exact_error, suspicious, least, most};
    const double infinite = __longlong_as_double(0x7ff0000000000000ll);
    const int lane = threadIdx.x % WIDTH, given = blockIdx.x * (THREADS / WIDTH) + threadIdx.x / WIDTH;
    const bool is_there = given < count;
    const long long system = is_there ? given : count - 1;  // the others of the warp wait for its lanes
    const bool has_row = lane < n;
    const STORED* matrix = a + parts * ((a_places ? a_places[system] : system) * a_step);
    const STORED* given_row = matrix + parts * ((has_row ? lane : 0) * a_down);
    const STORED* right = b + parts * ((b_places ? b_places[system] : system) * b_step);

    Number row[LENGTH];
    double sum = 0;
#pragma unroll
    for (int j = 0; j < LENGTH; ++j) {
        row[j] = number(0.0);
        if (j < n && has_row) row[j] = read(given_row + parts * (j * a_across));
        sum += magnitude(row[j]);
    }
    const double norm = norm_of(largest_of_lanes(sum, WIDTH));

    // Rows stay in their lanes until all are eliminated.
    bool is_left = has_row;
    int source = lane;
    double largest = 0, smallest = infinite;
    Number own_inverse = number(1.0);
#pragma unroll
    for (int k = 0; k < LENGTH; ++k) {
        if (k >= n) continue;
        // The upper bits of a number tell enough to choose by; the lowest of them give way to the lane.
        const unsigned size = static_cast<unsigned>(__double2hiint(magnitude(row[k])));
        unsigned key = is_left ? (size & ~(WIDTH - 1u)) | (WIDTH - 1u - lane) : 0u;
#pragma unroll
        for (int step = WIDTH / 2; step > 0; step /= 2) {
            const unsigned other = __shfl_xor_sync(all_lanes, key, step);
            key = other > key ? other : key;
        }
        const int chosen = WIDTH - 1 - static_cast<int>(key & (WIDTH - 1u));
        const Number pivot = from_lane(row[k], chosen, WIDTH);
        const double pivot_size = magnitude(pivot);
        largest = larger(largest, pivot_size);
        smallest = pivot_size < smallest ? pivot_size : smallest;
        const Number over = inverse(pivot);
        if (lane == k) source = chosen;
        if (lane == chosen) is_left = false, own_inverse = over;
        const Number factor = is_left ? times(row[k], over) : number(0.0);
        if (is_left) row[k] = factor;
#pragma unroll
        for (int j = k + 1; j < LENGTH; ++j) subtract_product(row[j], factor, from_lane(row[j], chosen, WIDTH));
    }
#pragma unroll
    for (int j = 0; j < LENGTH; ++j) row[j] = from_lane(row[j], source, WIDTH);
    own_inverse = from_lane(own_inverse, source, WIDTH);

    bool is_accepted = smallest > gate.suspicious * largest;
    double worst = 0;
    for (int c = 0; c < columns; ++c) {
        Number b_i = number(0.0);
        if (has_row) b_i = read(right + parts * (lane * b_down + c * b_across));
        const double b_norm = modulus_of(largest_of_lanes(measure(b_i), WIDTH));
        Number r_i = b_i, y_i = number(0.0), x_i = y_i;
        double bound = infinite;
        bool is_open = true;  // an answer that is settled stays as it is, whoever shares its warp
        for (int steps = 0;; ++steps) {
            Number v = from_lane(r_i, source, WIDTH), z = number(0.0);
#pragma unroll
            for (int k = 0; k < LENGTH; ++k) {
                if (k >= n) continue;
                const Number known = from_lane(v, k, WIDTH);
                if (lane > k) subtract_product(v, row[k], known);
            }
#pragma unroll
            for (int k = LENGTH - 1; k >= 0; --k) {
                if (k >= n) continue;
                const Number known = from_lane(times(v, own_inverse), k, WIDTH);
                if (lane == k) z = known;
                if (lane < k) subtract_product(v, row[k], known);
            }
            if (is_open) y_i = added(y_i, z);
            x_i = rounded(y_i);
            Dot dot;
            dot.clear();
#pragma unroll
            for (int j = 0; j < LENGTH; ++j) {
                if (j >= n) continue;
                dot.add_product(read(given_row + parts * (j * a_across)), from_lane(x_i, j, WIDTH));
            }
            r_i = has_row ? dot.subtracted_from(b_i) : number(0.0);
            const double x_norm = modulus_of(largest_of_lanes(measure(x_i), WIDTH));
            const double r_norm = modulus_of(largest_of_lanes(measure(r_i), WIDTH));
            bound = gate.bound(norm, x_norm, b_norm, r_norm);
            is_open = is_open && !(bound <= gate.tolerance) && isfinite(bound) && steps < corrections;
            if (!__ballot_sync(all_lanes, is_open)) break;
        }
        is_accepted = is_accepted && bound <= gate.tolerance;
        worst = larger(worst, bound);
        if (is_there && has_row) write(x + parts * ((system * n + lane) * columns + c), x_i);
    }
    if (!is_there || lane > 0) return;
    bounds[system] = is_accepted ? worst : infinite;
    if (!is_accepted) atomicMax(newest, static_cast<unsigned long long>(ticket));
}
