// Orders of rows as Python passes them: None where rows stay where they are.
#pragma once

#include <nanobind/stl/optional.h>

#include <optional>

#include "bindings/bindings.hpp"

namespace roundwise {

using Order = std::optional<VectorIn<std::int32_t>>;

template <class Numbers> const auto* pointer(const std::optional<Numbers>& given) {
    return given.has_value() ? given->data() : nullptr;
}

inline void require_order(const Order& order, std::int64_t n) {
    if (!order) return;
    bool valid = length(order->size()) == n;
    for (std::int64_t i = 0; valid && i < n; ++i) valid = order->data()[i] >= 0 && order->data()[i] < n;
    require(valid, "the order does not fit; pass an index of a row for each row");
}

}  // namespace roundwise
