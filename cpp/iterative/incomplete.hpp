// Incomplete factorizations A ~ L U with levels of fill (Saad 2003, 10.3), of symmetric definite A with U = D L'.
//
// A is scaled by powers of two such that its diagonal is about 1. Where a pivot is too small, or not positive where it
// should be, the diagonal is shifted and everything begins again, with twice the shift each time (Manteuffel 1980;
// Scott & Tuma 2014). Factors are made in FP64 and then rounded. Rows whose unknowns do not depend on each other make a
// level of a substitution; the threads share one level after the other.
#pragma once

#include <memory>

#include "iterative/hierarchy.hpp"

namespace roundwise::iterative {

struct Fill {
    bool definite = false;
    int levels = 0;
    int threads = 1;
};

template <class E> std::unique_ptr<Preconditioner> make_incomplete(const CsrView& A, const Fill& fill, Made& made);

}  // namespace roundwise::iterative
