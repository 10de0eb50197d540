// Making a PlanView: panels, updates, the places of A's entries, and tasks.
#pragma once

#include <cstdint>
#include <vector>

#include "sparse/plan_view.hpp"
#include "sparse/symbolic.hpp"

namespace roundwise::sparse {

class Plan {
  public:
    // `row_place` and `column_place` say which row and column of the factors a row and column of A
    // becomes. A is in compressed rows. For cholesky and ldl both places are the same, and only the
    // lower triangle of A is read. Throws std::invalid_argument if an entry of A lies outside of the
    // symbolic factors. The plan reads `symbolic.rows` as long as it lives.
    Plan(Kind kind, const Symbolic& symbolic, const std::int64_t* indptr, const std::int32_t* indices,
         const std::int32_t* row_place, const std::int32_t* column_place);

    PlanView view() const;
    std::int64_t stored() const { return place_.back(); }  // numbers in the storage
    std::int64_t given() const { return given_; }          // entries of A
    double entries() const { return entries_; }            // of the factors, zeros included
    double flops() const { return flops_; }

  private:
    Kind kind_;
    std::int32_t n_, tallest_ = 0, tasks_ = 0;
    std::int64_t contributions_ = 0, given_ = 0;
    double entries_ = 0, flops_ = 0;
    const std::int32_t* rows_;
    std::vector<std::int32_t> first_, height_, source_, target_, task_start_, task_panels_, inside_;
    std::vector<std::int64_t> row_start_, place_, update_start_, entry_start_, contribution_;
    std::vector<Update> updates_;

    std::vector<std::int32_t> panel_of_columns() const;
    std::int32_t panels() const { return static_cast<std::int32_t>(height_.size()); }
    std::int32_t width(std::int32_t p) const { return first_[p + 1] - first_[p]; }
    std::vector<std::int32_t> cut_into_panels(const Symbolic& symbolic);
    std::vector<double> list_updates(const std::vector<std::int32_t>& panel_of);
    void place_entries(const std::vector<std::int32_t>& panel_of, const std::int64_t* indptr,
                       const std::int32_t* indices, const std::int32_t* row_place,
                       const std::int32_t* column_place);
    void divide_into_tasks(const std::vector<std::int32_t>& parent, const std::vector<double>& work,
                           const std::vector<std::int32_t>& panel_of);
};

}  // namespace roundwise::sparse
